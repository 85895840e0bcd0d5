"""The service: a knowledge base over HTTP.

It speaks plain HTTP: TLS is a proxy's. Tokens travel in the ``Authorization`` header alone, and are in no log; see
:mod:`knowledge.service.access` for what is.
"""

# No postponed annotations: FastAPI reads those of nested functions, which name what is around them.
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

from knowledge.admission.admit import Admission
from knowledge.admission.plausibility import IndicatorCatalogue
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from knowledge.exchange.files import read_observations, write_observations
from knowledge.service.access import AccessLog, access_record
from knowledge.service.metrics import ServiceMetrics
from knowledge.service.streams import StreamedLines, StreamQuota
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tokens import Token

NDJSON = "application/x-ndjson"
MOST_BYTES = 16 * 1024 * 1024
_NAME: dict[str, Any] = {"max_length": 128, "pattern": "^[^\\x00]*$"}
"""What a name may be: databases take no zero byte."""
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "5"}}
"""What belongs to a refusal of a status."""


class ProblemDetails(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="Stable name of the error.")
    message: str = Field(description="One sentence.")
    hint: str = Field(default="", description="What to do next.")


class QuarantineEntry(BaseModel):
    """An observation that was not let in."""

    id: str
    reason: str


class DeliveryReceipt(BaseModel):
    """What became of a delivery."""

    added: int = Field(description="New, and in the knowledge base.")
    known: int = Field(description="There already: a delivery may be repeated.")
    quarantined: list[QuarantineEntry] = Field(description="Kept apart, until the operator decides.")


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
        self.problem = ProblemDetails(error=error, message=message, hint=hint)


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
    streams = StreamQuota()

    app = FastAPI(
        title="Seshat knowledge base",
        description="Observations of performance indicators: delivered by runners, read by everybody with a token.",
        version=version("seshat-advisor"),
        # The pages would load scripts from elsewhere; the document itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    bearer = HTTPBearer(auto_error=False, description="`advisor knowledge token create` makes one.")

    def token(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Token:
        access = access_record(request.scope)
        known = store.find_token(given.credentials) if given is not None else None
        if known is None:
            access.reason = _why_no_token(request, given)
            raise ServiceError(401, "no-token", "there is no valid token with the request", "send a bearer token")
        access.token, access.source = known.id, known.source
        if not known.valid(datetime.now(UTC)):
            access.reason = "revoked" if known.revoked_at else f"expired at {known.expires_at}"
            ended = "was revoked" if known.revoked_at else access.reason
            raise ServiceError(401, "token-ended", f"token `{known.id}` {ended}", "ask the operator for another one")
        return known

    def runner(request: Request, known: Annotated[Token, Depends(token)]) -> Token:
        if known.role != "runner":
            access_record(request.scope).reason = f"role `{known.role}`"
            raise ServiceError(
                403, "not-allowed", f"token `{known.id}` may only read", "use a token with the role `runner`"
            )
        return known

    _refusals(app)
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
    async def deliver(request: Request, known: Annotated[Token, Depends(runner)]) -> DeliveryReceipt:
        """Add observations: all of a delivery, or nothing. What is known already is not counted twice."""
        content = await _body(request, most_bytes)

        def take_in() -> DeliveryReceipt:
            with admitting:
                lines = lines_of(content.decode("utf-8"))
                found = tuple(read_observations(lines, where="line"))
                done = Admission(store, catalogue, source=known.source).add(found)
            counts = {"added": done.added, "known": done.known, "quarantined": len(done.quarantined)}
            metrics.received(counts, known.source)
            access_record(request.scope).counts = counts
            apart = [QuarantineEntry(id=q.observation.identity, reason=q.reason) for q in done.quarantined]
            return DeliveryReceipt(added=done.added, known=done.known, quarantined=apart)

        try:
            return await run_in_threadpool(take_in)
        except UnicodeDecodeError as error:
            raise ServiceError(422, "unreadable-input", f"the body is no UTF-8: {error}") from None
        except InputError as error:
            raise ServiceError(422, error.code, error.message, "nothing of the delivery was stored") from None

    reading = [Depends(token)]

    @app.get(
        "/observations",
        response_class=StreamingResponse,
        responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}, **_problems(401, 422, 429, 503)},
    )
    def observations(
        known: Annotated[Token, Depends(token)],
        block: Annotated[str | None, Query(**_NAME, description="Only those of one block.")] = None,
        indicator: Annotated[str | None, Query(**_NAME, description="Only those of one indicator.")] = None,
    ) -> StreamingResponse:
        """Read observations, as an observation file."""
        if not streams.reserve(known.id):
            raise ServiceError(429, "too-many-streams", "too many answers are being read", "try again later")
        lines = _lines(store, block, indicator)
        try:
            # The first is asked for while a failure can still be answered.
            first = next(lines, None)
        except BaseException:
            streams.release(known.id)
            raise
        return StreamedLines(first, lines, media_type=NDJSON, ended=lambda: streams.release(known.id))

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

    @app.get("/", include_in_schema=False)
    def root() -> dict[str, str]:
        """Say what this is, and where its description is."""
        return {"service": app.title, "version": app.version, "description": "/openapi.json", "health": "/health"}

    @app.get("/health", responses=_problems(503))
    def health() -> Health:
        """Say whether the knowledge base can be read."""
        return Health(status="ok", version=version("seshat-advisor"), revision=store.revision())

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems(503)},
    )
    def prometheus() -> PlainTextResponse:
        """Give figures in Prometheus' text format."""
        return PlainTextResponse(metrics.text(), media_type=metrics.media_type)

    return app


def _lines(store: SqlKnowledgeBase, block: str | None, indicator: str | None) -> Generator[str, None, None]:
    """Yield the lines of an observation file; closing this ends the reading of the database."""
    with closing(store.observations(block=block, indicator=indicator)) as found:
        for line in write_observations(found):
            yield f"{line}\n"


def _why_no_token(request: Request, given: HTTPAuthorizationCredentials | None) -> str:
    if given is not None:
        return "unknown token"
    return f"no {'bearer token in the ' if 'authorization' in request.headers else ''}Authorization header"


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
    try:
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise ServiceError(
                    413, "too-large", f"the body is larger than {most} bytes", "deliver in several parts"
                )
    except ClientDisconnect:
        # Nobody reads the answer; the log does.
        raise ServiceError(400, "interrupted", "the connection ended before the body did") from None
    return bytes(content)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemDetails} for status in statuses}


def _refusals(app: FastAPI) -> None:
    """Answer every refusal as a problem."""

    def answer(status: int, problem: ProblemDetails, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse(problem.model_dump(), status_code=status, headers=headers)

    @app.exception_handler(ServiceError)
    async def refuse(request: Request, error: ServiceError) -> Response:
        access_record(request.scope).error = error.problem.error
        return answer(error.status, error.problem, _HEADERS.get(error.status))

    @app.exception_handler(KnowledgeBaseError)
    async def unavailable(request: Request, error: KnowledgeBaseError) -> Response:
        access = access_record(request.scope)
        # What the database says stays in the log: it may name hosts and users.
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
