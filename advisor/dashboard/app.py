"""The dashboard as a web application: its pages, their JSON, and the sign-in."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.dashboard.access import HEADERS, Access, DeniedError, local_path, own_form, read_form, role, session_of
from advisor.dashboard.pages import administration, advice, campaigns, compare, hardware, history, overview, runs
from advisor.dashboard.site import STATIC, Site, answer, compressed_file, links_of, site_of, static_file
from knowledge.domain.errors import AdvisorError, InputError, UnavailableError, UnsatisfiableError
from knowledge.service.access import access_record

_OPEN_PATHS = ("/sign-in", f"/{STATIC}/")
"""Paths that need no session."""
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml; charset=utf-8"}
_STATUSES = ((InputError, 422), (UnsatisfiableError, 422), (UnavailableError, 503))
_LOGGED = (401, 403, 408, 411, 413, 421, 429)
"""Statuses of refused requests whose reason is logged; its text is not from the request."""
_YEAR = "public, max-age=31536000, immutable"
router = APIRouter()


def create_dashboard(site: Site) -> FastAPI:
    """Return the dashboard, which can be mounted at any path; the caller closes its knowledge base."""
    assert site.access is not None
    app = FastAPI(
        title="Seshat dashboard",
        description="Pages about a knowledge base, and the same as JSON. Each request needs a session.",
        version=version("seshat-advisor"),
        docs_url=None,
        redoc_url=None,
        # Redirections to an address with a slash would name the host of the request.
        redirect_slashes=False,
        responses={401: {"description": "Nobody signed in."}, 429: {"description": "Too many requests."}},
    )
    app.state.site = site
    app.add_middleware(Guard, access=site.access)
    _install_error_pages(app)
    app.include_router(router)
    for page in (advice, overview, compare, runs, history, hardware, campaigns):
        app.include_router(page.router, dependencies=[Depends(role("reader"))])
    app.include_router(administration.router, dependencies=[Depends(role("admin"))])
    return app


class Guard:
    """Middleware that checks each request before its page does, and adds headers to each response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        try:
            response: Response | None = await run_in_threadpool(self._access.enter, request)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if response is None and request.state.session is None and not path.startswith(_OPEN_PATHS):
                response = _ask_to_sign_in(request, self._access)
        except DeniedError as error:
            response = _refusal(request, error)
        except AdvisorError as error:
            response = _refusal(request, _denied(request, error))
        if response is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await response(scope, receive, send_with_headers)


def _ask_to_sign_in(request: Request, access: Access) -> Response:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    wants_page = "text/html" in request.headers.get("accept", "") and not path.startswith("/api/")
    if access.sign_in.has_form and wants_page and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(links_of(request).page("sign-in", then=f"{path}{query}"), status_code=303)
    hint = "sign in" if access.sign_in.has_form else "open the address that `advisor dashboard` printed"
    return _refusal(request, DeniedError(401, "nobody signed in", hint))


def _refusal(request: Request, error: DeniedError) -> Response:
    """Return why a request was refused, as a page or as JSON."""
    record = access_record(request.scope)
    record.error = str(error.status)
    if error.status in _LOGGED:
        record.reason = record.reason or error.message
    if "/api/" in request.scope["path"]:
        body = {"error": "refused", "message": error.message, "hint": error.hint}
        return JSONResponse(body, status_code=error.status, headers=error.headers)
    template = "refusal_part.html" if request.headers.get("hx-request") else "refusal.html"
    response = answer(request, template, page="", status=error.status, refusal=error)
    response.headers.update(error.headers)
    return response


def _denied(request: Request, error: AdvisorError) -> DeniedError:
    """Return what the person may know of an error; the log has its message."""
    access_record(request.scope).reason = error.message
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status == 503:
        # The message of a database can contain names of hosts and users.
        return DeniedError(status, "the knowledge base is not available", "try again later")
    return DeniedError(status, error.message, error.hint)


def _install_error_pages(app: FastAPI) -> None:
    """Answer every error with a page or with JSON."""

    @app.exception_handler(DeniedError)
    async def refuse(request: Request, error: DeniedError) -> Response:
        return _refusal(request, error)

    @app.exception_handler(AdvisorError)
    async def expected(request: Request, error: AdvisorError) -> Response:
        return _refusal(request, _denied(request, error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, _: Exception) -> Response:
        # The server logs the traceback. This response does not pass the middleware that adds the headers.
        response = _refusal(request, DeniedError(500, "the dashboard failed", "the operator can read its log"))
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _refusal(request, DeniedError(422, f"`{where}`: {first['msg'].lower()}"))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        hint = "the menu lists the pages" if error.status_code == 404 else ""
        return _refusal(request, DeniedError(error.status_code, str(error.detail).lower(), hint))


@router.get("/", include_in_schema=False)
def first_page(request: Request) -> Response:
    """Continue at the advice if there is a project, else at the overview."""
    page = "advice" if site_of(request).project is not None else "overview"
    return RedirectResponse(links_of(request).page(page), status_code=303)


@router.get(f"/{STATIC}/{{name}}", include_in_schema=False)
def static(request: Request, name: str) -> Response:
    """Return a style sheet, a script or a picture; compressed, if the browser can read that."""
    try:
        content, _ = static_file(name)
    except InputError as error:
        raise DeniedError(404, error.message) from None
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    headers = {"Cache-Control": _YEAR, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        content = compressed_file(name)
    return Response(content, media_type=kind, headers=headers)


def mount_dashboard(app: FastAPI, site: Site, path: str) -> FastAPI:
    """Add the dashboard to an application at a path, without and with a slash at its end, and return it."""

    @app.get(path, include_in_schema=False)
    def add_slash() -> Response:
        return RedirectResponse(f"{path}/", status_code=308, headers=HEADERS)

    dashboard = create_dashboard(site)
    app.mount(path, dashboard)
    return dashboard


@router.get("/sign-in", response_class=HTMLResponse, include_in_schema=False)
def sign_in_page(request: Request, then: str = "/") -> HTMLResponse:
    """Show the form for a token."""
    _token_access(request)
    return answer(request, "sign_in.html", page="", then=local_path(then))


@router.post("/sign-in", include_in_schema=False)
async def sign_in(request: Request) -> Response:
    """Begin a session with a token."""
    access = _token_access(request)
    form = await read_form(request, max_files=0, max_fields=4, max_part_size=4096)
    token, then = str(form.get("token", "")), str(form.get("then", ""))
    session = await run_in_threadpool(access.sign_in_with, request, token.strip())
    return access.begin(request, session, f"{links_of(request).prefix}{local_path(then) or '/'}")


def _token_access(request: Request) -> Access:
    """Return the access to a dashboard where people enter a token."""
    access = site_of(request).access
    if access is None or not access.sign_in.has_form:
        raise DeniedError(404, "nobody signs in with a token here", "use the address that the operator gave you")
    return access


@router.post("/sign-out", include_in_schema=False)
async def sign_out(request: Request) -> Response:
    """End the session."""
    await own_form(request)
    access = site_of(request).access
    assert access is not None
    access.sessions.end(session_of(request).identity)
    response = RedirectResponse(links_of(request).page("sign-in"), status_code=303)
    response.delete_cookie(access.sign_in.cookie, path="/", secure=access.sign_in.secure, httponly=True)
    response.headers["Clear-Site-Data"] = '"cache"'
    return response
