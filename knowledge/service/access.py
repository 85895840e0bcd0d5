"""The service's access and audit log: one line of JSON for each request, through the standard ``logging``.

A line says who sent what, and what became of it. It names a token by its id. It holds nothing that a client wrote: no
header, no body, no address beyond the route's template. So it holds no secret, and nobody can forge a line.
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
_MOST = 300
"""Longest text in a line, in characters."""


@dataclass(slots=True)
class AccessRecord:
    """What is known of a request while it is answered.

    Attributes:
        token: Id of its token; none where it has none of ours.
        source: Source that the token was made for.
        error: Name of the error; none where it succeeded.
        reason: Why it was refused, in the service's words.
        counts: Observations of a delivery, by what became of them.
    """

    token: str | None = None
    source: str | None = None
    error: str | None = None
    reason: str | None = None
    counts: dict[str, int] | None = None


def access_record(scope: Scope) -> AccessRecord:
    """Return what is to be logged of a request."""
    found: AccessRecord = scope.setdefault(_KEY, AccessRecord())
    return found


class AccessLog:
    """Writes the line, and counts the request, once its answer has been sent or has failed."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        access = access_record(scope)
        begun, started = datetime.now(UTC), time.perf_counter()
        # What raises is answered with 500, by those around this.
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
                "time": begun.isoformat(timespec="milliseconds"),
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
    shown = {k: v[:_MOST] if isinstance(v, str) else v for k, v in record.items() if v is not None}
    return json.dumps(shown)
