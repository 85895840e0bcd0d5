"""Errors of requests to an index."""

from __future__ import annotations

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
    """Return the error that an address cannot be read.

    Args:
        url: The address.
        cause: Why, as part of a sentence.
        hint: What to do; by default to check the network.
    """
    return IndexUnreachableError(
        f"the index could not be read at `{without_credentials(url)}`: {cause}",
        hint=hint or "check the address and the network, or use `--offline` to answer from the cache",
    )
