"""HTTP service for a knowledge base.

It uses plain HTTP; put a proxy in front of it for TLS. Tokens are sent only in the ``Authorization`` header and are
never logged; see :mod:`knowledge.service.access` for the content of the log.
"""

# No postponed evaluation of annotations: FastAPI resolves those of nested functions, which refer to local names.
import threading
from collections.abc import Generator
from contextlib import closing
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
from starlette.requests import ClientDisconnect

from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError
from knowledge.exchange.admission import Admission, IndicatorCatalogue
from knowledge.exchange.files import read_observations, write_observations
from knowledge.service.access import AccessLog, access_record
from knowledge.service.messages import BlockEntry, DeliveryReceipt
from knowledge.service.metrics import Campaigns, ServiceMetrics
from knowledge.service.streams import StreamedLines, StreamQuota
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tokens import Token, permits

NDJSON = "application/x-ndjson"
LARGEST_BODY_BYTES = 16 * 1024 * 1024
_NAME: dict[str, Any] = {"max_length": 128, "pattern": "^[^\\x00]*$"}
"""Constraints of a name: databases do not store null characters."""
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "5"}}
"""Headers of an error response by status."""


class ProblemDetails(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="Stable name of the error.")
    message: str = Field(description="One sentence.")
    hint: str = Field(default="", description="What to do next.")


class Health(BaseModel):
    """State of the service."""

    status: str
    version: str
    revision: str


class ServiceError(Exception):
    """Raised to refuse a request with a status."""

    def __init__(self, status: int, error: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.problem = ProblemDetails(error=error, message=message, hint=hint)


def create_app(
    store: SqlKnowledgeBase,
    catalogue: IndicatorCatalogue,
    *,
    most_bytes: int = LARGEST_BODY_BYTES,
    campaigns: Campaigns = tuple,
) -> FastAPI:
    """Return the service of a knowledge base, which the caller closes after the service has ended.

    ``most_bytes`` is the largest body of a request, and ``campaigns`` returns the campaigns that its metrics show.
    """
    metrics = ServiceMetrics(store, campaigns)
    # One delivery at a time: each checks what is stored before it writes.
    admission_lock = threading.Lock()
    streams = StreamQuota()

    app = FastAPI(
        title="Seshat knowledge base",
        description="Observations of performance indicators, delivered by runners and readable with any token.",
        version=version("seshat-advisor"),
        # The interactive pages load scripts from other hosts; the description itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    bearer = HTTPBearer(auto_error=False, description="`advisor knowledge token create` creates a token.")

    def token(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Token:
        access = access_record(request.scope)
        caller = store.find_token(credentials.credentials) if credentials is not None else None
        if caller is None:
            access.reason = _missing_token_reason(request, credentials)
            raise ServiceError(401, "no-token", "the request has no valid token", "send a bearer token")
        access.token, access.source = caller.id, caller.source
        if not caller.valid(datetime.now(UTC)):
            access.reason = "revoked" if caller.revoked_at else f"expired at {caller.expires_at}"
            state = "was revoked" if caller.revoked_at else access.reason
            raise ServiceError(401, "token-ended", f"token `{caller.id}` {state}", "ask the operator for a new token")
        return caller

    def runner(request: Request, caller: Annotated[Token, Depends(token)]) -> Token:
        if not permits(caller.role, "runner"):
            access_record(request.scope).reason = f"role `{caller.role}`"
            raise ServiceError(
                403, "not-allowed", f"token `{caller.id}` may only read", "use a token with the role `runner`"
            )
        return caller

    _install_error_handlers(app)
    app.add_middleware(AccessLog, metrics=metrics)

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
    async def deliver(request: Request, caller: Annotated[Token, Depends(runner)]) -> DeliveryReceipt:
        """Add all observations of a delivery, or none. Observations that are already stored are skipped."""
        content = await _body(request, most_bytes)

        def store_delivery() -> DeliveryReceipt:
            with admission_lock:
                lines = lines_of(content.decode("utf-8"))
                delivered = tuple(read_observations(lines, where="line"))
                admission = Admission(store, catalogue, source=caller.source).add(delivered)
            counts = {"added": admission.added, "known": admission.known, "quarantined": len(admission.quarantined)}
            metrics.received(counts, caller.source)
            access_record(request.scope).counts = counts
            return DeliveryReceipt.of(admission)

        try:
            return await run_in_threadpool(store_delivery)
        except UnicodeDecodeError as error:
            raise ServiceError(422, "unreadable-input", f"the body is not UTF-8: {error}") from None
        except InputError as error:
            raise ServiceError(422, error.code, error.message, "nothing of the delivery was stored") from None

    any_token = [Depends(token)]

    @app.get(
        "/observations",
        response_class=StreamingResponse,
        responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}, **_problems(401, 422, 429, 503)},
    )
    def observations(
        caller: Annotated[Token, Depends(token)],
        block: Annotated[str | None, Query(**_NAME, description="Only observations of this block.")] = None,
        indicator: Annotated[str | None, Query(**_NAME, description="Only observations of this indicator.")] = None,
    ) -> StreamingResponse:
        """Return observations as an observation file."""
        if not streams.reserve(caller.id):
            raise ServiceError(429, "too-many-streams", "too many streamed responses are open", "try again later")
        lines = _lines(store, block, indicator)
        try:
            # Read the first line before the response starts, so that a failure can still be reported by a status.
            first = next(lines, None)
        except BaseException:
            streams.release(caller.id)
            raise
        return StreamedLines(first, lines, media_type=NDJSON, on_close=lambda: streams.release(caller.id))

    @app.get("/blocks", dependencies=any_token, responses=_problems(401, 503))
    def blocks() -> list[BlockEntry]:
        """List the blocks, with digests to compare two knowledge bases."""
        return [
            BlockEntry(name=b.name, observations=b.observations, digest=b.digest, source=b.source)
            for b in store.blocks()
        ]

    @app.get("/stacks", dependencies=any_token, responses=_problems(401, 422, 503))
    def stacks(
        package: Annotated[str | None, Query(**_NAME, description="Only stacks with this package.")] = None,
    ) -> list[dict[str, Any]]:
        """List the measured stacks."""
        return [
            {"id": stack.identity, **stack.record()}
            for stack in store.stacks()
            if package is None or stack.version_of(package) is not None
        ]

    @app.get("/hardware", dependencies=any_token, responses=_problems(401, 503))
    def hardware() -> list[dict[str, Any]]:
        """List the machines with measurements."""
        return [{"id": machine.identity, **machine.record()} for machine in store.machines()]

    @app.get("/docs", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    def root() -> dict[str, str]:
        """Return the name of the service and the address of its description."""
        return {"service": app.title, "version": app.version, "description": "/openapi.json", "health": "/health"}

    @app.get("/health", responses=_problems(503))
    def health() -> Health:
        """Report whether the knowledge base can be read."""
        return Health(status="ok", version=version("seshat-advisor"), revision=store.revision())

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems(503)},
    )
    def prometheus() -> PlainTextResponse:
        """Return metrics in Prometheus' text format."""
        return PlainTextResponse(metrics.text(), media_type=metrics.media_type)

    return app


def _lines(store: SqlKnowledgeBase, block: str | None, indicator: str | None) -> Generator[str, None, None]:
    """Yield the lines of an observation file; closing the generator ends the database query."""
    with closing(store.observations(block=block, indicator=indicator)) as observations:
        for line in write_observations(observations):
            yield f"{line}\n"


def _missing_token_reason(request: Request, credentials: HTTPAuthorizationCredentials | None) -> str:
    if credentials is not None:
        return "unknown token"
    return f"no {'bearer token in the ' if 'authorization' in request.headers else ''}Authorization header"


async def _body(request: Request, most_bytes: int) -> bytes:
    """Return the body of a delivery; refuse one that is too large, compressed or of another type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != NDJSON:
        actual = f"type `{kind}`" if kind else "no type"
        raise ServiceError(415, "wrong-type", f"the body has {actual}", f"send `{NDJSON}`")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ServiceError(415, "wrong-type", "the body is compressed", "send plain lines")
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > most_bytes:
                raise ServiceError(
                    413, "too-large", f"the body is larger than {most_bytes} bytes", "deliver it in several parts"
                )
    except ClientDisconnect:
        # No client reads this response; the error is for the log.
        raise ServiceError(400, "interrupted", "the connection ended before the body did") from None
    return bytes(content)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemDetails} for status in statuses}


def _install_error_handlers(app: FastAPI) -> None:
    """Answer every error with a JSON problem."""

    def answer(status: int, problem: ProblemDetails, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse(problem.model_dump(), status_code=status, headers=headers)

    @app.exception_handler(ServiceError)
    async def refuse(request: Request, error: ServiceError) -> Response:
        access_record(request.scope).error = error.problem.error
        return answer(error.status, error.problem, _HEADERS.get(error.status))

    @app.exception_handler(KnowledgeBaseError)
    async def unavailable(request: Request, error: KnowledgeBaseError) -> Response:
        access = access_record(request.scope)
        # The message of the database is only logged: it can contain names of hosts and users.
        access.error, access.reason = error.code, error.message
        problem = ProblemDetails(
            error=error.code, message="the knowledge base is not available", hint="try again later"
        )
        return answer(503, problem, {"Retry-After": "10"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        access_record(request.scope).error = "unreadable-input"
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return answer(422, ProblemDetails(error="unreadable-input", message=f"`{where}`: {first['msg'].lower()}"))

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        problem = ProblemDetails(error="refused", message=str(error.detail).lower())
        return answer(error.status_code, problem, dict(error.headers or {}))
