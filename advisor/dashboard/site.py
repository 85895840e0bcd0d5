"""What the pages of a dashboard share: knowledge base, who may use them, templates, addresses, names of machines."""

from __future__ import annotations

import gzip
import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from advisor.api.options import ProjectOptions
from advisor.dashboard.access import Access, DashboardSession, LocalSignIn
from advisor.dashboard.snapshot import RecentValues
from advisor.domain.words import count, duration_text, indicator_text
from advisor.report.html import SCRIPT, STYLE_SHEET, text_filters
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.evidence.stacks import is_machine
from knowledge.store.base import Coverage
from knowledge.store.sql import SqlKnowledgeBase

STATIC = "static"
_FIRST_YEAR = 2000
PAGES = (
    ("advice", "Advice"),
    ("overview", "Overview"),
    ("compare", "Compare"),
    ("history", "History"),
    ("hardware", "Hardware"),
    ("campaigns", "Campaigns"),
    ("administration", "Administration"),
)
"""Names and titles of the pages, in the order of the menu."""


class Links(Protocol):
    """Addresses of pages, on a server or in exported files."""

    def page(self, name: str, /, **query: str) -> str:
        """Return the address of a page, or an empty text if there is none; empty values are left out."""

    def static(self, name: str, /) -> str:
        """Return the address of a style sheet, a script or a picture."""


@dataclass(frozen=True)
class ServerLinks:
    """Addresses on a server.

    Attributes:
        prefix: Path of the dashboard on the server; empty, or without a slash at its end.
    """

    prefix: str

    def page(self, name: str, /, **query: str) -> str:
        """Return the address of a page; empty values are left out."""
        words = urlencode({key: value for key, value in query.items() if value})
        return f"{self.prefix}/{name}{f'?{words}' if words else ''}"

    def static(self, name: str, /) -> str:
        """Return the address of a file, which changes with its content, so that browsers may store it."""
        return f"{self.prefix}/{STATIC}/{name}?v={static_file(name)[1]}"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A dashboard.

    Attributes:
        store: The knowledge base.
        knowledge: Its address; ``None`` for the user's own.
        access: Who may use the dashboard; ``None`` for exported files.
        options: Options that the dashboard was started with, as `advisor advise` has them.
        project: Directory of the project whose advice the first page shows; ``None`` without one.
    """

    store: SqlKnowledgeBase
    knowledge: str | None = None
    access: Access | None = None
    project: Path | None = None
    options: ProjectOptions = field(default_factory=ProjectOptions)
    memory: dict[object, Any] = field(default_factory=dict)
    recent: RecentValues = field(default_factory=RecentValues)

    def command(self, *words: str) -> str:
        """Return the command line with some words, and with the knowledge base if it was named on this machine.

        In a team, people have their own knowledge base, or fetch this one.
        """
        is_local = self.access is not None and isinstance(self.access.sign_in, LocalSignIn)
        option = ("--knowledge", self.store.address) if is_local and self.knowledge is not None else ()
        return shlex.join(("advisor", *words, *option))

    def coverage(self, by: Sequence[str], **where: str) -> tuple[Coverage, ...]:
        """Return the counts of :meth:`knowledge.store.base.KnowledgeBase.coverage`, at most a few seconds old."""
        key = ("coverage", tuple(by), tuple(sorted(where.items())))
        return self.recent.get(key, lambda: self.store.coverage(by, **where))

    @cached_property
    def environment(self) -> Environment:
        """The templates."""
        return _environment()

    def render(
        self, template: str, links: Links, *, page: str = "", session: DashboardSession | None = None, **values: Any
    ) -> str:
        """Return a page or a part of it; texts are escaped.

        Args:
            template: Name of the template.
            links: Addresses of other pages.
            page: Name of the page in the menu.
            session: Who reads it; ``None`` for exported files.
            values: Values of the template.
        """
        pages = [(name, title) for name, title in PAGES if self._is_listed(name, session)]
        return self.environment.get_template(template).render(
            links=links, page=page, pages=pages, session=session, site=self, now=datetime.now(UTC), **values
        )

    def _is_listed(self, page: str, session: DashboardSession | None) -> bool:
        if session is None:
            return page in ("overview", "compare", "history", "hardware")
        return page != "administration" or session.permits("admin")


def site_of(request: Request) -> Site:
    """Return the dashboard that answers a request."""
    site: Site = request.app.state.site
    return site


def links_of(request: Request) -> ServerLinks:
    """Return the addresses on the server that answers a request."""
    return ServerLinks(str(request.scope.get("root_path", "")))


def answer(request: Request, template: str, *, page: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a response with a page."""
    session = getattr(request.state, "session", None)
    html = site_of(request).render(template, links_of(request), page=page, session=session, **values)
    return HTMLResponse(html, status_code=status)


def machines(site: Site, identities: Iterable[str]) -> Mapping[str, HardwareProfile]:
    """Return the hardware profiles of machines by identity; each is read once."""
    profiles: dict[str, HardwareProfile] = site.memory.setdefault("machines", {})
    if not profiles.keys() >= set(identities):
        profiles |= {machine.identity: machine for machine in site.store.machines()}
    return profiles


def device_name(profile: HardwareProfile, device: str) -> str:
    """Return the model of the accelerator, or the microarchitecture of the processor, that a device stands for."""
    if device != "cpu":
        accelerator = profile.gpu or next(iter(profile.accelerators), None)
        if accelerator is not None:
            return accelerator.model
    return profile.cpu.microarchitecture or profile.cpu.model or "unknown"


def selected_machines(site: Site, identities: Iterable[str], name: str) -> frozenset[str]:
    """Return the identities of machines with a name, as `advisor knowledge compare --hardware` selects them."""
    listed = tuple(identities)
    profiles = machines(site, listed)
    return frozenset(i for i in listed if not name or is_machine(profiles[i], name))


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return the content of a static file, and the beginning of its hash.

    Raises:
        InputError: If there is no such file.
    """
    source = _static_sources().get(name)
    if source is None:
        raise InputError(f"there is no static file `{name}`")
    content = source()
    return content, hashlib.sha256(content).hexdigest()[:12]


@cache
def compressed_file(name: str) -> bytes:
    """Return the content of a static file, compressed with gzip."""
    return gzip.compress(static_file(name)[0], mtime=0)


@cache
def _static_sources() -> Mapping[str, Any]:
    own = {file.name: file.read_bytes for file in (files("advisor.dashboard") / STATIC).iterdir()}
    sheet = own.pop("dashboard.css")
    return {**own, "style.css": lambda: STYLE_SHEET.encode() + sheet(), "report.js": SCRIPT.encode}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("advisor.dashboard"), PackageLoader("advisor.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= text_filters() | {
        "age": _age,
        "count": lambda number, noun: count(number, noun),
        "duration": duration_text,
        "indicator": indicator_text,
        "thousands": lambda number: f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
    }
    environment.globals["Markup"] = Markup
    return environment


@pass_context
def _age(context: Context, started_at: str, suffix: str = "") -> str:
    """Return how long ago a time was, and a word after it; in exported files, which stay the same, the date."""
    if context.get("session") is None:
        return date_text(started_at)
    return f"{age_text(started_at)} {suffix}".rstrip()


def date_text(started_at: str) -> str:
    """Return the date of a time: ``2026-11-21``."""
    # Some published tables do not state a date.
    return "date not known" if started_at < str(_FIRST_YEAR) else started_at[:10]


def age_text(started_at: str) -> str:
    """Return how long ago a time was: ``3 days``; the text itself if it is not a time."""
    try:
        then = datetime.fromisoformat(started_at)
    except ValueError:
        return started_at
    if then.year < _FIRST_YEAR:
        # Some published tables do not state a date.
        return "date not known"
    seconds = (datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for length, noun in ((365.25 * 86400, "year"), (30.44 * 86400, "month"), (86400, "day"), (3600, "hour")):
        if seconds >= 2 * length:
            return count(int(seconds / length), noun)
    return count(max(0, int(seconds / 60)), "minute")
