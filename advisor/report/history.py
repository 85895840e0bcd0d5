"""Histories of measurements as text, as JSON, and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from typing import Any

from advisor.domain.words import (
    count,
    duration_text,
    indicator_text,
    interval_text,
    ratio_text,
    slowdown_text,
)
from advisor.report.layout import Layout, TextRow, labelled, rendered
from knowledge.domain.observation import Scalar
from knowledge.evidence.attribution import Attribution, ConditionChange
from knowledge.evidence.change_points import FIRST_LOOK
from knowledge.evidence.history import Series
from knowledge.evidence.history_changes import SeriesHistory, SpeedChange

SCHEMA_VERSION = 1
MOST_PLOTTED = 12
"""Largest number of series in a plot."""
_TWICE = 2.0
_LONGEST = 60
_MOST_UNCHANGED = 20
"""Largest number of series without a change that the text lists."""
_MOST_CONDITIONS = 6
"""Largest number of conditions that the text lists for a change."""
_ORDER = "points are in order of the times that were stated"
_UNITS = {"megahertz": "MHz", "celsius": "degrees Celsius", "percent": "%", "seconds": "s"}
_TITLES = {
    "stack": "the stack changed",
    "interpreter": "the interpreter changed",
    "driver": "the driver changed",
    "kernel": "the kernel or the C library changed",
    "settings": "settings of the environment changed",
    "clocks": "the clocks changed",
    "battery": "the power supply changed",
    "neighbours": "other programs or virtual machines used the processor",
    "machine": "the machine changed",
    "sampler": "not a change of speed: it was measured in another way",
    "several": "several things changed at once",
    "unknown": "nothing that is recorded changed",
}


def history_text(histories: Sequence[SeriesHistory], layout: Layout) -> str:
    """Return a block for each series: what it is, its newest value, and its changes, the newest first.

    Of many series without a change, only the number is stated.
    """
    if not histories:
        return "no measurements: `advisor pi run` measures this machine, `--with-shipped` reads what ships"
    unchanged = [own for own in histories if not own.changes]
    listed = histories if len(unchanged) <= _MOST_UNCHANGED else [own for own in histories if own.changes]
    blocks = [list(_block(own)) for own in listed]
    if len(listed) < len(histories):
        short = sum(len(own.series.points) < FIRST_LOOK for own in unchanged)
        text = (
            f"{len(unchanged):,} series, {short:,} of them with fewer than {FIRST_LOOK} measurements: too few to see a "
            "change; `--indicator`, `--framework` and `--machine` select, `--format json` has all"
        )
        blocks.append(labelled("unchanged", [text]))
    return rendered(blocks, layout)


def _block(own: SeriesHistory) -> Iterator[TextRow]:
    series = own.series
    newest = series.points[-1]
    throttled = "; the accelerator reduced its clocks" if newest.is_throttled else ""
    rows = [
        ("history", title_of(series)),
        ("machine", series.machine_text),
        (
            "measured",
            f"{count(len(series.points), 'time')}, {_day(series.points[0].time)} to {_day(newest.time)}; newest "
            f"{duration_text(newest.seconds)}{throttled}",
        ),
    ]
    if series.failures:
        rows.append(("failed", f"{count(series.failures, 'block')} without a successful run"))
    if series.misdated:
        counted = count(series.misdated, "point")
        rows.append(("left out", f"{counted} with a time that cannot be right: the clock was wrong"))
    rows += [
        ("gap", f"{_day(before)} to {_day(after)}: nothing was measured, or a clock was wrong; {_ORDER}")
        for before, after in series.gaps
    ]
    if series.jumps:
        counted = count(len(series.jumps), "measurement")
        text = f"changed by a day or more during {counted}, since {_day(series.jumps[0].time)}; {_ORDER}"
        rows.append(("clock", text))
    for label, text in rows:
        yield from labelled(label, [text])
    changes = [
        TextRow(cells=(_minute(change.time), change_text(change)), notes=tuple(_reasons(change.attribution)))
        for change in reversed(own.changes)
    ]
    yield from labelled("changes", changes or ["none"])


def title_of(series: Series) -> str:
    """Return the name of a series: the framework or the stack, the indicator, and the settings."""
    backend = series.key.stack or series.key.framework
    settings = f", {series.key.settings}" if series.key.settings else ""
    return f"{backend}: {indicator_text(series.key.label)}{settings}"


def change_text(change: SpeedChange) -> str:
    """Return the size of a change, its attribution, and the day on which it became certain."""
    ratio = change.place.ratio
    is_twice = ratio.speedup >= _TWICE
    size = (
        f"{ratio_text(ratio.speedup)} times as fast {interval_text(ratio)}"
        if is_twice
        else slowdown_text(ratio.inverse())
    )
    return f"{size}, certain since {_minute(change.certain_at)}: {_TITLES[change.attribution.kind]}"


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d}"


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _reasons(attribution: Attribution) -> Iterator[str]:
    """Yield what changed with the speed, what the other series say, and what would separate several conditions."""
    for change in attribution.changes[:_MOST_CONDITIONS]:
        yield f"{_name(change)}: {_value(change, change.before)} -> {_value(change, change.after)}"
    if rest := attribution.changes[_MOST_CONDITIONS:]:
        yield f"and {count(len(rest), 'other condition')}"
    if attribution.sharing or attribution.steady:
        counted = f"{attribution.sharing} changed, too, {attribution.steady} did not"
        yield f"other series of the machine with an unchanged stack: {counted}"
    if (run := attribution.measurement) is not None:
        stacks = " ".join(f'--stack "{stack}"' for stack in run.stacks)
        purpose = "shows whether it is the stack" if len(run.stacks) > 1 else "with one of them as before shows which"
        yield f"measuring {stacks} in one block {purpose}: about {run.minutes:g} minutes"


def _name(change: ConditionChange) -> str:
    words = [word for word in change.name.removesuffix("_mean").split("_") if word not in _UNITS]
    return " ".join(words)


def _value(change: ConditionChange, value: Scalar) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        unit = next((unit for word, unit in _UNITS.items() if word in change.name.split("_")), "")
        return f"{value:.4g} {unit}".rstrip()
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def history_record(histories: Sequence[SeriesHistory]) -> dict[str, Any]:
    """Return histories as JSON-ready values."""
    return {"schema_version": SCHEMA_VERSION, "series": [_record(own) for own in histories]}


def _record(own: SeriesHistory) -> dict[str, Any]:
    series = own.series
    return {
        **asdict(series.key),
        "failures": series.failures,
        "misdated": series.misdated,
        "gaps": [[before.isoformat(), after.isoformat()] for before, after in series.gaps],
        "clock_jumps": [point.block for point in series.jumps],
        "points": [
            {
                "time": point.time.isoformat(),
                "seconds": point.seconds,
                "spread": point.spread,
                "rounds": point.rounds,
                "throttled": point.is_throttled,
                "block": point.block,
            }
            for point in series.points
        ],
        "changes": [_change_record(change) for change in own.changes],
    }


def _change_record(change: SpeedChange) -> dict[str, Any]:
    ratio = change.place.ratio
    attribution = asdict(change.attribution)
    return {
        "time": change.time.isoformat(),
        "certain_at": change.certain_at.isoformat(),
        "point": change.place.start,
        "earliest_point": change.place.earliest,
        "latest_point": change.place.latest,
        "speed": {"ratio": ratio.speedup, "low": ratio.low, "high": ratio.high},
        "is_of_speed": change.attribution.is_of_speed,
        "attribution": attribution,
    }


def history_plot(histories: Sequence[SeriesHistory]) -> Callable[[Any], None]:
    """Return a function that draws a panel for each series on matplotlib's axes: its points and its changes."""

    def draw(panels: Any) -> None:
        for axes, own in zip(panels, histories, strict=True):
            _draw_series(axes, own)

    return draw


def _draw_series(axes: Any, own: SeriesHistory) -> None:
    points = own.series.points
    axes.plot([p.time for p in points], [p.seconds for p in points], "o", color="tab:blue", markersize=3)
    bounds = [0, *(change.place.start for change in own.changes), len(points)]
    for low, high in pairwise(bounds):
        part = points[low:high]
        if part:
            middle = sorted(p.seconds for p in part)[len(part) // 2]
            axes.plot([part[0].time, part[-1].time], [middle, middle], color="0.4", linewidth=1)
    for change in own.changes:
        ratio = change.place.ratio
        axes.axvline(change.time, color="tab:red", linewidth=1)
        label = f" {ratio_text(ratio.speedup)} {interval_text(ratio)}, {change.attribution.kind}"
        axes.annotate(label, (change.time, 0.97), xycoords=("data", "axes fraction"), va="top", fontsize=7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.yaxis.set_minor_formatter("{x:.3g}")
    axes.tick_params(axis="both", which="both", labelsize=7)
    axes.set_title(f"{title_of(own.series)}; {own.series.machine_text}", fontsize=8, loc="left")
    axes.set_ylabel("seconds a call", fontsize=7)
