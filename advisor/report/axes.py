"""Positions of the marks of plots, which templates draw as SVG: logarithmic axes, times, samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STEPS = (1, 2, 5)
_FEWEST_TICKS = 2
_NARROWEST = 0.0118
"""Least logarithm of the largest ratio of an axis around 1, so that the axis can name 1.01."""
_LEAST_MARGIN = 0.02
"""Least distance from a value to the end of a logarithmic axis, in decades: noise of a percent stays small."""
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """A logarithmic axis, from one position in a plot to another.

    Attributes:
        least: Smallest value.
        most: Largest value.
        first: Position of the smallest value.
        last: Position of the largest value.
    """

    least: float
    most: float
    first: float
    last: float

    @staticmethod
    def of(values: Iterable[float], *, first: float, last: float, share: float = 0.06) -> LogAxis:
        """Return an axis that covers positive values, and a share of its length more at each end."""
        listed = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        low, high = math.log10(min(listed)), math.log10(max(listed))
        margin = max(share * (high - low), _LEAST_MARGIN)
        return LogAxis(least=10 ** (low - margin), most=10 ** (high + margin), first=first, last=last)

    @staticmethod
    def around_one(ends: Iterable[float], *, first: float, last: float) -> LogAxis:
        """Return an axis of ratios with 1 in its middle, which covers 90 % of the ends of their intervals.

        So one large effect does not make all others look alike.
        """
        sizes = sorted(abs(math.log(end)) for end in ends)
        half = max(1.15 * sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))], _NARROWEST)
        return LogAxis(least=math.exp(-half), most=math.exp(half), first=first, last=last)

    def covers(self, value: float) -> bool:
        """Whether a value is on the axis."""
        return self.least <= value <= self.most

    def place(self, value: float) -> float:
        """Return the position of a value; one outside of the axis is at its end."""
        low, high = math.log10(self.least), math.log10(self.most)
        share = (math.log10(min(max(value, self.least), self.most)) - low) / (high - low)
        return round(self.first + share * (self.last - self.first), 1)

    def texts(self, most: int = 7) -> tuple[tuple[float, str], ...]:
        """Return positions and texts of round values, not more than a number of them."""
        digits = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        values = [step * 10.0**digit for digit in digits for step in _STEPS]
        inside = [value for value in values if self.least <= value <= self.most]
        if len(inside) > most:
            powers = [value for value in inside if math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)]
            inside = powers[:: math.ceil(len(powers) / most)] or inside[:most]
        if len(inside) < _FEWEST_TICKS:
            inside = _round_values(self.least, self.most)
        return tuple((self.place(value), f"{value:g}") for value in inside)


def _round_values(least: float, most: float) -> list[float]:
    """Return a few round values of a range that contains no simple ones, evenly spaced."""
    raw = (most - least) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * s for s in (1, 2, 5, 10) if unit * s >= raw)
    number = math.ceil(least / step)
    digits = max(0, -math.floor(math.log10(step)))
    values = []
    while number * step <= most:
        values.append(round(number * step, digits))
        number += 1
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """An axis of times.

    Attributes:
        start: First time.
        end: Last time.
        first: Position of the first time.
        last: Position of the last time.
    """

    start: datetime
    end: datetime
    first: float
    last: float

    @staticmethod
    def of(times: Sequence[datetime], *, first: float, last: float) -> TimeAxis:
        """Return an axis that covers times, at least an hour."""
        start, end = min(times), max(times)
        margin = max((end - start) * 0.03, timedelta(minutes=30))
        return TimeAxis(start=start - margin, end=end + margin, first=first, last=last)

    def place(self, moment: datetime) -> float:
        """Return the position of a time."""
        share = (moment - self.start) / (self.end - self.start)
        return round(self.first + min(max(share, 0.0), 1.0) * (self.last - self.first), 1)

    def texts(self, most: int = 6) -> tuple[tuple[float, str], ...]:
        """Return positions and texts of times at equal distances, not more than a number of them."""
        length = (self.end - self.start).total_seconds()
        steps = [_HOUR, 6 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 91 * _DAY, 182 * _DAY, 365 * _DAY]
        step = next((s for s in steps if length / s <= most), math.ceil(length / most / steps[-1]) * steps[-1])
        moment = math.ceil(self.start.timestamp() / step) * step
        ticks = []
        while moment <= self.end.timestamp():
            at = datetime.fromtimestamp(moment, UTC)
            ticks.append((self.place(at), f"{at:%H:%M}" if step < _DAY else f"{at:%Y-%m-%d}"))
            moment += step
        return tuple(ticks)
