"""The HTTP session; imported only for a request, because its library loads slowly."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, PoolManager

from advisor.index.http.deadline import TimedResponse

_CONNECTIONS = 64
"""Connections to one host that are kept open for the next request: more than there are threads."""

Authorise = Callable[[requests.PreparedRequest], requests.PreparedRequest]


class _Session(requests.Session):
    """A session that does not follow redirects.

    The library would read the whole body of a redirect, and send credentials from `http` to `https`.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return `None`: the caller follows redirects."""
        return None


def _with_deadlines(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Return a subclass of a connection pool whose answers have a deadline; proxies have other pool classes."""
    if issubclass(pool.ConnectionCls.response_class, TimedResponse):  # type: ignore[attr-defined]
        return pool
    connection = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"response_class": TimedResponse})
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
        """Require a certificate; the context contains the authorities."""
        conn.cert_reqs = "CERT_REQUIRED"


def make_session(trust: ssl.SSLContext, authorise: Authorise) -> requests.Session:
    """Return a session.

    Args:
        trust: The trusted certificate authorities.
        authorise: Adds credentials to a request. With such a function, the library does not read ``.netrc``.
    """
    session = _Session()
    session.headers["User-Agent"] = "seshat (advisor)"
    session.auth = authorise
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(trust))
    return session


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
