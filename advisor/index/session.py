"""The HTTP session of one thread; imported only where a request is made, since its library is slow to load."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

Authorise = Callable[[requests.PreparedRequest], requests.PreparedRequest]


class _Session(requests.Session):
    """A session that follows no redirect by itself.

    The library would read the body of a redirect whole, and send credentials from `http` to `https`.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return none: the caller follows redirects."""
        return None


class _Adapter(HTTPAdapter):
    """Connections that share one set of trusted authorities."""

    def __init__(self, trust: ssl.SSLContext, retry: Retry) -> None:
        self._trust = trust
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, ssl_context=self._trust)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **options, ssl_context=self._trust)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: bool | str, cert: Any = None
    ) -> Any:
        # A path would be loaded again for every connection.
        return super().build_connection_pool_key_attributes(request, True, cert)

    def cert_verify(self, conn: Any, url: str, verify: bool | str, cert: Any) -> None:
        """Require a certificate; the context knows the authorities."""
        conn.cert_reqs = "CERT_REQUIRED"


def make_session(trust: ssl.SSLContext, authorise: Authorise, retry: Retry) -> requests.Session:
    """Return a session.

    Args:
        trust: The trusted certificate authorities.
        authorise: Adds credentials to a request. Where there is such a function, the library reads no ``.netrc``.
        retry: What is tried again.
    """
    session = _Session()
    session.headers["User-Agent"] = "seshat (advisor)"
    session.auth = authorise
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(trust, retry))
    return session
