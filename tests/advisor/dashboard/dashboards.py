"""Dashboards that run in the tests: for a team next to the knowledge base's service, or for one person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from advisor.dashboard.access import Access, LocalSignIn, TeamSignIn
from advisor.dashboard.app import create_dashboard, mount_dashboard
from advisor.dashboard.site import Site
from knowledge.service.access import with_peer
from knowledge.service.app import create_app
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from tests.knowledge.service.conftest import serving_app

_COOKIE = re.compile(r"^([^=]+)=([^;]*)")
_FORM_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass
class Person:
    """A browser without scripts: it stores the cookie of a session, also without TLS, and does not follow redirects.

    Attributes:
        address: Address of the dashboard.
        headers: Headers of every request, such as those of a proxy.
        cookie: Name and value of the cookie; empty without one.
    """

    address: str
    headers: Mapping[str, str] = field(default_factory=dict)
    cookie: str = ""

    def get(self, path: str, **headers: str) -> requests.Response:
        """Load a page."""
        return self.send("GET", path, headers=headers)

    def post(self, path: str, form: Mapping[str, Any] | None = None, **options: Any) -> requests.Response:
        """Send a form with the token of the session."""
        return self.send("POST", path, data={"form_token": self.form_token, **(form or {})}, **options)

    def send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> requests.Response:
        """Send any request."""
        sent = {"Accept": "text/html", **self.headers, **(headers or {})}
        if self.cookie:
            sent["Cookie"] = self.cookie
        answer: requests.Response = requests.request(
            method, f"{self.address}{path}", headers=sent, allow_redirects=False, timeout=60, **options
        )
        if match := _COOKIE.match(answer.headers.get("Set-Cookie", "")):
            self.cookie = f"{match[1]}={match[2]}" if match[2].strip('"') else ""
        return answer

    @property
    def form_token(self) -> str:
        """The token of the session that its pages hold; empty without a session."""
        match = _FORM_TOKEN.search(self.get("/advice/form").text)
        return match[1] if match else ""

    def sign_in(self, token: str, then: str = "") -> requests.Response:
        """Enter a token."""
        return self.send("POST", "/sign-in", data={"token": token, "then": then})


@dataclass
class TeamDashboard:
    """A dashboard at `/dashboard` of a running service.

    Attributes:
        address: Its address.
        site: The dashboard.
        app: Its application.
    """

    address: str
    site: Site
    app: FastAPI

    def signed_in(self, role: str, *, source: str = "") -> Person:
        """Return a person with a new token of a role."""
        token, _ = self.site.store.create_token(role=role, source=source or f"a {role}")
        person = Person(self.address)
        assert person.sign_in(token).status_code == 303
        return person

    def routes(self, method: str) -> list[str]:
        """Return the paths that answer a method, with values for their parameters."""
        return sorted(
            re.sub(r"{\w+}", "abcdef0123456789", path)
            for path, methods in paths_of(self.app.routes)
            if method in methods
        )


def paths_of(routes: Iterable[Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield path and methods of each route; newer versions of FastAPI keep included routers as such."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route.path, frozenset(route.methods)
        else:
            yield from paths_of(included.routes)


@contextmanager
def team_dashboard(store: SqlKnowledgeBase, **sign_in: Any) -> Iterator[TeamDashboard]:
    """Serve a dashboard as `advisor serve --dashboard` does, and yield it."""
    team = TeamSignIn(store, **sign_in)
    site = Site(store=store, knowledge=store.address, access=Access(sign_in=team))
    app: Any = create_app(store, Indicators())
    dashboard = mount_dashboard(app, site, "/dashboard")
    believed: Any = ProxyHeadersMiddleware(app, trusted_hosts=list(team.proxies))
    with serving_app(with_peer(believed)) as address:
        yield TeamDashboard(f"{address}/dashboard", site, dashboard)


@contextmanager
def local_dashboard(store: SqlKnowledgeBase) -> Iterator[tuple[str, LocalSignIn]]:
    """Serve a dashboard as `advisor dashboard` does, and yield its address and its sign-in."""
    sign_in = LocalSignIn()
    site = Site(store=store, knowledge=store.address, access=Access(sign_in=sign_in))
    with serving_app(create_dashboard(site)) as address:
        yield address, sign_in
