"""HTTP requests to indexes: connections, retries, timeouts and errors."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from advisor.domain.progress import progress
from advisor.index.configuration import Credentials, IndexConfiguration, origin_of, without_credentials
from advisor.index.http.deadline import DeadlineError, deadline, seconds_left
from advisor.index.limits import (
    ANSWER_TIMEOUTS,
    FILE_BYTES,
    FILE_TIMEOUTS,
    KIB,
    MIB,
    PAGE_BYTES,
    REDIRECTS,
    TooLargeError,
    bytes_text,
)
from knowledge.domain.errors import UnavailableError

if TYPE_CHECKING:
    import ssl

    import requests

_T = TypeVar("_T")
RETRIES = 3
_RETRIED_STATUSES = (429, 500, 502, 503, 504)
_ABSENT_STATUSES = (404, 410)
_CHUNK_BYTES = 64 * KIB
_IN_MEMORY_BYTES = 16 * MIB


@lru_cache(maxsize=4)
def _trust_in(certificates: str) -> ssl.SSLContext:
    """Return the trust in the authorities of a file: several transports of a process share it."""
    import ssl

    return ssl.create_default_context(cafile=certificates)


class IndexUnreachableError(UnavailableError):
    """Raised when an index cannot be reached or answers with an error."""

    code = "index-unreachable"


class GoneError(IndexUnreachableError):
    """Raised when a file on an index page does not exist."""

    code = "index-gone"


class RangeError(IndexUnreachableError):
    """Raised when a server does not support range requests."""

    code = "index-ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexResponse:
    """An answer of an index.

    Attributes:
        status: HTTP status; 404 also stands for 410.
        body: The body; empty unless the status is 200.
        content_type: The header ``Content-Type``.
        etag: The header ``ETag``.
        cache_control: The header ``Cache-Control``.
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

    Attributes:
        request_counts: Number of requests by kind (``GET``, ``HEAD``, ``POST``, ``ranged``).
    """

    def __init__(self, configuration: IndexConfiguration, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._lock = threading.Lock()
        self.request_counts: Counter[str] = Counter()

    @cached_property
    def _session(self) -> requests.Session:
        """The session of all threads: a connection is used by whichever thread needs one next."""
        from advisor.index.http.session import make_session

        return make_session(self._trust, self._authorise)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The trusted certificate authorities, loaded once for all threads: loading takes longer than a request."""
        import ssl

        from requests.utils import DEFAULT_CA_BUNDLE_PATH

        certificates = self._configuration.certificate or os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
        try:
            return _trust_in(str(certificates))
        except (OSError, ssl.SSLError) as error:
            raise IndexUnreachableError(
                f"the trusted certificates in `{certificates}` cannot be read: {error}",
                hint="set a file of certificates in PEM format in the configuration of pip or uv",
            ) from None

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the credentials of the request's scheme, host and port."""
        from requests.auth import HTTPBasicAuth

        credentials = self._credentials.get(origin_of(request.url or ""))
        return HTTPBasicAuth(*credentials)(request) if credentials else request

    def get(self, url: str, *, accept: str, etag: str | None = None, limit: int = PAGE_BYTES) -> IndexResponse:
        """Get an address. An absent resource (404, 410) and an unmodified one (304) are no errors.

        Args:
            url: The address.
            accept: Accepted media types.
            etag: ``ETag`` of the cached answer.
            limit: Maximum size of the body in bytes.

        Raises:
            IndexUnreachableError: If there is no answer, or an error.
            TooLargeError: If the body exceeds the limit.
        """
        headers = {"Accept": accept, "Accept-Encoding": "gzip"} | ({"If-None-Match": etag} if etag else {})
        self.request_counts["GET"] += 1
        return self._request("GET", url, headers, self._response_reader(url, limit))

    def post(self, url: str, body: bytes, *, limit: int = PAGE_BYTES) -> IndexResponse:
        """Send a query as JSON. Repeating it must have no effect, because it is sent again after transient errors.

        Args:
            url: The address.
            body: The query.
            limit: Maximum size of the answer in bytes.

        Raises:
            IndexUnreachableError: If there is no answer, or an error.
            TooLargeError: If the answer exceeds the limit.
        """
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "Content-Type": "application/json"}
        self.request_counts["POST"] += 1
        return self._request("POST", url, headers, self._response_reader(url, limit), body=body)

    def _response_reader(self, url: str, limit: int) -> Callable[[requests.Response], IndexResponse]:
        """Return a function that reads an answer up to a limit."""

        def take(response: requests.Response) -> IndexResponse:
            self._check(url, response)
            return IndexResponse(
                status=404 if response.status_code in _ABSENT_STATUSES else response.status_code,
                body=b"".join(self._body(url, response, limit)) if response.status_code == 200 else b"",
                content_type=response.headers.get("Content-Type", ""),
                etag=response.headers.get("ETag", ""),
                cache_control=response.headers.get("Cache-Control", ""),
                url=without_credentials(response.url or url),
            )

        return take

    @contextmanager
    def download(self, url: str) -> Iterator[tuple[IO[bytes], str]]:
        """Download a whole file; a large one to a temporary file.

        Yields:
            The file and its SHA-256.

        Raises:
            IndexUnreachableError: If there is no answer, or an error, including 404.
            TooLargeError: If the file is larger than :data:`FILE_BYTES`.
        """
        self.request_counts["GET"] += 1
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:

            def take(response: requests.Response) -> str:
                self._check(url, response)
                if response.status_code != 200:
                    raise (
                        self._gone_error(url)
                        if response.status_code in _ABSENT_STATUSES
                        else self._status_error(url, response)
                    )
                digest = hashlib.sha256()
                # A previous attempt may have written a part.
                file.seek(0)
                file.truncate()
                for chunk in self._body(url, response, FILE_BYTES, decompressed=False):
                    digest.update(chunk)
                    try:
                        file.write(chunk)
                    except OSError as error:
                        raise self._error(url, f"the temporary file cannot be written: {error.strerror}") from None
                return digest.hexdigest()

            checksum = self._request("GET", url, headers, take, timeouts=FILE_TIMEOUTS)
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
            IndexUnreachableError: If there is no answer.
        """
        self.request_counts["ranged"] += 1
        byte_range = f"bytes={first}" if first < 0 else f"bytes={first}-{'' if last is None else last}"

        def take(response: requests.Response) -> Part:
            if response.status_code in _ABSENT_STATUSES:
                raise self._gone_error(url)
            if response.status_code in _RETRIED_STATUSES:
                raise self._status_error(url, response)
            match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", response.headers.get("Content-Range", ""))
            start, end, size = map(int, match.groups()) if match else (0, -1, 0)
            expected = (max(0, size + first) if first < 0 else first, size - 1 if last is None else min(last, size - 1))
            if response.status_code != 206 or (start, end) != expected or end < start:
                raise RangeError(
                    f"`{without_credentials(url)}` cannot be read in parts: its server does not support range requests"
                )
            content = b"".join(self._body(url, response, end - start + 1, decompressed=False))
            if len(content) != end - start + 1:
                raise RangeError(
                    f"`{without_credentials(url)}` cannot be read in parts: its server does not support range requests"
                )
            etag = response.headers.get("ETag", "")
            return Part(content=content, start=start, size=size, etag="" if etag.startswith("W/") else etag)

        return self._request("GET", url, {"Range": byte_range, "Accept-Encoding": "identity"}, take)

    def length(self, url: str) -> int | None:
        """Return the size of a file in bytes; none if the server does not send it, or the file does not exist."""
        self.request_counts["HEAD"] += 1

        def take(response: requests.Response) -> int | None:
            self._check(url, response)
            length = response.headers.get("Content-Length", "")
            return int(length) if response.status_code == 200 and re.fullmatch(r"\d{1,18}", length) else None

        return self._request("HEAD", url, {"Accept-Encoding": "identity"}, take)

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        take: Callable[[requests.Response], _T],
        *,
        timeouts: int = ANSWER_TIMEOUTS,
        body: bytes | None = None,
    ) -> _T:
        """Send a request, retry after transient errors, and return the result of ``take`` for the answer."""
        import requests

        from advisor.index.http.failures import (
            CERTIFICATE_HINT,
            cause_of,
            is_certificate_failure,
            is_transient,
            wait_seconds,
        )

        seconds = timeouts * self._configuration.timeout_seconds
        parts = urlsplit(url)
        progress("reading %s from %s", unquote(parts.path.rstrip("/").rsplit("/", 1)[-1]), parts.hostname)
        tries = 0
        try:
            with deadline(seconds):
                while True:
                    tries += 1
                    retry_after = ""
                    try:
                        with closing(self._follow(method, url, headers, body)) as response:
                            if response.status_code not in _RETRIED_STATUSES or tries > RETRIES:
                                return take(response)
                            retry_after = response.headers.get("Retry-After", "")
                    except (requests.RequestException, UnicodeError, ValueError) as error:
                        if not is_transient(error):
                            hint = CERTIFICATE_HINT if is_certificate_failure(error) else ""
                            raise self._error(url, cause_of(error), hint=hint) from None
                        if tries > RETRIES:
                            raise self._error(url, f"{cause_of(error)}, {tries} attempts") from None
                    time.sleep(min(wait_seconds(retry_after, tries), seconds_left()))
        except DeadlineError:
            raise self._error(
                url,
                f"the answer was not complete after {seconds:g} seconds",
                hint="increase the timeout (`UV_HTTP_TIMEOUT` or `PIP_DEFAULT_TIMEOUT`), or use a faster index",
            ) from None

    def _follow(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> requests.Response:
        """Return an answer after redirects; its body is not read yet."""
        address = url
        for _ in range(REDIRECTS + 1):
            timeout = min(self._configuration.timeout_seconds, seconds_left())
            with self._lock:
                session = self._session
            response = session.request(method, address, headers=headers, data=body, timeout=timeout, stream=True)
            if not response.is_redirect:
                return response
            response.close()
            location = response.headers["Location"].encode("latin-1", "replace").decode("utf-8", "replace")
            address = self._redirect_address(url, address, location)
        raise self._error(url, f"more than {REDIRECTS} redirects")

    def _redirect_address(self, url: str, address: str, location: str) -> str:
        try:
            target = urljoin(address, location)
            if urlsplit(target).scheme in ("http", "https"):
                return target
        except ValueError:
            pass
        raise self._error(url, f"it redirects to `{without_credentials(location)[:160]}`, which is not an HTTP address")

    def _check(self, url: str, response: requests.Response) -> None:
        if response.status_code >= 400 and response.status_code not in _ABSENT_STATUSES:
            raise self._status_error(url, response)

    def _body(self, url: str, response: requests.Response, limit: int, *, decompressed: bool = True) -> Iterator[bytes]:
        """Yield the body of an answer in chunks."""
        from advisor.index.http.session import GZIP_NAMES, decompress

        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        # The library would decompress, but not check that the stream is complete.
        response.raw.headers.pop("Content-Encoding", None)
        chunks: Iterator[bytes] = response.iter_content(_CHUNK_BYTES)
        # Some servers declare the compression of a `.tar.gz` as that of the answer; the file must stay compressed.
        if decompressed and encoding in GZIP_NAMES:
            chunks = decompress(chunks)
        elif decompressed and encoding not in ("", "identity"):
            raise self._error(url, f"the answer is compressed as `{encoding[:40]}`, which was not requested")
        length = 0
        for chunk in chunks:
            length += len(chunk)
            if length > limit:
                raise TooLargeError(
                    f"the answer of `{without_credentials(url)}` exceeds {bytes_text(limit)}",
                    hint="larger answers are not supported: check the index address",
                )
            yield chunk

    def _gone_error(self, url: str) -> GoneError:
        return GoneError(f"`{without_credentials(url)}` does not exist", hint="try again with `--refresh`")

    def _status_error(self, url: str, response: requests.Response) -> IndexUnreachableError:
        attempts = f" after {RETRIES + 1} attempts" if response.status_code in _RETRIED_STATUSES else ""
        return self._error(url, f"it answers {response.status_code}{attempts}")

    def _error(self, url: str, cause: str, *, hint: str = "") -> IndexUnreachableError:
        return IndexUnreachableError(
            f"the index could not be read at `{without_credentials(url)}`: {cause}",
            hint=hint or "check the address and the network, or use `--offline` to answer from the cache",
        )
