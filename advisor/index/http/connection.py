"""Sends requests through the HTTP library; imported for the first request, because the library loads slowly."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote, urljoin, urlsplit

import requests
from requests.auth import HTTPBasicAuth
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from advisor.domain.progress import progress
from advisor.index.configuration import Credentials, IndexConfiguration, origin_of, without_credentials
from advisor.index.http.deadline import DeadlineError, deadline, seconds_left
from advisor.index.http.errors import RETRIED_STATUSES, RETRIES, IndexUnreachableError, unreadable
from advisor.index.http.failures import CERTIFICATE_HINT, cause_of, is_certificate_failure, is_transient, wait_seconds
from advisor.index.http.session import GZIP_NAMES, decompress, make_session
from advisor.index.limits import ANSWER_TIMEOUTS, KIB, REDIRECTS, TooLargeError, bytes_text

_T = TypeVar("_T")
_CHUNK_BYTES = 64 * KIB


@lru_cache(maxsize=4)
def trust_in(certificates: str) -> ssl.SSLContext:
    """Return the trust in the authorities of a file: several connections of a process share it."""
    return ssl.create_default_context(cafile=certificates)


class Connection:
    """One pool of connections, which all threads share."""

    def __init__(self, configuration: IndexConfiguration, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._session = make_session(self._trust(), self._authorise)

    def _trust(self) -> ssl.SSLContext:
        """Return the trusted certificate authorities, loaded once: loading takes longer than a request."""
        certificates = self._configuration.certificate or os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
        try:
            return trust_in(str(certificates))
        except (OSError, ssl.SSLError) as error:
            raise IndexUnreachableError(
                f"the trusted certificates in `{certificates}` cannot be read: {error}",
                hint="set a file of certificates in PEM format in the configuration of pip or uv",
            ) from None

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the credentials of the request's scheme, host and port."""
        credentials = self._credentials.get(origin_of(request.url or ""))
        return HTTPBasicAuth(*credentials)(request) if credentials else request

    def request(
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
                            if response.status_code not in RETRIED_STATUSES or tries > RETRIES:
                                return take(response)
                            retry_after = response.headers.get("Retry-After", "")
                    except (requests.RequestException, UnicodeError, ValueError) as error:
                        if not is_transient(error):
                            hint = CERTIFICATE_HINT if is_certificate_failure(error) else ""
                            raise unreadable(url, cause_of(error), hint=hint) from None
                        if tries > RETRIES:
                            raise unreadable(url, f"{cause_of(error)}, {tries} attempts") from None
                    time.sleep(min(wait_seconds(retry_after, tries), seconds_left()))
        except DeadlineError:
            raise unreadable(
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
            response = self._session.request(method, address, headers=headers, data=body, timeout=timeout, stream=True)
            if not response.is_redirect:
                return response
            response.close()
            location = response.headers["Location"].encode("latin-1", "replace").decode("utf-8", "replace")
            address = self._redirect_address(url, address, location)
        raise unreadable(url, f"more than {REDIRECTS} redirects")

    def _redirect_address(self, url: str, address: str, location: str) -> str:
        try:
            target = urljoin(address, location)
            if urlsplit(target).scheme in ("http", "https"):
                return target
        except ValueError:
            pass
        raise unreadable(url, f"it redirects to `{without_credentials(location)[:160]}`, which is not an HTTP address")

    def body(self, url: str, response: requests.Response, limit: int, *, decompressed: bool = True) -> Iterator[bytes]:
        """Yield the body of an answer in chunks."""
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        # The library would decompress, but not check that the stream is complete.
        response.raw.headers.pop("Content-Encoding", None)
        chunks: Iterator[bytes] = response.iter_content(_CHUNK_BYTES)
        # Some servers say that they compressed the answer, and mean the `.tar.gz`; the file must stay compressed.
        if decompressed and encoding in GZIP_NAMES:
            chunks = decompress(chunks)
        elif decompressed and encoding not in ("", "identity"):
            raise unreadable(url, f"the answer is compressed as `{encoding[:40]}`, which was not requested")
        length = 0
        for chunk in chunks:
            length += len(chunk)
            if length > limit:
                raise TooLargeError(
                    f"the answer of `{without_credentials(url)}` exceeds {bytes_text(limit)}",
                    hint="larger answers are not supported: check the index address",
                )
            yield chunk
