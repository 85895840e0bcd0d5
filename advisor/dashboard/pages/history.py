"""History: one indicator and framework on a machine over time, with the changes of its speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from advisor.dashboard.access import DeniedError
from advisor.dashboard.site import Site, answer, site_of
from advisor.dashboard.snapshot import Snapshot
from advisor.report.axes import LogAxis, TimeAxis
from advisor.report.history import change_text, title_of
from knowledge.domain.identity import content_hash
from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.evidence.history import HistoryPoint, SeriesFilter
from knowledge.evidence.history_changes import SeriesHistory, SpeedChange, load_histories

router = APIRouter()
_MOST_SERIES = 60
"""Series that the page lists."""
_MOST_POINTS = 1500
"""Points that the plot shows; of more, the newest."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 860.0, 320.0, 64.0, 36.0, 12.0
"""Size of the plot, of the space for its axes, and of its margin, in SVG units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEntry:
    """A series in the list.

    Attributes:
        identity: Identifier in addresses.
        title: Framework, indicator and settings.
        machine: Machine, with its parts and its source.
        framework: Distribution that provides the backend.
        label: Label of the indicator run.
        points: Number of measurements.
        newest: Time of the newest one, ISO 8601.
        seconds: Seconds per call of the newest one.
        changes: Number of changes of speed.
    """

    identity: str
    title: str
    machine: str
    framework: str
    label: str
    points: int
    newest: str
    seconds: float
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(WithRatio):
    """A change to a slower speed.

    Attributes:
        series: Identifier of the series.
        title: Framework, indicator and settings.
        machine: Machine, with its parts and its source.
        time: Time of the first measurement after it, ISO 8601.
        ratio: Speed after it relative to the speed before it.
        text: Its size and what it is attributed to, in words.
    """

    series: str
    title: str
    machine: str
    time: str
    ratio: Ratio
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedPoint:
    """A measurement in the plot: its position, and what it is."""

    x: float
    y: float
    time: str
    seconds: float
    spread: float
    rounds: int
    block: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedChange:
    """A change of speed in the plot: its position, and its text."""

    x: float
    time: str
    text: str
    is_slower: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesView:
    """One series with its plot.

    Attributes:
        entry: The series.
        points: Its points, oldest first.
        changes: The changes of its speed, oldest first.
        left_out: Number of older points that are left out.
        command: The command line that prints the same.
    """

    entry: SeriesEntry
    points: tuple[PlottedPoint, ...]
    changes: tuple[PlottedChange, ...]
    left_out: int
    command: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """Histories that a filter selects.

    Attributes:
        is_ready: Whether the histories were read already.
        machines: Choices of the filter.
        frameworks: Choices of the filter.
        series: The series, those with a change first.
        more: Number of series that the list leaves out.
        regressions: Changes to slower speeds, newest first.
    """

    is_ready: bool
    machines: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    series: tuple[SeriesEntry, ...] = ()
    more: int = 0
    regressions: tuple[Regression, ...] = ()


def history_snapshot(site: Site) -> Snapshot[tuple[SeriesHistory, ...]]:
    """Return the histories of the knowledge base, computed again in the background when it changes."""
    snapshot: Snapshot[tuple[SeriesHistory, ...]] = site.memory.setdefault(
        "histories",
        Snapshot(
            lambda: load_histories(site.store, SeriesFilter(with_shipped=True)),
            lambda: [block.state for block in site.store.blocks()],
        ),
    )
    return snapshot


def regressions(site: Site) -> tuple[Regression, ...] | None:
    """Return the changes of all histories to slower speeds, newest first; ``None`` if they are not read yet."""
    histories = history_snapshot(site).get()
    return None if histories is None else slower_changes(histories)


def slower_changes(histories: Sequence[SeriesHistory]) -> tuple[Regression, ...]:
    """Return the changes of some histories to slower speeds, newest first."""
    slower = [
        (own, change)
        for own in histories
        for change in own.changes
        if change.place.ratio.speedup < 1 and change.attribution.is_of_speed
    ]
    slower.sort(key=lambda pair: pair[1].time, reverse=True)
    return tuple(_regression(own, change) for own, change in slower)


def _regression(own: SeriesHistory, change: SpeedChange) -> Regression:
    return Regression(
        series=identity_of(own),
        title=title_of(own.series),
        machine=own.series.machine_text,
        time=change.time.isoformat(timespec="seconds"),
        ratio=change.place.ratio,
        text=change_text(change),
    )


def identity_of(own: SeriesHistory) -> str:
    """Return the identifier of a series in addresses."""
    return content_hash(asdict(own.series.key))[:16]


def history_view(
    site: Site, *, machine: str = "", framework: str = "", indicator: str = "", patience_seconds: float = 0.1
) -> HistoryView:
    """Return the histories that a filter selects; empty texts select all."""
    histories = history_snapshot(site).get(patience_seconds=patience_seconds)
    if histories is None:
        return HistoryView(is_ready=False)
    selected = [
        own
        for own in histories
        if machine in ("", own.series.key.machine)
        and framework in ("", own.series.key.framework)
        and indicator.lower() in own.series.key.label.lower()
    ]
    selected.sort(key=lambda own: (-len(own.changes), -len(own.series.points)))
    return HistoryView(
        is_ready=True,
        machines=tuple(sorted({own.series.key.machine for own in histories})),
        frameworks=tuple(sorted({own.series.key.framework for own in histories})),
        series=tuple(map(_entry, selected[:_MOST_SERIES])),
        more=max(0, len(selected) - _MOST_SERIES),
        regressions=slower_changes(selected),
    )


def _entry(own: SeriesHistory) -> SeriesEntry:
    series = own.series
    return SeriesEntry(
        identity=identity_of(own),
        title=title_of(series),
        machine=series.machine_text,
        framework=series.key.framework,
        label=series.key.label,
        points=len(series.points),
        newest=series.points[-1].time.isoformat(timespec="seconds"),
        seconds=series.points[-1].seconds,
        changes=len(own.changes),
    )


def series_view(site: Site, identity: str) -> SeriesView:
    """Return one series with its plot.

    Raises:
        DeniedError: If there is no such series.
    """
    histories = history_snapshot(site).get(patience_seconds=30.0) or ()
    own = next((own for own in histories if identity_of(own) == identity), None)
    if own is None:
        raise DeniedError(404, f"there is no series `{identity}`", "the list of histories has all")
    points = own.series.points[-_MOST_POINTS:]
    x = TimeAxis.of([p.time for p in points], first=_LEFT, last=_WIDTH - _EDGE)
    y = LogAxis.of([p.seconds for p in points], first=_HEIGHT - _BOTTOM, last=_EDGE)
    key = own.series.key
    words = ["--machine", key.machine, "--framework", key.framework, "--indicator", key.label.partition("@")[0]]
    return SeriesView(
        entry=_entry(own),
        points=tuple(_plotted(point, x, y) for point in points),
        changes=tuple(
            PlottedChange(
                x=x.place(change.time),
                time=change.time.isoformat(timespec="minutes"),
                text=change_text(change),
                is_slower=change.place.ratio.speedup < 1,
            )
            for change in own.changes
        ),
        left_out=len(own.series.points) - len(points),
        command=site.command("pi", "history", "--with-shipped", *words),
        x_ticks=x.texts(),
        y_ticks=y.texts(),
    )


def _plotted(point: HistoryPoint, x: TimeAxis, y: LogAxis) -> PlottedPoint:
    return PlottedPoint(
        x=x.place(point.time),
        y=y.place(point.seconds),
        time=point.time.isoformat(timespec="seconds"),
        seconds=point.seconds,
        spread=point.spread,
        rounds=point.rounds,
        block=point.block,
    )


PLOT: dict[str, Any] = {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "bottom": _HEIGHT - _BOTTOM, "edge": _EDGE}
"""Size of the plot for its template."""


@router.get("/history", response_class=HTMLResponse, include_in_schema=False)
def page(
    request: Request, machine: str = "", framework: str = "", indicator: str = "", series: str = ""
) -> HTMLResponse:
    """Show histories, or one of them."""
    site = site_of(request)
    view = history_view(site, machine=machine, framework=framework, indicator=indicator)
    return answer(
        request,
        "history.html",
        page="history",
        view=view,
        one=series_view(site, series) if series else None,
        plot=PLOT,
        chosen={"machine": machine, "framework": framework, "indicator": indicator},
    )


@router.get("/api/history")
def record(request: Request, machine: str = "", framework: str = "", indicator: str = "") -> HistoryView:
    """Return the histories that a filter selects, and the changes to slower speeds."""
    return history_view(
        site_of(request), machine=machine, framework=framework, indicator=indicator, patience_seconds=60.0
    )


@router.get("/api/history/{series}")
def series_record(request: Request, series: str) -> SeriesView:
    """Return one history: its measurements, and the changes of its speed."""
    return series_view(site_of(request), series)
