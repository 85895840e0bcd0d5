"""Campaigns: progress by stack and node, failures with their error output, retry and cancel."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from advisor.api.measurements.campaign_session import CampaignSession
from advisor.api.measurements.campaigns import find_campaign, list_campaigns
from advisor.campaign.status import COLUMNS, CampaignStatus, CellFailure, cell_failures
from advisor.dashboard.access import DeniedError, own_form, role
from advisor.dashboard.site import Site, answer, links_of, site_of
from knowledge.domain.errors import InputError

router = APIRouter()
_MOST_FAILURES = 30
"""Failures that a page shows."""
_WIDTH = 200.0
"""Width of the bar of a stack, in SVG units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """A stack or a node with its numbers of cells, and the parts of its bar: column, position and width."""

    name: str
    counts: dict[str, int]
    parts: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignView:
    """A campaign.

    Attributes:
        name: Its name.
        state: ``running``, ``measured``, ``complete``, ``incomplete`` or ``cancelled``.
        measured: Number of cells with observations.
        total: Number of cells.
        stacks: The stacks, in order of the plan.
        nodes: The nodes that have run a task.
        observations: Number of observations by status.
        failures: The newest failures, with their error output.
        more_failures: Number of failures that the page leaves out.
        remarks: Problems, one sentence each.
        command: The command line that prints the same.
    """

    name: str
    state: str
    measured: int
    total: int
    stacks: tuple[ProgressRow, ...]
    nodes: tuple[ProgressRow, ...]
    observations: dict[str, int]
    failures: tuple[CellFailure, ...]
    more_failures: int
    remarks: tuple[str, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEntry:
    """A campaign in the list."""

    name: str
    state: str
    measured: int
    total: int
    failed: int


def campaign_entries(site: Site) -> tuple[CampaignEntry, ...]:
    """Return the campaigns next to the knowledge base, those under way first."""
    statuses = list_campaigns(knowledge=site.knowledge, warn=lambda *_: None)
    return tuple(
        CampaignEntry(name=s.name, state=s.state, measured=s.measured, total=s.total.total(), failed=s.total["failed"])
        for s in sorted(statuses, key=lambda s: (s.state != "running", s.name))
    )


def open_named(site: Site, name: str) -> CampaignSession:
    """Return a campaign by its whole name.

    Raises:
        DeniedError: If there is none.
    """
    try:
        session = find_campaign(name, knowledge=site.knowledge, warn=lambda *_: None)
    except InputError:
        # Its message names a directory of the server.
        raise DeniedError(404, f"there is no campaign `{name[:80]}`", "the list has all campaigns") from None
    if session.plan.name != name:
        raise DeniedError(404, f"there is no campaign `{name[:80]}`", "the list has all campaigns")
    return session


def campaign_view(site: Site, name: str) -> CampaignView:
    """Return the progress of a campaign."""
    session = open_named(site, name)
    status = session.stored_status()
    failures = cell_failures(session.directory, session.plan)
    return CampaignView(
        name=status.name,
        state=status.state,
        measured=status.measured,
        total=status.total.total(),
        stacks=_rows(status, "stacks"),
        nodes=_rows(status, "nodes"),
        observations=dict(status.observations),
        failures=failures[:_MOST_FAILURES],
        more_failures=max(0, len(failures) - _MOST_FAILURES),
        remarks=status.remarks,
        command=site.command("pi", "status", status.name, "--watch"),
    )


def _rows(status: CampaignStatus, name: str) -> tuple[ProgressRow, ...]:
    rows = status.stacks if name == "stacks" else status.nodes
    listed = []
    for row in rows:
        total, at, parts = sum(row.counts.values()) or 1, 0.0, []
        for column in ("done", "failed", "running", "not run", "queued"):
            width = round(_WIDTH * row.counts[column] / total, 1)
            if width:
                parts.append((column.replace(" ", "-"), round(at, 1), width))
            at += width
        counts = {column: row.counts[column] for column in COLUMNS}
        listed.append(ProgressRow(name=row.name, counts=counts, parts=tuple(parts)))
    return tuple(listed)


@router.get("/campaigns", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request, name: str = "") -> HTMLResponse:
    """Show the campaigns, or one of them."""
    site = site_of(request)
    view = campaign_view(site, name) if name else None
    if view is not None and request.headers.get("hx-request"):
        return answer(request, "campaign_part.html", page="campaigns", view=view, columns=COLUMNS)
    entries = campaign_entries(site)
    return answer(request, "campaigns.html", page="campaigns", view=view, entries=entries, columns=COLUMNS)


@router.get("/api/campaigns")
def records(request: Request) -> tuple[CampaignEntry, ...]:
    """List the campaigns next to the knowledge base."""
    return campaign_entries(site_of(request))


@router.get("/api/campaigns/{name}")
def record(request: Request, name: str) -> CampaignView:
    """Return the progress of a campaign, and its failures."""
    return campaign_view(site_of(request), name)


@router.post("/campaigns/{name}/cancel", include_in_schema=False, dependencies=[Depends(role("runner"))])
async def cancel(request: Request, name: str) -> Response:
    """Cancel the running and waiting tasks of a campaign."""
    await own_form(request)
    return _start(request, "cancel", name)


@router.post("/campaigns/{name}/retry", include_in_schema=False, dependencies=[Depends(role("runner"))])
async def retry(request: Request, name: str) -> Response:
    """Submit the missing tasks of a campaign again."""
    await own_form(request)
    return _start(request, "retry", name, "--failed")


def _start(request: Request, command: str, name: str, *options: str) -> Response:
    """Start a command of `advisor pi` for a campaign, which continues if the dashboard ends."""
    site = site_of(request)
    open_named(site, name)
    if site.knowledge is not None:
        options += ("--knowledge", site.knowledge)
    words = [sys.executable, "-P", "-m", "advisor", "pi", command, *options, "--", name]
    subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    return RedirectResponse(links_of(request).page("campaigns", name=name), status_code=303)
