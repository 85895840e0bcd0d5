"""Requests to indexes, and what their answers mean."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from advisor.index.configuration import Credentials, IndexConfiguration, without_credentials
from advisor.index.http.errors import (
    RETRIED_STATUSES,
    RETRIES,
    GoneError,
    IndexUnreachableError,
    RangeError,
    unreadable,
)
from advisor.index.limits import FILE_BYTES, FILE_TIMEOUTS, MIB, PAGE_BYTES

if TYPE_CHECKING:
    import requests

    from advisor.index.http.connection import Connection

_ABSENT_STATUSES = (404, 410)
_IN_MEMORY_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexResponse:
    """An answer of an index, with some of its headers.

    Attributes:
        status: HTTP status; 404 also stands for 410.
        body: The body; empty unless the status is 200.
        url: Address after redirects, without credentials.
    """

    status: int
    body: bytes
    content_type: str
    etag: str
    cache_control: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a file.

    Attributes:
        content: The bytes.
        start: Position of the first byte.
        size: Size of the whole file.
        etag: The strong ``ETag`` of the file; empty if the server sends none.
    """

    content: bytes
    start: int
    size: int
    etag: str


class Transport:
    """HTTP with one pool of connections, which all threads share.

    Each request raises an `IndexUnreachableError` if there is no answer, or an error, and a `TooLargeError` if the
    answer exceeds its limit.

    Attributes:
        request_counts: Number of requests by kind (``GET``, ``HEAD``, ``POST``, ``ranged``).
    """

    def __init__(self, configuration: IndexConfiguration, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._lock = threading.Lock()
        self._opened: Connection | None = None
        self.request_counts: Counter[str] = Counter()

    @property
    def _connection(self) -> Connection:
        from advisor.index.http.connection import Connection

        with self._lock:
            if self._opened is None:
                self._opened = Connection(self._configuration, self._credentials)
            return self._opened

    def get(self, url: str, *, accept: str, etag: str | None = None, limit: int = PAGE_BYTES) -> IndexResponse:
        """Get an address. An absent resource (404, 410) and one that still has the given ``ETag`` (304) are no errors.

        The body has at most ``limit`` bytes.
        """
        return self._send("GET", url, {"Accept": accept} | ({"If-None-Match": etag} if etag else {}), limit)

    def post(self, url: str, body: bytes) -> IndexResponse:
        """Send a query as JSON. Repeating it must have no effect, because it is sent again after transient errors."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        return self._send("POST", url, headers, PAGE_BYTES, body)

    def _send(
        self, method: str, url: str, headers: dict[str, str], limit: int, body: bytes | None = None
    ) -> IndexResponse:
        def take(response: requests.Response) -> IndexResponse:
            _check(url, response)
            return IndexResponse(
                status=404 if response.status_code in _ABSENT_STATUSES else response.status_code,
                body=b"".join(self._connection.body(url, response, limit)) if response.status_code == 200 else b"",
                content_type=response.headers.get("Content-Type", ""),
                etag=response.headers.get("ETag", ""),
                cache_control=response.headers.get("Cache-Control", ""),
                url=without_credentials(response.url or url),
            )

        self.request_counts[method] += 1
        return self._connection.request(method, url, headers | {"Accept-Encoding": "gzip"}, take, body=body)

    @contextmanager
    def download(self, url: str) -> Iterator[tuple[IO[bytes], str]]:
        """Download a whole file; a large one to a temporary file.

        Yields:
            The file and its SHA-256.

        Raises:
            IndexUnreachableError: If there is no answer, or an error, including 404.
        """
        self.request_counts["GET"] += 1
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:

            def take(response: requests.Response) -> str:
                if response.status_code != 200:
                    raise _failure(url, response)
                digest = hashlib.sha256()
                # A previous attempt may have written a part.
                file.seek(0)
                file.truncate()
                for chunk in self._connection.body(url, response, FILE_BYTES, decompressed=False):
                    digest.update(chunk)
                    try:
                        file.write(chunk)
                    except OSError as error:
                        raise unreadable(url, f"the temporary file cannot be written: {error.strerror}") from None
                return digest.hexdigest()

            checksum = self._connection.request("GET", url, headers, take, timeouts=FILE_TIMEOUTS)
            file.seek(0)
            yield file, checksum

    def part(self, url: str, first: int, last: int | None = None) -> Part:
        """Get a part of a file.

        Args:
            url: Address of the file.
            first: Position of the first byte; negative positions count from the end.
            last: Position of the last byte; by default the last byte of the file.

        Raises:
            GoneError: If the file does not exist.
            RangeError: If the server does not support range requests.
        """
        self.request_counts["ranged"] += 1
        byte_range = f"bytes={first}" if first < 0 else f"bytes={first}-{'' if last is None else last}"

        def take(response: requests.Response) -> Part:
            if response.status_code in (*_ABSENT_STATUSES, *RETRIED_STATUSES):
                raise _failure(url, response)
            match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", response.headers.get("Content-Range", ""))
            start, end, size = map(int, match.groups()) if match else (0, -1, 0)
            expected = (max(0, size + first) if first < 0 else first, size - 1 if last is None else min(last, size - 1))
            content = b""
            if response.status_code == 206 and (start, end) == expected and end >= start:
                content = b"".join(self._connection.body(url, response, end - start + 1, decompressed=False))
            if not content or len(content) != end - start + 1:
                raise RangeError(
                    f"`{without_credentials(url)}` cannot be read in parts: its server does not support range requests"
                )
            etag = response.headers.get("ETag", "")
            return Part(content=content, start=start, size=size, etag="" if etag.startswith("W/") else etag)

        return self._connection.request("GET", url, {"Range": byte_range, "Accept-Encoding": "identity"}, take)

    def length(self, url: str) -> int | None:
        """Return the size of a file in bytes; `None` if the server does not send it, or the file does not exist."""
        self.request_counts["HEAD"] += 1

        def take(response: requests.Response) -> int | None:
            _check(url, response)
            length = response.headers.get("Content-Length", "")
            return int(length) if response.status_code == 200 and re.fullmatch(r"\d{1,18}", length) else None

        return self._connection.request("HEAD", url, {"Accept-Encoding": "identity"}, take)


def _check(url: str, response: requests.Response) -> None:
    if response.status_code >= 400 and response.status_code not in _ABSENT_STATUSES:
        raise _failure(url, response)


def _failure(url: str, response: requests.Response) -> IndexUnreachableError:
    """Return the error that an answer stands for."""
    if response.status_code in _ABSENT_STATUSES:
        return GoneError(f"`{without_credentials(url)}` does not exist", hint="try again with `--refresh`")
    attempts = f" after {RETRIES + 1} attempts" if response.status_code in RETRIED_STATUSES else ""
    return unreadable(url, f"it answers {response.status_code}{attempts}")
