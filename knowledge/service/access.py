"""Access and audit log of the service: one line of JSON per request, through the standard ``logging``.

A line names the token by its id, the source, the route and the result. It contains no text from the client: no header,
no body, and of the address only the template of the route. So it contains no secret, and clients cannot forge lines.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knowledge.service.metrics import ServiceMetrics

LOGGER = logging.getLogger(__name__)
METHODS = ("GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
_KEY = "seshat.access"
_LONGEST_TEXT = 300
"""Longest text in a line, in characters."""


@dataclass(slots=True)
class AccessRecord:
    """Log record of a request; filled while the request is processed.

    Attributes:
        token: Id of the token; ``None`` if the token is missing or unknown.
        source: Source that the token belongs to.
        error: Name of the error; ``None`` if the request succeeded.
        reason: Why the request was refused, in the service's words.
        counts: Number of delivered observations by result.
    """

    token: str | None = None
    source: str | None = None
    error: str | None = None
    reason: str | None = None
    counts: dict[str, int] | None = None


def access_record(scope: Scope) -> AccessRecord:
    """Return the log record of a request."""
    record: AccessRecord = scope.setdefault(_KEY, AccessRecord())
    return record


PEER = "seshat.peer"
"""Key of the address that a connection comes from, in a scope: behind a proxy, the client has another one."""


def with_peer(app: ASGIApp) -> ASGIApp:
    """Return an application that records the address of a connection before the client's takes its place."""

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = (scope.get("client") or ("",))[0]
        await app(scope, receive, send)

    return record


class AccessLog:
    """Middleware that logs and counts a request after its response was sent or failed."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        access = access_record(scope)
        started_at, started = datetime.now(UTC), time.perf_counter()
        # The outer middleware answers an exception with status 500.
        status, complete = 500, False

        async def watch(message: Message) -> None:
            nonlocal status, complete
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive, watch)
        except BaseException as error:
            access.error = type(error).__name__
            raise
        finally:
            seconds = time.perf_counter() - started
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = str(getattr(scope.get("route"), "path", "other"))
            self._metrics.answered(route, method, status, seconds)
            record = {
                "time": started_at.isoformat(timespec="milliseconds"),
                "client": (scope.get("client") or ("unknown",))[0],
                "token": access.token,
                "source": access.source,
                "method": method,
                "route": route,
                "status": status,
                "seconds": round(seconds, 6),
                "complete": complete,
                "error": access.error,
                "reason": access.reason,
                **(access.counts or {}),
            }
            LOGGER.log(_level(status), "%s", _line(record))


def _level(status: int) -> int:
    if status >= 500:
        return logging.ERROR
    return logging.WARNING if status in (401, 403) else logging.INFO


def _line(record: dict[str, Any]) -> str:
    # Escaped to ASCII: no character of a client's address or a source's name can end the line.
    fields = {k: v[:_LONGEST_TEXT] if isinstance(v, str) else v for k, v in record.items() if v is not None}
    return json.dumps(fields)
