"""Administration: tokens, sources with their trust, and the quarantine; only for the role `admin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from advisor.dashboard.access import DeniedError, own_form, session_of
from advisor.dashboard.site import Site, answer, links_of, site_of
from knowledge.domain.errors import InputError
from knowledge.service.access import access_record
from knowledge.store.base import Source
from knowledge.store.tokens import ROLES, Token

router = APIRouter()
_MOST_QUARANTINED = 100
"""Quarantined observations that the page shows."""
_LONGEST_DAYS = 3650.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRun:
    """A quarantined observation: what it is, who delivered it, and why it is in quarantine."""

    identity: str
    label: str
    block: str
    source: str
    received_at: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrationView:
    """What an administrator may change.

    Attributes:
        tokens: The tokens, oldest first; a token itself is not stored.
        sources: The sources with their trust.
        quarantined: The oldest quarantined observations.
        more_quarantined: Number of those that are left out.
    """

    tokens: tuple[Token, ...]
    sources: tuple[Source, ...]
    quarantined: tuple[QuarantinedRun, ...]
    more_quarantined: int


def administration_view(site: Site) -> AdministrationView:
    """Return what an administrator may change."""
    entries = site.store.quarantined()
    return AdministrationView(
        tokens=site.store.tokens(),
        sources=site.store.sources(),
        quarantined=tuple(
            QuarantinedRun(
                identity=q.observation.identity,
                label=q.observation.indicator.label,
                block=q.observation.block,
                source=q.source,
                received_at=q.received_at,
                reason=q.reason,
            )
            for q in entries[:_MOST_QUARANTINED]
        ),
        more_quarantined=max(0, len(entries) - _MOST_QUARANTINED),
    )


@router.get("/administration", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request) -> HTMLResponse:
    """Show what an administrator may change."""
    view = administration_view(site_of(request))
    return answer(request, "administration.html", page="administration", view=view, roles=ROLES, secret="")


@router.get("/api/administration")
def record(request: Request) -> AdministrationView:
    """Return tokens, sources and quarantine."""
    return administration_view(site_of(request))


@router.post("/administration/tokens", response_class=HTMLResponse, include_in_schema=False)
async def create_token(request: Request) -> Response:
    """Create a token, and show it once."""
    form = await own_form(request)
    site = site_of(request)
    source, role = _text(form, "source"), _text(form, "role")
    days = _number(form, "days", least=0.01, most=_LONGEST_DAYS) if _text(form, "days") else None
    if not source or len(source) > 128:
        raise DeniedError(422, "a token needs the name of a source, of at most 128 characters")
    try:
        secret, token = await run_in_threadpool(site.store.create_token, role=role, source=source, days=days)
    except InputError as error:
        raise DeniedError(422, error.message, error.hint) from None
    access_record(request.scope).reason = f"created token `{token.id}`"
    view = await run_in_threadpool(administration_view, site)
    return answer(request, "administration.html", page="administration", view=view, roles=ROLES, secret=secret)


@router.post("/administration/tokens/{identity}/revoke", include_in_schema=False)
async def revoke_token(request: Request, identity: str) -> Response:
    """Revoke a token permanently."""
    return await _change(request, lambda site, _: site.store.revoke_token(identity), f"revoked token `{identity}`")


@router.post("/administration/trust", include_in_schema=False)
async def trust(request: Request) -> Response:
    """Set the trust in a source."""

    def change(site: Site, form: FormData) -> None:
        name = _text(form, "source")
        if name not in {source.name for source in site.store.sources()}:
            raise DeniedError(404, f"there is no source `{name[:80]}`", "the table lists the sources")
        site.store.trust(name, _number(form, "trust", least=0.0, most=1.0))

    return await _change(request, change, "changed the trust in a source")


@router.post("/administration/quarantine", include_in_schema=False)
async def decide(request: Request) -> Response:
    """Accept or delete quarantined observations."""

    def change(site: Site, form: FormData) -> None:
        identities = [str(identity) for identity in form.getlist("identity")]
        if not identities:
            raise DeniedError(422, "no observations are selected", "tick some of the table")
        if _text(form, "decision") == "accept":
            site.store.release(identities)
        elif _text(form, "decision") == "drop":
            site.store.drop(identities)
        else:
            raise DeniedError(422, "the decision is neither `accept` nor `drop`")

    return await _change(request, change, "decided about the quarantine")


async def _change(request: Request, change: Callable[[Site, FormData], None], reason: str) -> Response:
    """Make a change that a form of the page asks for, note it in the log, and show the page again."""
    form = await own_form(request)
    session_of(request)
    try:
        await run_in_threadpool(change, site_of(request), form)
    except InputError as error:
        raise DeniedError(422, error.message, error.hint) from None
    access_record(request.scope).reason = reason
    return RedirectResponse(links_of(request).page("administration"), status_code=303)


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _number(form: FormData, name: str, *, least: float, most: float) -> float:
    try:
        value = float(_text(form, name))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise DeniedError(422, f"`{name}` is not a number from {least:g} to {most:g}")
    return value
