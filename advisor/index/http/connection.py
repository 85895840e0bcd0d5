"""Sends requests through the HTTP library; imported for the first request, because the library loads slowly."""

from __future__ import annotations

import gzip
import http.client
import io
import math
import os
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

from advisor.domain.progress import progress
from advisor.index.configuration import Credentials, IndexConfiguration, origin_of, without_credentials
from advisor.index.http.errors import (
    RETRIED_STATUSES,
    RETRIES,
    DeadlineError,
    IndexUnreachableError,
    deadline,
    seconds_left,
    unreadable,
)
from advisor.index.limits import ANSWER_TIMEOUTS, KIB, REDIRECTS, RETRY_AFTER_SECONDS, TooLargeError, bytes_text

_T = TypeVar("_T")
_CHUNK_BYTES = 64 * KIB
_CONNECTIONS = 64
"""Connections to one host that are kept open for the next request: more than there are threads."""
_BACKOFF_SECONDS = 0.3
"""Seconds before the first retry; they double with each one."""
_GZIP_NAMES = ("gzip", "x-gzip")
"""Names of the only compression that is requested (RFC 9110, section 8.4.1.3)."""
_FAILURES = (requests.RequestException, HTTPError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeError, ValueError)
"""Errors of a request, and of reading and decompressing its answer."""
_TRANSIENT = (requests.ConnectionError, requests.Timeout, HTTPError, EOFError)
_CERTIFICATE_HINT = (
    "set `SSL_CERT_FILE` (uv) or `PIP_CERT` (pip) to the certificate of its authority, or renew the certificate of "
    "the server"
)


class _TimedReader(io.RawIOBase):
    """Reads a connection until the deadline."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw = raw
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read available bytes; wait until the read timeout or the deadline, whichever is earlier."""
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
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer whose headers and body are read until the deadline."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock))


class _Session(requests.Session):
    """A session that does not follow redirects.

    The library would read the whole body of a redirect, and send credentials from `http` to `https`.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


def _with_deadlines(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Return a subclass of a connection pool whose answers have a deadline; proxies have other pool classes."""
    if issubclass(pool.ConnectionCls.response_class, _TimedResponse):  # type: ignore[attr-defined]
        return pool
    connection = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"response_class": _TimedResponse})
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


def _limit(manager: PoolManager) -> None:
    pools = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _with_deadlines(pool) for scheme, pool in pools.items()}


class _Adapter(HTTPAdapter):
    """Connections with shared trusted authorities, whose answers have a deadline."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._trust = trust
        super().__init__(pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, ssl_context=self._trust)
        _limit(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options, ssl_context=self._trust)
        _limit(manager)
        return manager

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: bool | str, cert: Any = None
    ) -> Any:
        # A path would be loaded for every connection.
        return super().build_connection_pool_key_attributes(request, True, cert)

    def cert_verify(self, conn: Any, url: str, verify: bool | str, cert: Any) -> None:
        conn.cert_reqs = "CERT_REQUIRED"  # The context contains the authorities.


@lru_cache(maxsize=4)
def trust_in(certificates: str) -> ssl.SSLContext:
    """Return the trust in the authorities of a file: several connections of a process share it."""
    return ssl.create_default_context(cafile=certificates)


class Connection:
    """One pool of connections, which all threads share."""

    def __init__(self, configuration: IndexConfiguration, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._session = _Session()
        self._session.headers["User-Agent"] = "seshat (advisor)"
        # With such a function, the library does not read `.netrc`.
        self._session.auth = self._authorise
        adapter = _Adapter(self._trust())
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

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
                    except _FAILURES as error:
                        if not _is_transient(error):
                            is_untrusted = any(isinstance(e, ssl.SSLCertVerificationError) for e in _causes(error))
                            hint = _CERTIFICATE_HINT if is_untrusted else ""
                            raise unreadable(url, _cause_of(error), hint=hint) from None
                        if tries > RETRIES:
                            raise unreadable(url, f"{_cause_of(error)}, {tries} attempts") from None
                    time.sleep(min(_wait_seconds(retry_after, tries), seconds_left()))
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
        # The library would decompress, but not check that the stream is complete. And some servers say that they
        # compressed the answer, and mean the `.tar.gz`; the file must stay compressed.
        read: Callable[[int], bytes] = response.raw.read
        if decompressed and encoding in _GZIP_NAMES:
            read = gzip.GzipFile(fileobj=response.raw, mode="rb").read
        elif decompressed and encoding not in ("", "identity"):
            raise unreadable(url, f"the answer is compressed as `{encoding[:40]}`, which was not requested")
        length = 0
        while chunk := read(_CHUNK_BYTES):
            length += len(chunk)
            if length > limit:
                raise TooLargeError(
                    f"the answer of `{without_credentials(url)}` exceeds {bytes_text(limit)}",
                    hint="larger answers are not supported: check the index address",
                )
            yield chunk


def _is_transient(error: Exception) -> bool:
    """Whether a retry can succeed: not with unknown hosts, wrong certificates, other protocols, malformed addresses."""
    # A closed or interrupted connection is an error of the HTTP library, too. Without an answer of a name server, the
    # code is `EAI_AGAIN`.
    broken = ConnectionError | http.client.IncompleteRead
    return isinstance(error, _TRANSIENT) and not any(
        isinstance(one, ssl.SSLCertVerificationError)
        or (isinstance(one, socket.gaierror) and one.errno == socket.EAI_NONAME)
        or (isinstance(one, http.client.HTTPException) and not isinstance(one, broken))
        for one in _causes(error)
    )


def _cause_of(error: Exception) -> str:
    """Return a short description of why a request failed."""
    causes = tuple(_causes(error))
    for one in causes:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {one.verify_message.rstrip('.')}"
        if isinstance(one, ssl.SSLError) and one.reason:
            return f"no TLS connection ({one.reason.lower().replace('_', ' ')})"
        if isinstance(one, socket.gaierror):
            return "no connection (the host name cannot be resolved)"
        if isinstance(one, ConnectionRefusedError):
            return "no connection (refused)"
        if isinstance(one, ConnectionError | http.client.IncompleteRead):
            return "the connection was closed before the answer was complete"
        if isinstance(one, http.client.HTTPException):
            return "the answer is not HTTP"
    if isinstance(error, requests.Timeout) or any(isinstance(one, TimeoutError) for one in causes):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the compressed answer is truncated"
    if isinstance(error, requests.ConnectionError | HTTPError):
        return "no connection"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _wait_seconds(retry_after: str, tries: int) -> float:
    """Return the seconds to wait before a retry (RFC 9110, section 10.2.3)."""
    requested = 0.0
    # Numbers and years may be too large for the libraries.
    with suppress(InvalidHeader, ValueError, OverflowError):
        requested = float(Retry().parse_retry_after(retry_after or "0"))
    return min(max(requested, float(_BACKOFF_SECONDS * 2 ** (tries - 1))), RETRY_AFTER_SECONDS)
