"""Divides the time of a trace among its operations.

The operations of a thread are nested: an operation's own time is its duration without the operations inside it. Each
moment is divided equally among the operations that run at that moment on different threads, so that the times add up
to the duration of the trace. Operations of a higher level hide those of a lower one: while an accelerator works, the
time belongs to its kernels, and not to the thread that waits for them.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from knowledge.domain.workload import Direction

MAX_OPERATIONS = 1_000_000
"""Maximum number of operations that are read from a trace: about 200 MB of memory."""
_SLICE = 50_000


class Level(IntEnum):
    """Who works; a higher level hides the lower ones."""

    BACKGROUND = 0
    HOST = 1
    DEVICE = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """The performance indicator that stands for an operation.

    Attributes:
        indicator: Name of the indicator.
        parameters: Its parameters, sorted by name; empty if they are unknown.
        dtype: Element type, or empty.
        direction: Pass, or empty.
    """

    indicator: str
    parameters: tuple[tuple[str, int | str], ...] = ()
    dtype: str = ""
    direction: Direction = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operation.

    Attributes:
        name: Name in the trace.
        layer: Layer of software.
        claim: Indicator that stands for it and everything inside it; ``None`` if there is none.
        inherited: Whether its layer applies to everything inside it.
    """

    name: str
    layer: str
    claim: Claim | None = None
    inherited: bool = False


@dataclass(slots=True, kw_only=True)
class Division:
    """The time of a trace, divided. Times are in the unit of the trace.

    Attributes:
        total: Duration of the trace or of its steps.
        idle: Time in which no operation ran.
        claims: Time of each claim.
        calls: Operations of each claim.
        layers: Time of each layer.
        kernels: Time of each operation by its name.
    """

    total: float
    idle: float
    claims: defaultdict[Claim, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[Claim] = field(default_factory=Counter)
    layers: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    kernels: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class Timeline:
    """The operations of a trace, in compact arrays.

    Attributes:
        is_full: Whether operations were left out, because there were too many.
    """

    def __init__(self, maximum: int = MAX_OPERATIONS) -> None:
        """Create an empty timeline.

        Args:
            maximum: Maximum number of operations.
        """
        self._maximum = maximum
        self.is_full = False
        self._start, self._end = array("d"), array("d")
        self._thread, self._kind, self._level, self._link = array("i"), array("i"), array("b"), array("q")
        self._threads: dict[Hashable, int] = {}
        self._kinds: dict[Kind, int] = {}

    def __len__(self) -> int:
        return len(self._start)

    def add(
        self, kind: Kind, thread: Hashable, start: float, duration: float, *, level: Level = Level.HOST, link: int = 0
    ) -> None:
        """Add an operation; it is left out if the timeline is full.

        Args:
            kind: Its kind.
            thread: Thread, or stream of an accelerator, that it ran on.
            start: Start time.
            duration: Duration in the same unit.
            level: Who worked.
            link: Number that a kernel of an accelerator shares with the operation that started it; 0 for none.
        """
        if len(self) >= self._maximum:
            self.is_full = True
            return
        self._start.append(start)
        self._end.append(start + max(duration, 0.0))
        self._thread.append(self._threads.setdefault((level, thread), len(self._threads)))
        self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))
        self._level.append(level)
        self._link.append(link)

    def bounds(self) -> tuple[float, float]:
        """Return the start of the first and the end of the last operation."""
        return (min(self._start), max(self._end)) if len(self) else (0.0, 0.0)

    def divide(self, window: tuple[float, float] | None = None) -> Division:
        """Divide the time of a window among the operations.

        Args:
            window: Start and end; by default those of all operations.
        """
        first, last = window or self.bounds()
        kinds = list(self._kinds)
        segments, resolutions = self._segments(kinds)
        by_row, idle = _divide(segments, np.asarray(self._level), (first, last))
        division = Division(total=last - first, idle=idle)
        for row, time in enumerate(by_row.tolist()):
            claim, layer, counts = resolutions[row]
            if counts and claim is not None and first <= self._start[row] < last:
                division.calls[claim] += 1
            if time > 0:
                if claim is not None:
                    division.claims[claim] += time
                division.layers[layer] += time
                division.kernels[kinds[self._kind[row]].name] += time
        return division

    def _segments(self, kinds: list[Kind]) -> tuple[_Segments, _Resolutions]:
        """Return when each operation itself ran, and the claim and layer of each operation."""
        starts, ends = np.asarray(self._start), np.asarray(self._end)
        order = np.lexsort((-ends, starts, np.asarray(self._thread)))
        segments, resolutions = _Segments(), _Resolutions(len(self))
        stack: list[list[float]] = []  # Row, time up to which its own time is counted, end.
        thread = -1

        def close(until: float) -> None:
            while stack and stack[-1][2] <= until:
                row, cursor, end = stack.pop()
                segments.add(int(row), cursor, end)
                if stack:
                    stack[-1][1] = max(stack[-1][1], end)

        for row in order:
            if self._thread[row] != thread:
                close(float("inf"))
                thread = self._thread[row]
            start, end = self._start[row], self._end[row]
            close(start)
            parent = int(stack[-1][0]) if stack else -1
            if stack:
                cursor, parent_end = stack[-1][1:]
                segments.add(parent, cursor, start)
                end = min(end, parent_end)
            self._resolve(kinds, int(row), parent, resolutions)
            stack.append([int(row), start, end])
        close(float("inf"))
        self._resolve_links(kinds, resolutions)
        return segments, resolutions

    def _resolve(self, kinds: list[Kind], row: int, parent: int, resolutions: _Resolutions) -> None:
        """Set the claim and layer of an operation that is inside another one, or in none (-1)."""
        kind = kinds[self._kind[row]]
        if parent < 0:
            resolutions[row] = (kind.claim, kind.layer, kind.claim is not None)
            return
        claim, layer, counts = resolutions[parent]
        outer = kinds[self._kind[parent]]
        own = layer if outer.inherited else kind.layer
        if claim is None:
            resolutions[row] = (kind.claim, own, kind.claim is not None)
        elif kind.claim is not None and kind.name == outer.name and kind.claim != claim:
            # Automatic mixed precision calls the operation again with converted arrays.
            resolutions[parent] = (claim, layer, False)
            resolutions[row] = (kind.claim, own, counts)
        else:
            resolutions[row] = (claim, own, False)

    def _resolve_links(self, kinds: list[Kind], resolutions: _Resolutions) -> None:
        """Give kernels of an accelerator the claims of the operations that started them."""
        links, levels = np.asarray(self._link), np.asarray(self._level)
        device = np.flatnonzero((levels == Level.DEVICE) & (links != 0))
        host = np.flatnonzero((levels != Level.DEVICE) & (links != 0))
        if not len(device) or not len(host):
            return
        host = host[np.argsort(links[host], kind="stable")]
        host_links = links[host]
        for row, position in zip(device.tolist(), np.searchsorted(host_links, links[device]).tolist(), strict=True):
            if position < len(host) and host_links[position] == links[row] and resolutions[row][0] is None:
                claim, layer, _ = resolutions[int(host[position])]
                own = kinds[self._kind[row]].layer
                resolutions[row] = (claim, layer if own == "framework" and layer != "other" else own, False)


class _Resolutions:
    """Claim and layer of each operation, and whether it counts as a call; each combination is stored once."""

    def __init__(self, count: int) -> None:
        first: tuple[Claim | None, str, bool] = (None, "other", False)
        self._numbers = array("i", bytes(4 * count))
        self._values = [first]
        self._indices = {first: 0}

    def __getitem__(self, row: int) -> tuple[Claim | None, str, bool]:
        return self._values[self._numbers[row]]

    def __setitem__(self, row: int, value: tuple[Claim | None, str, bool]) -> None:
        if value not in self._indices:
            self._indices[value] = len(self._values)
            self._values.append(value)
        self._numbers[row] = self._indices[value]


class _Segments:
    """Times in which an operation itself ran, and none inside it."""

    def __init__(self) -> None:
        self.rows, self.starts, self.ends = array("i"), array("d"), array("d")

    def add(self, row: int, start: float, end: float) -> None:
        """Add a segment, unless it is empty."""
        if end > start:
            self.rows.append(row)
            self.starts.append(start)
            self.ends.append(end)


def _divide(segments: _Segments, levels: Any, window: tuple[float, float]) -> tuple[Any, float]:
    """Return the time of each operation, shape (operations,) as that of the levels, and the time without any."""
    rows = np.asarray(segments.rows)
    starts, ends = np.asarray(segments.starts), np.asarray(segments.ends)
    times = np.zeros(len(levels))
    idle = 0.0
    # Some of the segments at a time: the arrays of a long trace would take a gigabyte.
    inside = np.sort(np.clip(starts, *window)) if len(starts) else starts
    borders = np.unique(np.concatenate([[window[0]], inside[_SLICE::_SLICE], [window[1]]]))
    for first, last in itertools.pairwise(borders.tolist()):
        selected = np.flatnonzero((ends > first) & (starts < last))
        slice_rows = rows[selected]
        slice_times, slice_idle = _divide_slice(
            np.clip(starts[selected], first, last),
            np.clip(ends[selected], first, last),
            levels[slice_rows],
            last - first,
        )
        np.add.at(times, slice_rows, slice_times)
        idle += slice_idle
    return times, idle


def _divide_slice(starts: Any, ends: Any, levels: Any, total: float) -> tuple[Any, float]:
    """Return the time of each segment, shape (segments,), and the time without any of a window's total duration."""
    moments = np.unique(np.concatenate([starts, ends]))
    if len(moments) < 2:
        return np.zeros(len(starts)), total
    durations = np.diff(moments)
    first, last = np.searchsorted(moments, starts), np.searchsorted(moments, ends)
    times = np.zeros(len(starts))
    hidden = np.zeros(len(durations), dtype=bool)
    for level in sorted(Level, reverse=True):
        selected = levels == level
        if not selected.any():
            continue
        changes = np.zeros(len(moments))
        np.add.at(changes, first[selected], 1)
        np.add.at(changes, last[selected], -1)
        running = np.cumsum(changes)[:-1]
        weights = np.where(hidden | (running < 0.5), 0.0, durations / np.maximum(running, 1))
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        times[selected] = sums[last[selected]] - sums[first[selected]]
        hidden |= running > 0.5
    return times, float(total - durations[hidden].sum())
