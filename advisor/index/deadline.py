"""A limit on the total time of an answer: who sends a byte at a time never exceeds the time-out of one wait."""

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

    Neither an ``OSError`` nor an error of the HTTP library, which would try again.
    """


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the time of all that this thread reads from connections of :class:`TimedResponse`.

    Args:
        seconds: From now on.
    """
    token = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


def seconds_left() -> float:
    """Return how much time there still is.

    Raises:
        DeadlineError: If there is none.
    """
    left = _end.get() - time.monotonic()
    if left <= 0:
        raise DeadlineError
    return left


class _TimedReader(io.RawIOBase):
    """Reads a connection until the deadline."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw = raw
        self._connection = connection

    def readable(self) -> bool:
        """Return true, which the buffer asks."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, waiting for the time-out of one wait or until the deadline, whichever is earlier.

        Raises:
            DeadlineError: If the deadline is past.
            TimeoutError: If nothing came.
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
        """Close what is read."""
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer whose headers and body are read until the deadline."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock))
