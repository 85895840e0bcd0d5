"""Overview: how much is measured of which framework on which hardware, what is new, and what needs attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from advisor.api.measurements.campaigns import newest_campaign_tasks
from advisor.dashboard.pages.history import Regression, regressions
from advisor.dashboard.site import Site, answer, device_name, machines, site_of
from knowledge.store.base import Coverage

router = APIRouter()
_MOST_MACHINES, _MOST_FRAMEWORKS, _MOST_BLOCKS, _MOST_REGRESSIONS = 24, 9, 10, 6
"""Rows and columns of the map, and rows of the lists, unless everything is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """What is known of one framework on one machine.

    Attributes:
        observations: Number of observations.
        failed: Number of runs that failed.
        newest: Start time of the newest one, ISO 8601.
        share: Place of the number between none (0) and the largest of the map (4), for its colour.
    """

    observations: int
    failed: int
    newest: str
    share: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """A row of the map: a processor or an accelerator, with a cell for each framework; ``None`` is not measured."""

    machine: str
    device: str
    cells: tuple[MapCell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestBlock:
    """A block, with what it measured.

    Attributes:
        name: Its name.
        machine: Processor or accelerator.
        frameworks: Its frameworks.
        observations: Number of observations.
        failed: Number of runs that failed.
        newest: Start time of the newest observation, ISO 8601.
        source: Who delivered it; empty for the user's own and for what ships.
    """

    name: str
    machine: str
    frameworks: tuple[str, ...]
    observations: int
    failed: int
    newest: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCampaign:
    """A campaign under way: its state, and the number of tasks by state."""

    name: str
    tasks: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the knowledge base knows.

    Attributes:
        observations: Number of observations.
        machines: Number of machines.
        blocks: Number of blocks.
        frameworks: Columns of the map.
        rows: Rows of the map.
        more_machines: Number of processors and accelerators that the map leaves out.
        more_frameworks: Frameworks that the map leaves out.
        newest: The newest blocks, newest first.
        campaigns: The campaigns that have run lately.
        regressions: The newest changes to slower speeds; ``None`` if the histories are not read yet.
        quarantined: Number of quarantined observations by source.
    """

    observations: int
    machines: int
    blocks: int
    frameworks: tuple[str, ...]
    rows: tuple[MapRow, ...]
    more_machines: int
    more_frameworks: tuple[str, ...]
    newest: tuple[NewestBlock, ...]
    campaigns: tuple[RunningCampaign, ...]
    regressions: tuple[Regression, ...] | None
    quarantined: dict[str, int]


def overview(site: Site, *, everything: bool = False) -> Overview:
    """Return what the knowledge base knows, at most a few seconds old; the whole map if everything is asked for."""
    return site.recent.get(("overview", everything), lambda: _overview(site, everything=everything))


def _overview(site: Site, *, everything: bool) -> Overview:
    store = site.store
    slower = regressions(site)
    groups = site.coverage(("hardware", "framework", "device"))
    profiles = machines(site, {group.key[0] for group in groups})
    cells: dict[tuple[str, str, str], list[Coverage]] = defaultdict(list)
    for group in groups:
        hardware, framework, device = group.key
        cells[device_name(profiles[hardware], device), device, framework].append(group)
    totals = Counter({key: sum(group.observations for group in members) for key, members in cells.items()})
    by_machine, by_framework = Counter[tuple[str, str]](), Counter[str]()
    for (machine, device, framework), number in totals.items():
        by_machine[machine, device] += number
        by_framework[framework] += number
    rows = [key for key, _ in by_machine.most_common(None if everything else _MOST_MACHINES)]
    columns = [name for name, _ in by_framework.most_common(None if everything else _MOST_FRAMEWORKS)]
    return Overview(
        observations=totals.total(),
        machines=len({group.key[0] for group in groups}),
        blocks=len(store.blocks()),
        frameworks=tuple(columns),
        rows=tuple(
            MapRow(
                machine=machine,
                device=device,
                cells=tuple(_cell(cells.get((machine, device, framework))) for framework in columns),
            )
            for machine, device in rows
        ),
        more_machines=len(by_machine) - len(rows),
        more_frameworks=tuple(sorted(by_framework.keys() - set(columns))),
        newest=_newest(site),
        campaigns=tuple(
            RunningCampaign(name=c.name, tasks=dict(c.tasks))
            for c in newest_campaign_tasks(knowledge=site.knowledge, warn=lambda *_: None)
        ),
        regressions=None if slower is None else slower[:_MOST_REGRESSIONS],
        quarantined={s.name: s.quarantined for s in store.sources() if s.quarantined},
    )


_STEPS = (1, 100, 1000, 5000)
"""Numbers of observations from which a cell of the map has the next colour."""


def _cell(groups: list[Coverage] | None) -> MapCell | None:
    if not groups:
        return None
    number = sum(group.observations for group in groups)
    return MapCell(
        observations=number,
        failed=sum(group.failed for group in groups),
        newest=max(group.newest for group in groups),
        share=sum(number >= step for step in _STEPS),
    )


def _newest(site: Site) -> tuple[NewestBlock, ...]:
    groups = site.coverage(("block", "source", "hardware", "device", "framework"))
    by_block: dict[str, list[Coverage]] = defaultdict(list)
    for group in groups:
        by_block[group.key[0]].append(group)
    newest = sorted(by_block.values(), key=lambda members: max(m.newest for m in members), reverse=True)[:_MOST_BLOCKS]
    profiles = machines(site, {member.key[2] for members in newest for member in members})
    return tuple(
        NewestBlock(
            name=members[0].key[0],
            machine=device_name(profiles[members[0].key[2]], members[0].key[3]),
            frameworks=tuple(sorted({member.key[4] for member in members})),
            observations=sum(member.observations for member in members),
            failed=sum(member.failed for member in members),
            newest=max(member.newest for member in members),
            source=members[0].key[1],
        )
        for members in newest
    )


@router.get("/overview", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request, all: bool = False) -> HTMLResponse:
    """Show the overview."""
    return answer(request, "overview.html", page="overview", view=overview(site_of(request), everything=all))


@router.get("/api/overview")
def record(request: Request, all: bool = False) -> Overview:
    """Return what the knowledge base knows: how much is measured of which framework on which hardware."""
    return overview(site_of(request), everything=all)
