"""A limit on the total time of an answer, because a server that sends single bytes never exceeds a read timeout."""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

_end: ContextVar[float] = ContextVar("end", default=math.inf)


class DeadlineError(Exception):
    """Raised when an answer is not complete in time.

    It is neither an ``OSError`` nor an error of the HTTP library, so that the request is not retried.
    """


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the total time of reading answers (:class:`TimedResponse`) in this thread.

    Within another deadline, the earlier one counts.

    Args:
        seconds: The limit, from now.
    """
    token = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(token)


def seconds_left() -> float:
    """Return the seconds until the deadline.

    Raises:
        DeadlineError: If the deadline is over.
    """
    seconds = _end.get() - time.monotonic()
    if seconds <= 0:
        raise DeadlineError
    return seconds


class _TimedReader(io.RawIOBase):
    """Reads a connection until the deadline."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw = raw
        self._connection = connection

    def readable(self) -> bool:
        """Return true, as the buffer requires."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read available bytes; wait until the read timeout or the deadline, whichever is earlier.

        Raises:
            DeadlineError: If the deadline is over.
            TimeoutError: If nothing was received.
        """
        timeout = self._connection.gettimeout()
        self._connection.settimeout(min(seconds_left(), math.inf if timeout is None else timeout))
        try:
            return cast("int | None", self._raw.readinto(buffer))
        except TimeoutError:
            seconds_left()
            raise
        finally:
            self._connection.settimeout(timeout)

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer whose headers and body are read until the deadline."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock))
