"""Errors of requests to an index, and the deadline of an answer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from advisor.index.configuration import without_credentials
from knowledge.domain.errors import UnavailableError

RETRIES = 3
RETRIED_STATUSES = (429, 500, 502, 503, 504)
"""Statuses after which a request is sent again."""


class IndexUnreachableError(UnavailableError):
    """Raised when an index cannot be reached or answers with an error."""

    code = "index-unreachable"


class GoneError(IndexUnreachableError):
    """Raised when a file on an index page does not exist."""

    code = "index-gone"


class RangeError(IndexUnreachableError):
    """Raised when a server does not support range requests."""

    code = "index-ranges"


def unreadable(url: str, cause: str, *, hint: str = "") -> IndexUnreachableError:
    """Return the error that an address cannot be read; the cause is part of a sentence."""
    return IndexUnreachableError(
        f"the index could not be read at `{without_credentials(url)}`: {cause}",
        hint=hint or "check the address and the network, or use `--offline` to answer from the cache",
    )


_end: ContextVar[float] = ContextVar("end", default=math.inf)
"""When the answers of this thread must be complete: a server that sends single bytes never exceeds a read timeout."""


class DeadlineError(Exception):
    """Raised when an answer is not complete in time.

    It is neither an ``OSError`` nor an error of the HTTP library, so that the request is not retried.
    """


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the total time of reading answers in this thread.

    Within another deadline, the earlier one counts.
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
