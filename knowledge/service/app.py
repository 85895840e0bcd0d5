"""The service: a knowledge base over HTTP.

It speaks plain HTTP: TLS is a proxy's. Tokens travel in the ``Authorization`` header alone, and are in no log.
"""

# No postponed annotations: FastAPI reads those of nested functions, which name what is around them.
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from knowledge.admission.admit import Admission
from knowledge.admission.plausibility import IndicatorCatalogue
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from knowledge.exchange.files import read_observations, write_observations
from knowledge.service.metrics import ServiceMetrics
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tokens import Token

NDJSON = "application/x-ndjson"
MOST_BYTES = 16 * 1024 * 1024
_NAME: dict[str, Any] = {"max_length": 128, "pattern": "^[^\\x00]*$"}
"""What a name may be: databases take no zero byte."""


class Problem(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="Stable name of the error.")
    message: str = Field(description="One sentence.")
    hint: str = Field(default="", description="What to do next.")


class Apart(BaseModel):
    """An observation that was not let in."""

    id: str
    reason: str


class Received(BaseModel):
    """What became of a delivery."""

    added: int = Field(description="New, and in the knowledge base.")
    known: int = Field(description="There already: a delivery may be repeated.")
    quarantined: list[Apart] = Field(description="Kept apart, until the operator decides.")


class BlockEntry(BaseModel):
    """A block, counted."""

    name: str
    observations: int
    digest: str = Field(description="Equal exactly when the observations are.")
    source: str


class Health(BaseModel):
    """How the service is."""

    status: str
    version: str
    revision: str


class ServiceError(Exception):
    """A refusal with its status."""

    def __init__(self, status: int, error: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(error=error, message=message, hint=hint)


def create_app(store: SqlKnowledgeBase, catalogue: IndicatorCatalogue, *, most_bytes: int = MOST_BYTES) -> FastAPI:
    """Return the service of a knowledge base.

    Args:
        store: The knowledge base; whoever opened it closes it, after the service has ended.
        catalogue: The program's indicators.
        most_bytes: Largest body of a request.
    """
    metrics = ServiceMetrics(store)
    # Whether a cell was measured already is looked up before it is written: one delivery at a time.
    admitting = threading.Lock()

    app = FastAPI(
        title="Seshat knowledge base",
        description="Observations of performance indicators: delivered by runners, read by everybody with a token.",
        version=version("seshat"),
        # The pages would load scripts from elsewhere; the document itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    bearer = HTTPBearer(auto_error=False, description="`advisor knowledge token create` makes one.")

    def token(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Token:
        known = store.token_of(given.credentials) if given is not None else None
        if known is None:
            raise ServiceError(401, "no-token", "there is no valid token with the request", "send a bearer token")
        if not known.valid(datetime.now(UTC)):
            ended = "was revoked" if known.revoked_at else f"expired at {known.expires_at}"
            raise ServiceError(401, "token-ended", f"token `{known.id}` {ended}", "ask the operator for another one")
        return known

    def runner(known: Annotated[Token, Depends(token)]) -> Token:
        if known.role != "runner":
            raise ServiceError(403, "not-allowed", f"token `{known.id}` may only read", "use one of role `runner`")
        return known

    _refusals(app)
    _count(app, metrics)

    @app.post(
        "/observations",
        responses=_problems(401, 403, 413, 415, 422, 503),
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "An observation file: each stack and machine once, then the observations.",
                "content": {NDJSON: {"schema": {"type": "string"}}},
            }
        },
    )
    async def deliver(request: Request, known: Annotated[Token, Depends(runner)]) -> Received:
        """Add observations: all of a delivery, or nothing. What is known already is not counted twice."""
        content = await _body(request, most_bytes)

        def take_in() -> Received:
            with admitting:
                lines = lines_of(content.decode("utf-8"))
                found = tuple(read_observations(lines, where="line"))
                done = Admission(store, catalogue, source=known.source).add(found)
            metrics.received(done, known.source)
            apart = [Apart(id=q.observation.identity, reason=q.reason) for q in done.quarantined]
            return Received(added=done.added, known=done.known, quarantined=apart)

        try:
            return await run_in_threadpool(take_in)
        except UnicodeDecodeError as error:
            raise ServiceError(422, "unreadable-input", f"the body is no UTF-8: {error}") from None
        except InputError as error:
            raise ServiceError(422, error.code, error.message, "nothing of the delivery was stored") from None

    reading = [Depends(token)]

    @app.get(
        "/observations",
        dependencies=reading,
        response_class=StreamingResponse,
        responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}, **_problems(401, 422, 503)},
    )
    def observations(
        block: Annotated[str | None, Query(**_NAME, description="Only those of one block.")] = None,
        indicator: Annotated[str | None, Query(**_NAME, description="Only those of one indicator.")] = None,
    ) -> StreamingResponse:
        """Read observations, as an observation file."""
        found = store.observations(block=block, indicator=indicator)
        # The first is asked for while a failure can still be answered.
        lines = _begun(write_observations(found))
        return StreamingResponse((f"{line}\n" for line in lines), media_type=NDJSON)

    @app.get("/blocks", dependencies=reading, responses=_problems(401, 503))
    def blocks() -> list[BlockEntry]:
        """List the blocks, with digests by which two knowledge bases are compared."""
        return [
            BlockEntry(name=b.name, observations=b.observations, digest=b.digest, source=b.source)
            for b in store.blocks()
        ]

    @app.get("/stacks", dependencies=reading, responses=_problems(401, 422, 503))
    def stacks(
        package: Annotated[str | None, Query(**_NAME, description="Only those that hold a package.")] = None,
    ) -> list[dict[str, Any]]:
        """List the stacks that were measured."""
        return [
            {"id": stack.identity, **stack.record()}
            for stack in store.stacks()
            if package is None or stack.version_of(package) is not None
        ]

    @app.get("/hardware", dependencies=reading, responses=_problems(401, 503))
    def hardware() -> list[dict[str, Any]]:
        """List the machines on which something was measured."""
        return [{"id": machine.identity, **machine.record()} for machine in store.machines()]

    @app.get("/health", responses=_problems(503))
    def health() -> Health:
        """Say whether the knowledge base can be read."""
        return Health(status="ok", version=version("seshat"), revision=store.content().revision)

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems(503)},
    )
    def prometheus() -> PlainTextResponse:
        """Give figures in Prometheus' text format."""
        return PlainTextResponse(metrics.text(), media_type=metrics.media_type)

    return app


def _begun(lines: Iterator[str]) -> Iterator[str]:
    first = next(lines, None)

    def rest() -> Iterator[str]:
        if first is not None:
            yield first
            yield from lines

    return rest()


async def _body(request: Request, most: int) -> bytes:
    """Read a body of lines, as long as it is not too large.

    Raises:
        ServiceError: If it is, or is of another kind.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != NDJSON:
        raise ServiceError(415, "wrong-type", f"the body is `{kind or 'of no told type'}`", f"send `{NDJSON}`")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ServiceError(415, "wrong-type", "the body is compressed", "send plain lines")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            raise ServiceError(413, "too-large", f"the body is larger than {most} bytes", "deliver in several parts")
    return bytes(content)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem} for status in statuses}


def _refusals(app: FastAPI) -> None:
    """Answer every refusal as a problem."""

    def answer(status: int, problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse(problem.model_dump(), status_code=status, headers=headers)

    @app.exception_handler(ServiceError)
    async def refuse(_: Request, error: ServiceError) -> Response:
        return answer(error.status, error.problem, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)

    @app.exception_handler(KnowledgeBaseError)
    async def unavailable(_: Request, error: KnowledgeBaseError) -> Response:
        # What the database says stays here: it may name hosts and users.
        problem = Problem(error=error.code, message="the knowledge base is not available", hint="try again later")
        return answer(503, problem, {"Retry-After": "10"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return answer(422, Problem(error="unreadable-input", message=f"`{where}`: {first['msg'].lower()}"))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        problem = Problem(error="refused", message=str(error.detail).lower())
        return answer(error.status_code, problem, dict(error.headers or {}))


def _count(app: FastAPI, metrics: ServiceMetrics) -> None:
    @app.middleware("http")
    async def count(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        response = await call(request)
        route = request.scope.get("route")
        metrics.answered(
            getattr(route, "path", "other"), request.method, response.status_code, time.perf_counter() - started
        )
        return response
