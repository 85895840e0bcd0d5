"""Histories: the measurements of one indicator and framework on one machine over time, as series.

A block is one point of a series: its reference arm is what the operator regards as current. So the stack, the driver
and the kernel may change within a series; they are recorded conditions of its points. What would make times
incomparable makes another series instead: another size, element type or definition of the indicator, other settings of
the run, another resolution of the clock. What another source delivered is another series, too: it is another machine,
even if its parts are equal.

A machine is its hardware without what may change on it: the driver, the C library, the virtualisation, the numbers of
NUMA nodes and of logical processors, and the instructions and the memory that the kernel reports. If its profile has a
name that somebody gave it, the name is the machine, and the hardware under it is a recorded condition.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import DETECTED, HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import DAWNBENCH, PUBLISHED_BLOCKS, Observation, Scalar
from knowledge.evidence.block_evidence import shipped_blocks
from knowledge.evidence.conditions import spread
from knowledge.store.base import KnowledgeBase, StoredBlock

PACKAGE = "package "
"""Beginning of the names of conditions that are versions of packages."""
HARDWARE = "hardware "
"""Beginning of the names of conditions that are parts of the machine."""
DRIVER, LIBC = "driver", "C library"
"""Names of conditions that the hardware profile states and that may change on one machine."""
SAMPLE_SECONDS, RUN_SECONDS = "sample_seconds", "run_seconds"
"""Figures of a point: length of a sample, and time that one run of its process takes, both in seconds."""
_JUMP = "clock_jump_seconds"
"""Entry of an environment and figure of a point: by how much the system time was changed during a run, in seconds."""
_VARYING = frozenset({"load_before", "load_after", _JUMP, "clock_resolution_seconds"})
"""Entries of an environment that differ from run to run, or that make another series."""
_FIGURES = (
    *("cpu_clock_megahertz_mean", "cpu_temperature_celsius_mean", "other_cpu_percent_mean", "stolen_cpu_percent_mean"),
    *("gpu_clock_megahertz_mean", "gpu_temperature_celsius_mean", "throttled", "on_battery"),
)
_KIND = "history"
_FORMAT = "02"
"""Version of the cached points; raise it when the same observations give other points."""
_FIRST_YEAR = 2000
"""Measurements before this year were made by a machine whose clock was not set: it starts in 1970."""
_LONGEST_PAUSE = timedelta(days=366)
"""Time between two points from which it is a gap: a clock that was set back by years makes one, too."""
_LARGE_JUMP = timedelta(days=1)
"""Change of the clock during a run from which the time of its point may be wrong by a place in a daily series."""
_GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """The runs of one arm of a block at one indicator.

    Attributes:
        time: Median of the times at which they started, UTC.
        seconds: Median over the rounds of the median seconds per call.
        spread: Coefficient of variation of the medians of the rounds.
        rounds: Number of successful rounds.
        stack: Identity of the stack.
        hardware: Identity of the hardware profile.
        conditions: What was recorded of stack, machine and system, by name; it changes the speed or it does not.
        figures: What was measured of the machine during the runs, by name: medians over the rounds, but for the largest
            change of the system time.
        block: Name of the block.
    """

    time: datetime
    seconds: float
    spread: float
    rounds: int
    stack: str
    hardware: str
    conditions: Mapping[str, Scalar]
    figures: Mapping[str, float]
    block: str

    @property
    def is_throttled(self) -> bool | None:
        """Whether the accelerator reduced its clocks in most rounds; ``None`` if it was not recorded."""
        flag = self.figures.get("throttled")
        return None if flag is None else flag >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesKey:
    """What the points of a series have in common.

    Attributes:
        source: Name of the source that delivered them; empty for the user's own measurements.
        machine: Name of the machine, or the start of a hash of its parts if it has none.
        framework: Distribution that provides the backend.
        label: Label of the indicator run.
        settings: Run-time settings as text, such as ``threads=2``; empty for none.
        clock: Resolution of the clock that measured them, in seconds; 0 if it was not recorded.
        stack: Requirements that the stacks fulfil; empty for the reference arms of the blocks.
    """

    machine: str
    framework: str
    label: str
    settings: str = ""
    clock: float = 0.0
    stack: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The history of an indicator on a machine.

    Attributes:
        key: What its points have in common.
        points: Its points, in order of time.
        failures: Number of blocks in which no round succeeded.
        misdated: Number of points whose time cannot be right; they are left out.
    """

    key: SeriesKey
    points: tuple[HistoryPoint, ...]
    failures: int = 0
    misdated: int = 0

    @property
    def gaps(self) -> tuple[tuple[datetime, datetime], ...]:
        """Times of neighbouring points that are more than a year apart: nothing was measured, or a clock was wrong."""
        pairs = pairwise(point.time for point in self.points)
        return tuple((before, after) for before, after in pairs if after - before > _LONGEST_PAUSE)

    @property
    def jumps(self) -> tuple[HistoryPoint, ...]:
        """Points during whose runs the system time was changed by a day or more, so that they may be out of order."""
        return tuple(p for p in self.points if p.figures.get(_JUMP, 0.0) >= _LARGE_JUMP.total_seconds())

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.key.label.rpartition("/")[2]

    @property
    def device_key(self) -> tuple[str, str, str]:
        """Source, machine and device, which series that are measured side by side have in common."""
        return self.key.source, self.key.machine, self.device

    @property
    def machine_text(self) -> str:
        """The machine with the parts that it has now, and its source, for people."""
        parts = self.points[-1].conditions
        listed = [parts.get(HARDWARE + part) for part in ("accelerators", "processor")]
        source = f", source {self.key.source}" if self.key.source else ""
        return f"{self.key.machine} ({', '.join(str(part) for part in listed if part)}){source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFilter:
    """Which series are read; an empty text selects all.

    Attributes:
        indicator: Name of an indicator.
        framework: Distribution that provides the backend.
        machine: Name of a machine, of its processor or of its accelerator, or the start of its identity.
        stack: Requirements, separated by spaces, such as ``torch==2.13.0``: the arms with it instead of the reference
            arms.
        with_shipped: Whether blocks that ship with the program count, and published results: they are histories of
            other machines.
    """

    indicator: str = ""
    framework: str = ""
    machine: str = ""
    stack: str = ""
    with_shipped: bool = False


def load_series(
    store: KnowledgeBase, selection: SeriesFilter | None = None, *, now: datetime | None = None
) -> tuple[Series, ...]:
    """Return the series of a knowledge base, ordered by their keys.

    Observations are read only of blocks that changed since the last call; the points of the others are cached. Runs
    that failed are not points. Neither are points from the future, or from before the year 2000: the clock of the
    machine was wrong. Points with equal times are in order of their blocks.

    Args:
        store: The knowledge base.
        selection: Which series; by default all of the user's own machines.
        now: The present time; by default that of this machine.

    Raises:
        InputError: If the stack of the selection is not a list of requirements.
    """
    selection = selection or SeriesFilter()
    requirements = _requirements(selection.stack)
    latest = (now or datetime.now(UTC)) + timedelta(days=1)
    groups: dict[_Key, _Group] = defaultdict(_Group)
    for row in _rows(store, selection.with_shipped):
        if (row.reference or requirements) and _is_selected(row, selection, requirements):
            group = groups[row.key]
            group.add(row)
            group.is_selected = group.is_selected or row.is_on(selection.machine.lower())
    series = []
    for (machine, framework, label, settings, clock, source), group in sorted(groups.items(), key=itemgetter(0)):
        points = [row.point for row in group.rows.values() if row.point is not None]
        dated = [p for p in points if p.time.year >= _FIRST_YEAR and p.time <= latest]
        if group.is_selected and dated:
            key = SeriesKey(
                machine=machine,
                framework=framework,
                label=label,
                settings=settings,
                clock=clock,
                stack=" ".join(map(str, requirements)),
                source=source,
            )
            dated.sort(key=attrgetter("time", "block"))
            failures = len(group.failures - group.rows.keys())
            series.append(Series(key=key, points=tuple(dated), failures=failures, misdated=len(points) - len(dated)))
    return tuple(series)


_Key = tuple[str, str, str, str, float, str]
"""Machine, framework, label, settings, clock and source of a series."""


class _Group:
    """The rows of a series.

    Attributes:
        rows: Its rows by block.
        failures: Blocks in which an arm of it failed.
        is_selected: Whether it is on a selected machine, which may be named by what it had at some time.
    """

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}
        self.failures: set[str] = set()
        self.is_selected = False

    def add(self, row: _Row) -> None:
        """Add a row; of several arms of a block, such as an A/A control, the reference counts, or else the first."""
        if row.point is None:
            self.failures.add(row.block)
        elif row.block not in self.rows or row.rank < self.rows[row.block].rank:
            self.rows[row.block] = row


def _requirements(text: str) -> tuple[Requirement, ...]:
    try:
        return tuple(Requirement(word) for word in text.split())
    except InvalidRequirement:
        raise InputError(
            f"`{text}` is not a stack", hint="write requirements such as `torch==2.13.0`, separated by spaces"
        ) from None


def _is_selected(row: _Row, selection: SeriesFilter, requirements: Iterable[Requirement]) -> bool:
    if selection.indicator and row.label.partition("@")[0] != selection.indicator:
        return False
    if selection.framework and row.framework != canonicalize_name(selection.framework):
        return False
    versions = [(row.conditions.get(PACKAGE + canonicalize_name(r.name)), r) for r in requirements]
    return all(v is not None and r.specifier.contains(str(v), prereleases=True) for v, r in versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The runs of one arm of a block at one indicator, with what selects its series.

    Attributes:
        block: Name of the block.
        source: Name of the source that delivered it.
        arm: Number of the arm.
        reference: Whether it is the reference of its framework.
        framework: Distribution that provides the backend.
        label: Label of the indicator run.
        settings: Run-time settings as text.
        clock: Resolution of the clock, in seconds.
        conditions: Recorded conditions, which the arms' indicators share.
        machine: Name of the machine, or the start of a hash of its parts.
        names: Names of the machine, its processor and its accelerators, in lower case.
        identities: Identity of the hardware profile, and the hash of the machine's parts.
        point: The point; ``None`` if no round succeeded.
    """

    block: str
    source: str
    arm: int
    reference: bool
    framework: str
    label: str
    settings: str
    clock: float
    conditions: Mapping[str, Scalar]
    machine: str
    names: Collection[str]
    identities: Collection[str]
    point: HistoryPoint | None

    @property
    def rank(self) -> tuple[bool, int]:
        """Order of the arms of a block in a series."""
        return not self.reference, self.arm

    def is_on(self, machine: str) -> bool:
        """Whether a text in lower case names the machine, or begins its identity; an empty text names all."""
        is_prefix = len(machine) > 5 and any(identity.startswith(machine) for identity in self.identities)
        return not machine or machine in self.names or is_prefix

    @property
    def key(self) -> _Key:
        """What the rows of a series have in common."""
        return self.machine, self.framework, self.label, self.settings, self.clock, self.source


def _rows(store: KnowledgeBase, with_shipped: bool) -> Iterator[_Row]:
    """Yield the rows of all blocks that count."""
    blocks = [block for block in store.blocks() if block.trust > 0 and _is_history(block, with_shipped)]
    digests = {block.name: f"{_FORMAT}{block.digest[2:]}" for block in blocks}
    cached = store.load_derived(_KIND, digests.items()) if digests else {}
    new = {name: _records(store.observations(block=name)) for name in digests if name not in cached}
    store.store_derived(_KIND, [(name, digests[name], record) for name, record in new.items()])
    for block in blocks:
        yield from _rows_from(block, cached.get(block.name) or new[block.name])


def _is_history(block: StoredBlock, with_shipped: bool) -> bool:
    return with_shipped or not (block.name.startswith(PUBLISHED_BLOCKS) or block.name in shipped_blocks())


def _records(observations: Iterable[Observation]) -> dict[str, Any]:
    """Return the rows of a block as JSON-ready values."""
    runs: dict[tuple[int, str], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.indicator.name != DAWNBENCH:
            runs[o.arm, o.indicator.label].append(o)
    conditions: list[dict[str, Scalar]] = []
    machines: dict[str, dict[str, Any]] = {}
    rows = []
    for (arm, label), group in sorted(runs.items()):
        good = [o for o in group if o.status == "ok" and o.samples]
        first = (good or group)[0]
        own = _conditions(first)
        if own not in conditions:
            conditions.append(own)
        hardware = first.hardware.identity
        if hardware not in machines:
            machines[hardware] = _machine(first.hardware)
        rows.append(
            {
                "arm": arm,
                "reference": first.reference,
                "framework": first.framework,
                "label": label,
                "settings": settings_text(first.settings),
                "clock": _clock(first),
                "conditions": conditions.index(own),
                "stack": first.stack.identity,
                "hardware": hardware,
                "runs": _runs(good) if good else None,
            }
        )
    return {"conditions": conditions, "machines": machines, "rows": rows}


def _runs(good: Sequence[Observation]) -> dict[str, Any]:
    """Return what the successful rounds of an arm measured, as JSON-ready values."""
    medians = [statistics.median(o.samples) for o in good]
    figures = {
        name: statistics.median(values)
        for name in _FIGURES
        if (values := [o.telemetry[name] for o in good if name in o.telemetry])
    }
    figures[SAMPLE_SECONDS] = statistics.median(m * max(1, o.loops) for m, o in zip(medians, good, strict=True))
    figures[RUN_SECONDS] = statistics.median(o.warmup_seconds + sum(o.samples) * max(1, o.loops) for o in good)
    jumps = [abs(jump) for o in good if isinstance(jump := o.environment.get(_JUMP), int | float)]
    figures |= {_JUMP: max(jumps)} if jumps else {}
    times = sorted(_timestamp(o.started_at) for o in good)
    return {
        "time": statistics.median(times),
        "seconds": statistics.median(medians),
        "spread": spread(medians),
        "rounds": len(good),
        "figures": figures,
    }


def _clock(o: Observation) -> float:
    resolution = o.environment.get("clock_resolution_seconds")
    return float(resolution) if isinstance(resolution, int | float) else 0.0


def _timestamp(text: str) -> float:
    """Return a time in seconds since 1970; 0, which cannot be right, if it is not a time."""
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _conditions(o: Observation) -> dict[str, Scalar]:
    """Return what was recorded of stack, machine and system."""
    packages = {PACKAGE + package.name: package.version for package in o.stack.packages}
    environment = {
        name: value
        for name, value in sorted(o.environment.items())
        # Backends report the versions of their packages, too.
        if name not in _VARYING and PACKAGE + name not in packages
    }
    stack: dict[str, Scalar] = {"cuda": o.stack.cuda, "cudnn": o.stack.cudnn, "python": o.stack.python}
    hardware = o.hardware
    system: dict[str, Scalar] = {
        DRIVER: hardware.driver.version if hardware.driver else None,
        LIBC: f"{hardware.libc} {hardware.libc_version}".strip() or None,
        "virtualisation": hardware.virtualisation or None,
        "numa_nodes": hardware.numa_nodes,
        "logical_processors": hardware.cpu.threads,
    }
    parts = {HARDWARE + name: value for name, value in _parts(hardware).items()}
    return {**environment, **packages, **stack, **system, **parts}


def _parts(hardware: HardwareProfile) -> dict[str, Scalar]:
    """Return the parts of a machine that change only if it is replaced or rebuilt."""
    cpu = hardware.cpu
    accelerators = [f"{a.count} x {a.model}{a.partition and f' ({a.partition})'}" for a in hardware.accelerators]
    return {
        "processor": cpu.model or cpu.microarchitecture,
        "architecture": cpu.architecture,
        "sockets": cpu.sockets,
        "cores": cpu.cores,
        "accelerators": ", ".join(accelerators) or None,
        "nodes": hardware.nodes,
        "system": hardware.os,
    }


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return the run-time settings of a series as text, such as ``threads=2``; empty for none."""
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def machine_name(hardware: HardwareProfile) -> str:
    """Return the name of a machine; if its profile has no name of its own, the first digits of a hash of its parts."""
    return content_hash(_parts(hardware))[:12] if hardware.name == DETECTED else hardware.name


def _machine(hardware: HardwareProfile) -> dict[str, Any]:
    """Return the name and the identities of a machine, as JSON-ready values."""
    parts = content_hash(_parts(hardware))
    names = {
        hardware.name,
        hardware.cpu.microarchitecture,
        hardware.cpu.model,
        *(a.model for a in hardware.accelerators),
    }
    name = machine_name(hardware)
    return {
        "name": name,
        "names": sorted({own.lower() for own in (name, *names)} - {"", DETECTED}),
        "identities": [hardware.identity, parts],
    }


def _rows_from(block: StoredBlock, record: Mapping[str, Any]) -> Iterator[_Row]:
    for row in record["rows"]:
        machine = record["machines"][row["hardware"]]
        conditions = record["conditions"][row["conditions"]]
        runs = row["runs"]
        point = None
        if runs is not None:
            point = HistoryPoint(
                time=datetime.fromtimestamp(runs["time"], UTC),
                seconds=runs["seconds"],
                spread=runs["spread"],
                rounds=runs["rounds"],
                stack=row["stack"],
                hardware=row["hardware"],
                conditions=conditions,
                figures=runs["figures"],
                block=block.name,
            )
        yield _Row(
            block=block.name,
            source=block.source,
            arm=row["arm"],
            reference=row["reference"],
            framework=row["framework"],
            label=row["label"],
            settings=row["settings"],
            clock=row["clock"],
            conditions=conditions,
            machine=machine["name"],
            names=machine["names"],
            identities=machine["identities"],
            point=point,
        )
