"""Who may use the dashboard: sign-in, sessions, roles, tokens against forged requests, limits of requests, headers.

Sessions are in the memory of the server, so they end with it. A cookie holds only the random identifier of a session.
The page of every session has a token that each form sends back: another site can send a form, but not this token.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from anyio import fail_after
from fastapi import Request
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect

from knowledge.service.access import PEER, access_record
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tokens import ROLES, permits

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_SAFE_METHODS = ("GET", "HEAD")
_LONGEST_SECONDS = 12 * 3600.0
"""Longest time of a session."""
_IDLE_SECONDS = 3600.0
"""Time without a request after which a session ends."""
_MOST_SESSIONS, _MOST_OF_ONE = 1000, 20
"""Sessions of all people, and of one."""
_MOST_FAILURES, _FAILURE_SECONDS = 10, 300.0
"""Failed sign-ins of one address within this time, after which it has to wait."""
MOST_BODY_BYTES = 1536 * 1024
"""Largest body of a request; an upload of requirements is smaller."""
_BODY_SECONDS = 30.0
"""Time in which the body of a request has to arrive."""
_REQUESTS_A_SECOND, _BURST = 50.0, 300.0
"""Requests of one session, or of one address without a session, on average and at once."""
_REQUESTS_OF_FORM = 10.0
"""Number of requests that one with a form counts as."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response, unless a page sets another value."""


class DeniedError(Exception):
    """Raised to answer a request with a status and a sentence."""

    def __init__(self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.headers = status, message, hint, dict(headers or {})


@dataclass(kw_only=True)
class DashboardSession:
    """A signed-in person.

    Attributes:
        user: Name of the person, or of the token.
        role: One of :data:`knowledge.store.tokens.ROLES`.
        token: Identifier of the token that the person signed in with; empty if another program authenticated them.
        identity: Random identifier, which only the cookie holds.
        form_token: Random text that forms send back.
        started: When the person signed in, and when the last request came, in seconds of a monotonic clock.
    """

    user: str
    role: str
    token: str = ""
    identity: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    started: float = field(default_factory=time.monotonic)
    last_request: float = field(default_factory=time.monotonic)

    def permits(self, role: str) -> bool:
        """Whether the person may do what a role may do."""
        return permits(self.role, role)


class Sessions:
    """The sessions of a server. Thread-safe."""

    def __init__(self) -> None:
        self._sessions: dict[str, DashboardSession] = {}
        self._lock = threading.Lock()

    def add(self, session: DashboardSession) -> DashboardSession:
        """Begin a session; too many end the one that was unused for the longest time, first of the same person."""
        with self._lock:
            own = [s for s in self._sessions.values() if (s.user, s.token) == (session.user, session.token)]
            candidates = own if len(own) >= _MOST_OF_ONE else list(self._sessions.values())
            if len(own) >= _MOST_OF_ONE or len(candidates) >= _MOST_SESSIONS:
                del self._sessions[min(candidates, key=lambda s: s.last_request).identity]
            self._sessions[session.identity] = session
        return session

    def find(self, identity: str) -> DashboardSession | None:
        """Return a session that has not ended, and note that it is used."""
        now = time.monotonic()
        with self._lock:
            session = self._sessions.get(identity)
            if session is None:
                return None
            if now - session.started > _LONGEST_SECONDS or now - session.last_request > _IDLE_SECONDS:
                del self._sessions[identity]
                return None
            session.last_request = now
            return session

    def end(self, identity: str) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._sessions.pop(identity, None)


@dataclass(frozen=True)
class LocalSignIn:
    """For one person on this machine: the address that the command prints holds a random token.

    Attributes:
        token: The token.
        user: Name of the person.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _: KW_ONLY
    user: str = "you"
    # Browsers send a cookie to all ports of a host: two dashboards must not replace the cookies of each other.
    cookie: str = field(default_factory=lambda: f"seshat-{secrets.token_hex(4)}")
    secure: bool = False
    has_form: bool = False

    def check(self, session: DashboardSession) -> bool:
        """Return that the session is allowed: nobody revokes it."""
        return True

    def session_for(self, request: Request) -> DashboardSession | None:
        """Return a session if the address holds the token."""
        return self.by_token(request.query_params.get("token", ""))

    def by_token(self, text: str) -> DashboardSession | None:
        """Return a session if the text is the token."""
        if not hmac.compare_digest(text.encode(), self.token.encode()):
            return None
        return DashboardSession(user=self.user, role=ROLES[-1])

    def is_allowed_host(self, host: str) -> bool:
        """Whether the name is that of this machine: another name is a site that resolves to this machine's address."""
        return (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host) in _LOCAL_HOSTS


@dataclass(frozen=True)
class TeamSignIn:
    """For a team: with a token of the knowledge base, or with the name that an authenticating proxy sends.

    Attributes:
        store: The knowledge base with the tokens.
        user_header: Header with the name of the person; empty if people sign in with a token.
        role_header: Header with the role of the person; without it, or with another text, people may only read.
        proxies: Addresses of the proxies whose headers are believed.
    """

    store: SqlKnowledgeBase
    _: KW_ONLY
    user_header: str = ""
    role_header: str = ""
    proxies: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    cookie: str = "__Host-seshat"
    secure: bool = True

    @property
    def has_form(self) -> bool:
        """Whether people enter a token."""
        return not self.user_header

    def check(self, session: DashboardSession) -> bool:
        """Whether the token of a session may still be used."""
        if not session.token:
            return True
        token = self.store.token(session.token)
        return token is not None and token.valid(datetime.now(UTC)) and token.role == session.role

    def session_for(self, request: Request) -> DashboardSession | None:
        """Return a session for the person that the proxy names."""
        user, role = self._named(request)
        return DashboardSession(user=user, role=role) if user else None

    def is_same_person(self, request: Request, session: DashboardSession) -> bool:
        """Whether the proxy names the person, and the role, of a session."""
        return self.has_form or self._named(request) == (session.user, session.role)

    def _named(self, request: Request) -> tuple[str, str]:
        """Return name and role that a proxy sent; empty texts without them."""
        if not self.user_header or request.scope.get(PEER) not in self.proxies:
            return "", ""
        role = _only_value(request, self.role_header)
        return _only_value(request, self.user_header)[:128], role if role in ROLES else ROLES[0]

    def by_token(self, text: str) -> DashboardSession | None:
        """Return a session for a valid token."""
        token = self.store.find_token(text)
        if token is None or not token.valid(datetime.now(UTC)):
            return None
        return DashboardSession(user=token.source, role=token.role, token=token.id)

    def is_allowed_host(self, host: str) -> bool:
        """Return that the name is allowed: the proxy decides about names."""
        return True


class Allowance:
    """Limits how often something happens, with a token bucket for each key. Thread-safe."""

    def __init__(self, a_second: float, burst: float) -> None:
        self._rate, self._burst = a_second, burst
        self._levels: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key: str, amount: float = 1.0) -> float:
        """Take an amount; return 0 if it was there, else the seconds until it is, and take nothing."""
        now = time.monotonic()
        with self._lock:
            if len(self._levels) > 10 * _MOST_SESSIONS:
                self._levels = {k: v for k, v in self._levels.items() if now - v[1] < self._burst / self._rate}
            level, then = self._levels.get(key, (self._burst, now))
            level = min(self._burst, level + (now - then) * self._rate)
            if level < amount:
                return (amount - level) / self._rate
            self._levels[key] = level - amount, now
        return 0.0

    def give_back(self, key: str, amount: float = 1.0) -> None:
        """Give back an amount that was taken."""
        with self._lock:
            level, then = self._levels.get(key, (self._burst, time.monotonic()))
            self._levels[key] = min(self._burst, level + amount), then


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access to a dashboard.

    Attributes:
        sign_in: How people sign in.
    """

    sign_in: LocalSignIn | TeamSignIn
    sessions: Sessions = field(default_factory=Sessions)
    _requests: Allowance = field(default_factory=lambda: Allowance(_REQUESTS_A_SECOND, _BURST))
    _failures: Allowance = field(
        default_factory=lambda: Allowance(_MOST_FAILURES / _FAILURE_SECONDS, float(_MOST_FAILURES))
    )

    def enter(self, request: Request) -> RedirectResponse | None:
        """Set the session of a request, or refuse the request; return a response that begins a session, if one does."""
        if not self.sign_in.is_allowed_host(request.headers.get("host", "")):
            raise DeniedError(421, "this server has another name", "use the address that `advisor dashboard` printed")
        if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
            raise DeniedError(400, "the address has a null character")
        session = self._session(request)
        request.state.session = session
        key = session.identity if session else _client(request)
        if wait := self._requests.take(key, 1.0 if request.method in _SAFE_METHODS else _REQUESTS_OF_FORM):
            raise DeniedError(429, "too many requests", "wait a few seconds", {"Retry-After": f"{wait + 1:.0f}"})
        if request.method not in _SAFE_METHODS:
            _refuse_other_sites(request)
            _refuse_large_body(request)
        if session is None and request.method in _SAFE_METHODS:
            new = self.sign_in.session_for(request)
            if new is not None:
                url = request.url.remove_query_params("token")
                return self.begin(request, new, local_path(f"{url.path}?{url.query}"))
        return None

    def _session(self, request: Request) -> DashboardSession | None:
        session = self.sessions.find(request.cookies.get(self.sign_in.cookie, ""))
        if session is None:
            return None
        is_named = not isinstance(self.sign_in, TeamSignIn) or self.sign_in.is_same_person(request, session)
        if not (is_named and self.sign_in.check(session)):
            self.sessions.end(session.identity)
            return None
        _log_person(request, session)
        return session

    def begin(self, request: Request, session: DashboardSession, address: str) -> RedirectResponse:
        """Begin a session, and return the response that sends its cookie and continues at an address of this server."""
        self.sessions.end(request.cookies.get(self.sign_in.cookie, ""))
        self.sessions.add(session)
        _log_person(request, session)
        response = RedirectResponse(address or f"{request.scope.get('root_path', '')}/", status_code=303)
        response.set_cookie(
            self.sign_in.cookie, session.identity, httponly=True, samesite="lax", secure=self.sign_in.secure, path="/"
        )
        return response

    def sign_in_with(self, request: Request, text: str) -> DashboardSession:
        """Return a new session for a token that a person entered.

        Raises:
            DeniedError: If the token is not valid, or too many were not.
        """
        client = _client(request)
        # Before the token is compared: an address that has to wait does not learn which token is right.
        if wait := self._failures.take(client):
            raise DeniedError(
                429, "too many tokens were wrong", "wait a few minutes", {"Retry-After": f"{wait + 1:.0f}"}
            )
        session = self.sign_in.by_token(text)
        if session is not None:
            self._failures.give_back(client)
            return session
        access_record(request.scope).reason = "unknown token"
        raise DeniedError(401, "the token is not valid", "`advisor knowledge token create` creates one")


def session_of(request: Request) -> DashboardSession:
    """Return the session of a request.

    Raises:
        DeniedError: If nobody signed in.
    """
    session: DashboardSession | None = getattr(request.state, "session", None)
    if session is None:
        raise DeniedError(401, "nobody signed in", "open the address that `advisor dashboard` printed, or sign in")
    return session


def role(name: str) -> Callable[[Request], DashboardSession]:
    """Return a dependency that refuses people who may not do what a role may do."""

    def check(request: Request) -> DashboardSession:
        session = session_of(request)
        if not session.permits(name):
            access_record(request.scope).reason = f"role `{session.role}`"
            raise DeniedError(403, f"this needs the role `{name}`", f"`{session.user}` has the role `{session.role}`")
        return session

    return check


async def own_form(request: Request) -> FormData:
    """Return the form of a request that a page of its session sent.

    Raises:
        DeniedError: If the form does not hold the session's token.
    """
    session = session_of(request)
    form = await read_form(request, max_files=1, max_fields=200, max_part_size=1024 * 1024)
    text = form.get("form_token", "")
    if not isinstance(text, str) or not hmac.compare_digest(text.encode(), session.form_token.encode()):
        raise DeniedError(403, "the form is not from a page of this session", "load the page again")
    return form


async def read_form(request: Request, **limits: int) -> FormData:
    """Return the form of a request within limits of its parts, whose body has to arrive in time.

    Raises:
        DeniedError: If the body does not arrive, or has a null character, which databases do not store.
    """
    try:
        with fail_after(_BODY_SECONDS):
            form = await request.form(**limits)
    except (TimeoutError, ClientDisconnect):
        raise DeniedError(408, "the form did not arrive in time", "send it again") from None
    if any("\0" in text for pair in form.multi_items() for text in pair if isinstance(text, str)):
        raise DeniedError(422, "the form has a null character", "send only text")
    return form


def _only_value(request: Request, header: str) -> str:
    """Return the value of a header; an empty text without it, or if a client sent a further one."""
    values = request.headers.getlist(header) if header else []
    return values[0] if len(values) == 1 else ""


def _log_person(request: Request, session: DashboardSession) -> None:
    access_record(request.scope).source = session.user
    access_record(request.scope).token = session.token or None


def _client(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _refuse_other_sites(request: Request) -> None:
    """Refuse a request that another site sent: browsers say where it comes from."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "")
    is_own = not origin or origin.partition("://")[2] == request.headers.get("host", "")
    if site not in ("same-origin", "none") or not is_own:
        raise DeniedError(403, "another site sent this request", "use the forms of this dashboard")


def _refuse_large_body(request: Request) -> None:
    length = request.headers.get("content-length", "")
    if not length.isdigit() or "transfer-encoding" in request.headers:
        raise DeniedError(411, "the request does not state the length of its body")
    if int(length) > MOST_BODY_BYTES:
        raise DeniedError(413, f"the request is larger than {MOST_BODY_BYTES // 1024} kB", "send only the requirements")


def local_path(text: str) -> str:
    """Return an address without its server, so that a redirection stays on this server."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    path = parts.path if parts.path.startswith("/") and not parts.path.startswith("//") else ""
    return f"{quote(path)}{f'?{parts.query}' if parts.query else ''}" if not (parts.scheme or parts.netloc) else ""
