"""Decompression of answers, because the HTTP library accepts a compressed stream that ends too early."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import requests

GZIP_NAMES = ("gzip", "x-gzip")
"""Names of the only compression that is requested (RFC 9110, section 8.4.1.3)."""
_OUTPUT_BYTES = 2**20
"""Maximum size of a decompressed chunk."""


class TruncatedAnswerError(requests.ConnectionError):
    """Raised when a compressed answer ends before the end of its stream; a retry can succeed."""


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress an answer with one or more gzip members.

    Args:
        chunks: The compressed answer.

    Yields:
        The decompressed answer, in chunks of at most 1 MiB.

    Raises:
        TruncatedAnswerError: If the answer ends within a member.
        requests.exceptions.ContentDecodingError: If it is damaged, or not gzip.
    """
    member = _new_member()
    for chunk in chunks:
        pending = chunk
        while pending:
            if member.eof:
                member = _new_member()
            try:
                yield member.decompress(pending, _OUTPUT_BYTES)
            except zlib.error as error:
                raise requests.exceptions.ContentDecodingError(str(error)) from None
            pending = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise TruncatedAnswerError("the compressed answer is truncated")


def _new_member() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)
