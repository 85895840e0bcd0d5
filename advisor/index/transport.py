"""Gets bytes from addresses: connections, retries, time-outs, and what to say when that fails."""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from advisor.index.configuration import Credentials, IndexConfiguration, without_credentials
from knowledge.domain.errors import UnavailableError

if TYPE_CHECKING:
    import ssl

    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

RETRIES = 3
BACKOFF_SECONDS = 0.3
_RETRIED = (429, 500, 502, 503, 504)


class IndexUnreachableError(UnavailableError):
    """Raised when an index cannot be reached, or answers with an error."""

    code = "index-unreachable"


class GoneError(IndexUnreachableError):
    """Raised when an index does not have a file."""

    code = "index-gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of an index."""

    status: int
    body: bytes
    content_type: str
    etag: str
    cache_control: str = ""


def local_path(url: str) -> Path | None:
    """Return the path that a ``file:`` address or a plain path names, or none for a remote address."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(url2pathname(unquote(parts.path)))
    return None if parts.scheme in ("http", "https") else Path(url)


def url_of_path(path: Path) -> str:
    """Return the ``file:`` address of a path."""
    return path.resolve().as_uri()


def _adapter(trust: ssl.SSLContext, retry: Retry) -> HTTPAdapter:
    """Return an adapter whose connections share one set of trusted authorities."""
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options, ssl_context=trust)

        def build_connection_pool_key_attributes(
            self, request: requests.PreparedRequest, verify: bool | str, cert: Any = None
        ) -> Any:
            # A path would be loaded again for every connection.
            return super().build_connection_pool_key_attributes(request, True, cert)

        def cert_verify(self, conn: Any, url: str, verify: bool | str, cert: Any) -> None:
            """Require a certificate; the context knows the authorities."""
            conn.cert_reqs = "CERT_REQUIRED"

    return Adapter(max_retries=retry)


class Transport:
    """HTTP with one connection pool per thread.

    Attributes:
        requests_made: How many requests were sent, by kind (``GET``, ``HEAD``, ``ranged``).
    """

    def __init__(self, configuration: IndexConfiguration, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._local = threading.local()
        self.requests_made: Counter[str] = Counter()

    @property
    def session(self) -> requests.Session:
        """The calling thread's session; it retries what may pass and honours ``Retry-After``."""
        if not hasattr(self._local, "session"):
            import requests
            from urllib3.util import Retry

            session = requests.Session()
            session.headers["User-Agent"] = "seshat (advisor)"
            if self._credentials:
                session.auth = self._authorise
            retry = Retry(
                total=RETRIES,
                backoff_factor=BACKOFF_SECONDS,
                status_forcelist=_RETRIED,
                allowed_methods=("GET", "HEAD"),
                raise_on_status=False,
            )
            for scheme in ("http://", "https://"):
                session.mount(scheme, _adapter(self._trust, retry))
            self._local.session = session
        found: requests.Session = self._local.session
        return found

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The trusted certificate authorities, loaded once for all threads: it takes longer than a request."""
        import ssl

        from certifi import where

        named = self._configuration.certificate or os.environ.get("REQUESTS_CA_BUNDLE") or where()
        try:
            return ssl.create_default_context(cafile=named)
        except (OSError, ssl.SSLError) as error:
            raise IndexUnreachableError(
                f"the trusted certificates in `{named}` cannot be read: {error}",
                hint="name a file of certificates in PEM form in pip's or uv's configuration",
            ) from None

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Send credentials to the host that they were given for, and to no other."""
        from requests.auth import HTTPBasicAuth

        known = self._credentials.get(urlsplit(request.url or "").netloc)
        return HTTPBasicAuth(*known)(request) if known else request

    def get(self, url: str, *, accept: str, etag: str | None = None) -> Answer:
        """Get an address; 404 and 304 are answers, every other error is raised.

        Raises:
            IndexUnreachableError: If there is no answer, or an error.
        """
        headers = {"Accept": accept} | ({"If-None-Match": etag} if etag else {})
        self.requests_made["GET"] += 1
        response = self._ask("GET", url, headers)
        return Answer(
            status=response.status_code,
            body=response.content,
            content_type=response.headers.get("Content-Type", ""),
            etag=response.headers.get("ETag", ""),
            cache_control=response.headers.get("Cache-Control", ""),
        )

    def fetch(self, url: str) -> bytes:
        """Get a whole file.

        Raises:
            IndexUnreachableError: If there is no answer, or an error, a 404 among them.
        """
        answer = self.get(url, accept="*/*")
        if answer.status == 404:
            raise GoneError(f"`{without_credentials(url)}` is not there", hint="try again with `--refresh`")
        if answer.status != 200:
            raise self._error(url, f"it answers {answer.status}")
        return answer.body

    def length(self, url: str) -> int | None:
        """Return the size of a file in bytes, or none where the server does not tell."""
        self.requests_made["HEAD"] += 1
        length = self._ask("HEAD", url, {"Accept-Encoding": "identity"}).headers.get("Content-Length")
        return int(length) if length else None

    @property
    def timeout_seconds(self) -> float:
        """Longest wait for one answer."""
        return self._configuration.timeout_seconds

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        import requests

        try:
            response = self.session.request(method, url, headers=headers, timeout=self.timeout_seconds)
        except (requests.RequestException, UnicodeError, ValueError) as error:
            raise self._error(url, _cause(error)) from None
        if response.status_code >= 400 and response.status_code != 404:
            again = f" after {RETRIES + 1} tries" if response.status_code in _RETRIED else ""
            raise self._error(url, f"it answers {response.status_code}{again}")
        return response

    def _error(self, url: str, cause: str) -> IndexUnreachableError:
        return IndexUnreachableError(
            f"the index could not be read at `{without_credentials(url)}`: {cause}",
            hint="check the address and the network, or use `--offline` to answer from the cache",
        )


def _cause(error: Exception) -> str:
    """Say in a few words why a request failed."""
    import requests

    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no answer in time, {RETRIES + 1} tries"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted"
    if isinstance(error, requests.ConnectionError):
        return f"no connection, {RETRIES + 1} tries"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
