"""Attribution: which recorded conditions changed together with the speed of a series.

A condition is a candidate if it changed at one of the likely places of the change and did not change back. The other
series of the machine at that time say more: a change that all of them have, although their stacks stayed the same, is
the machine's; one that none of them has is not the driver's or the kernel's. An attribution is what the records can
say, not a proof: if several candidates remain, a measurement separates them.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, get_args

from knowledge.domain.observation import Scalar
from knowledge.domain.ratio import NORMAL_QUANTILE
from knowledge.evidence.change_points import ChangePoint
from knowledge.evidence.conditions import BUSY_PERCENT, STOLEN_PERCENT
from knowledge.evidence.history import (
    DRIVER,
    HARDWARE,
    LIBC,
    PACKAGE,
    RUN_SECONDS,
    SAMPLE_SECONDS,
    HistoryPoint,
    Series,
)

CauseKind = Literal[
    "stack",
    "interpreter",
    "driver",
    "kernel",
    "settings",
    "clocks",
    "battery",
    "neighbours",
    "machine",
    "sampler",
    "several",
    "unknown",
]
"""What a change is attributed to: ``machine`` if it was replaced, or if all its series changed; ``clocks`` also for
heat and throttling; ``sampler`` if it was measured in another way; ``several`` if the records cannot separate them;
``unknown`` if none of the recorded conditions changed."""

_KINDS = get_args(CauseKind)
SHARED: frozenset[CauseKind] = frozenset({"driver", "kernel", "settings", "clocks", "battery", "neighbours"})
"""Kinds that change the speed of more than one series of a machine."""
_NEIGHBOURHOOD = 10
"""Number of points on each side of a change that say what is usual there."""
_CLOCK_CHANGE, _TEMPERATURE_CHANGE, _FLAG_CHANGE, _SAMPLE_CHANGE = 0.03, 8.0, 0.4, 3.0
"""Smallest change that counts: of a clock as a fraction, of a temperature in degrees, of a flag, and of the length of a
sample as a factor. The numbers are judgements."""
_SHARE, _CERTAIN = 0.5, 3.0
"""Share of a change that another series must have to share it, or else lack, and the number of its standard errors."""
_BUILD = ("blas", "cuda", "cudnn")
"""First words of conditions that follow from the packages."""
_ROUNDS, _START_SECONDS, _ENVIRONMENT_SECONDS = 8, 10.0, 60.0
"""A block with an A/A control, as `advisor pi run` measures it: its rounds, seconds for the start of a process, and for
an environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChange:
    """A recorded condition that changed together with the speed.

    Attributes:
        kind: What it belongs to.
        name: Its name, such as ``torch``, ``kernel`` or ``gpu_clock_megahertz_mean``.
        before: Its usual value before the change.
        after: Its usual value after it.
    """

    kind: CauseKind
    name: str
    before: Scalar
    after: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatingRun:
    """A measurement that says which of several conditions changed the speed.

    Attributes:
        label: Label of the indicator run.
        stacks: Requirements of the two stacks to measure in one block, old and new; one if the stack did not change.
        minutes: How long it takes, from the earlier runs.
    """

    label: str
    stacks: tuple[str, ...]
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What the records say about a change.

    Attributes:
        kind: What it is attributed to.
        changes: The conditions that changed together with the speed and were not ruled out, the stack first.
        sharing: Number of other series of the machine, with the same device and an unchanged stack, that changed, too.
        steady: Number of such series that did not.
        measurement: What separates several conditions; none if there is nothing to separate.
    """

    kind: CauseKind
    changes: tuple[ConditionChange, ...] = ()
    sharing: int = 0
    steady: int = 0
    measurement: SeparatingRun | None = None

    @property
    def is_of_speed(self) -> bool:
        """Whether one machine became faster or slower: it was neither replaced nor measured in another way."""
        is_replaced = any(change.kind == "machine" for change in self.changes)
        return self.kind != "sampler" and not is_replaced


def attribute(
    series: Series, change: ChangePoint, others: Iterable[Series] = (), *, span: tuple[int, int] | None = None
) -> Attribution:
    """Return which conditions changed together with the speed.

    Args:
        series: The series.
        change: One of its changes.
        span: Numbers of the first point after the change before, and of the first point of the next change; by default
            it is the only change.
        others: Other series of the knowledge base; those of other machines, other devices and the series itself do not
            count.
    """
    low, high = span or (0, len(series.points))
    before = series.points[max(low, change.earliest - _NEIGHBOURHOOD) : change.earliest]
    after = series.points[change.latest : min(high, change.latest + _NEIGHBOURHOOD)]
    # The likely places of two changes may overlap.
    before, after = before or series.points[change.start - 1 : change.start], after or series.points[change.start :][:1]
    changes = [*_recorded(series, change, before, after), *_measured(before, after, change.ratio.mean)]
    for decisive in ("machine", "sampler"):
        # A new machine has its own driver, kernel and clocks.
        if own := [c for c in changes if c.kind == decisive]:
            return Attribution(kind=decisive, changes=tuple(own))
    sharing = steady = 0
    for other in others:
        if other.device_key == series.device_key and other.key != series.key:
            shares = _shares(series, change, other)
            sharing += shares is True
            steady += shares is False
    kinds = {c.kind for c in changes}
    if sharing and not steady:
        kinds = kinds & SHARED or {"machine"}
    elif steady and not sharing and kinds - SHARED:
        kinds -= SHARED
    changes = [c for c in changes if c.kind in kinds]
    kind: CauseKind = next(iter(kinds)) if len(kinds) == 1 else "several" if kinds else "unknown"
    return Attribution(
        kind=kind,
        changes=tuple(sorted(changes, key=lambda c: (_KINDS.index(c.kind), c.name))),
        sharing=sharing,
        steady=steady,
        measurement=_separating_run(series, changes, before[-1], after[0]) if kind == "several" else None,
    )


def _recorded(
    series: Series, change: ChangePoint, before: Sequence[HistoryPoint], after: Sequence[HistoryPoint]
) -> list[ConditionChange]:
    """Return the recorded conditions that changed at a likely place of the change."""
    points = series.points
    places = range(change.earliest, min(change.latest + 1, len(points)))
    names = {
        name
        for place in places
        for name in {*points[place].conditions, *points[place - 1].conditions}
        if points[place].conditions.get(name) != points[place - 1].conditions.get(name)
    }
    packages = {_short(name) for name in names if name.startswith(PACKAGE)}
    changes = []
    for name in names:
        old, new = _usual(before, name), _usual(after, name)
        if old != new:
            kind = _kind_of(name, series.key.label)
            changes.append(ConditionChange(kind=kind, name=_short(name), before=old, after=new))
    if any(name.startswith(PACKAGE) for name in names):
        # What a framework reports about its build follows from the versions.
        own = (_backend(series.key.label), *_BUILD)
        changes = [c for c in changes if c.name in packages or c.name.partition("_")[0] not in own]
    return changes


def _usual(points: Sequence[HistoryPoint], name: str) -> Scalar:
    return Counter(p.conditions.get(name) for p in points).most_common(1)[0][0]


def _backend(label: str) -> str:
    return label.rpartition(" ")[2].partition("/")[0]


def _short(name: str) -> str:
    return name.removeprefix(PACKAGE).removeprefix(HARDWARE)


def _kind_of(name: str, label: str) -> CauseKind:
    """Return what a recorded condition belongs to."""
    if name.startswith(HARDWARE):
        return "machine"
    if name.startswith(PACKAGE) or name == "stack" or name.partition("_")[0] in _BUILD or name == _backend(label):
        return "stack"
    if name.startswith("python"):
        return "interpreter"
    if name in (DRIVER, "kernel"):
        return "driver" if name == DRIVER else "kernel"
    if name == LIBC:
        return "kernel"
    return "clocks" if name == "cpu_governor" else "settings"


def _measured(before: Sequence[HistoryPoint], after: Sequence[HistoryPoint], gain: float) -> list[ConditionChange]:
    """Return the figures of the machine that changed in the direction of the speed.

    Args:
        before: Points before the change.
        after: Points after it.
        gain: Logarithm of the ratio of speeds; negative is slower.
    """
    figures = {name: (_median(before, name), _median(after, name)) for name in _EFFECTS}
    changes = [
        ConditionChange(kind=kind, name=name, before=old, after=new)
        for name, (kind, least) in _EFFECTS.items()
        for old, new in (figures[name],)
        if old is not None and new is not None and math.copysign(1.0, gain) * _gain(name, old, new) > least
    ]
    names = {c.name for c in changes}
    # A higher temperature is slower only if it reduces the clocks.
    without_effect = {
        temperature
        for temperature, clock in _CLOCKS.items()
        if None not in figures[clock] and not names & {clock, "throttled"}
    }
    changes = [c for c in changes if c.name not in without_effect]
    old, new = _median(before, SAMPLE_SECONDS), _median(after, SAMPLE_SECONDS)
    # Where a sample is one call, its length is the speed.
    if old and new and min(abs(math.log(new / old)), abs(math.log(new / old) + gain)) > math.log(_SAMPLE_CHANGE):
        changes.append(ConditionChange(kind="sampler", name=SAMPLE_SECONDS, before=old, after=new))
    return changes


_EFFECTS: dict[str, tuple[CauseKind, float]] = {
    "cpu_clock_megahertz_mean": ("clocks", _CLOCK_CHANGE),
    "gpu_clock_megahertz_mean": ("clocks", _CLOCK_CHANGE),
    "throttled": ("clocks", _FLAG_CHANGE),
    "cpu_temperature_celsius_mean": ("clocks", _TEMPERATURE_CHANGE),
    "gpu_temperature_celsius_mean": ("clocks", _TEMPERATURE_CHANGE),
    "on_battery": ("battery", _FLAG_CHANGE),
    "stolen_cpu_percent_mean": ("neighbours", STOLEN_PERCENT),
    "other_cpu_percent_mean": ("neighbours", BUSY_PERCENT),
}
"""Figures that change the speed, with their kind and the smallest change that counts."""
_CLOCKS = {f"{device}_temperature_celsius_mean": f"{device}_clock_megahertz_mean" for device in ("cpu", "gpu")}


def _gain(name: str, old: float, new: float) -> float:
    """Return how much a figure changed towards a higher speed; the lower it is the better, but for clocks."""
    return new / old - 1 if "clock" in name and old > 0 else old - new


def _median(points: Sequence[HistoryPoint], name: str) -> float | None:
    values = [p.figures[name] for p in points if name in p.figures]
    return statistics.median(values) if values else None


def _shares(series: Series, change: ChangePoint, other: Series) -> bool | None:
    """Return whether another series changed at the same time; ``None`` if its points do not say, or its stack changed.

    It is compared by time: a few points before and after the likely places of the change.
    """
    start, end = series.points[change.earliest - 1].time, series.points[change.latest].time
    last = bisect_right(other.points, start, key=attrgetter("time"))
    first = bisect_left(other.points, end, key=attrgetter("time"))
    before = other.points[max(0, last - _NEIGHBOURHOOD) : last]
    after = other.points[first : first + _NEIGHBOURHOOD]
    if min(len(before), len(after)) < 2 or {p.stack for p in before} != {p.stack for p in after}:
        return None
    old, new = ([math.log(p.seconds) for p in points] for points in (before, after))
    gain = statistics.fmean(old) - statistics.fmean(new)
    error = math.sqrt(statistics.variance(old) / len(old) + statistics.variance(new) / len(new))
    share = gain / change.ratio.mean
    relative = error / abs(change.ratio.mean)
    if share > _CERTAIN * relative and share + NORMAL_QUANTILE * relative > _SHARE:
        return True
    return False if share + NORMAL_QUANTILE * relative < _SHARE else None


def _separating_run(
    series: Series, changes: Iterable[ConditionChange], before: HistoryPoint, after: HistoryPoint
) -> SeparatingRun:
    """Return the block that separates the stack from what changed with it, or repeats the measurement."""
    packages = sorted({series.key.framework, *(c.name for c in changes if c.kind == "stack")})
    stacks = [
        " ".join(f"{name}=={v}" for name in packages if (v := point.conditions.get(PACKAGE + name)) is not None)
        for point in (before, after)
    ]
    runs = after.figures[RUN_SECONDS] + _START_SECONDS
    seconds = len(set(stacks)) * _ENVIRONMENT_SECONDS + _ROUNDS * (1 + len(set(stacks))) * runs
    return SeparatingRun(label=series.key.label, stacks=tuple(dict.fromkeys(stacks)), minutes=math.ceil(seconds / 60))
