"""The times of machines, given published times of a task that differ in their level.

A published time is that of a usual machine, divided by its speed relative to that machine. Each publisher, each
configuration and each accelerator has a level of its own at a task, and so has the user's program. The level of a task
also changes from year to year, because its software becomes faster: it is a random walk with a drift, and the user's
program is of the newest published year. Published times that are far from what the others predict count less.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knowledge.estimate.gain_fit import maximise_likelihood
from knowledge.estimate.gain_model import robust_inverse
from knowledge.estimate.gain_space import Array, equal
from knowledge.estimate.scaling_model import configuration_of
from knowledge.evidence.accelerator_rows import AcceleratorRow

CONFIGURATION_SPREAD, PUBLISHER_SPREAD = 0.23, 0.34
"""Least standard deviations of the logarithm of a time for a fixed number of items: between the configurations of a
publisher, and between publishers. The first is the median of 81 tasks in a precision, the second the root mean square
of 8: few were published by several (`python -m benchmarks.machine_times`). The user's program is of another one."""
WIDEST_SPREAD = math.log(4)
"""Largest standard deviation between configurations: beyond it, sources count different items, such as batches. The
bound is a judgement."""
LEVELS = (PUBLISHER, CONFIGURATION, ACCELERATOR, YEAR, ROW) = (
    *("publisher", "configuration", "accelerator"),
    *("year", "row"),
)
"""What has a level of its own at a task; the variance of a year is that of the step from one year to the next."""
DRIFT = "drift"
"""Name of the mean step of the logarithm of a time from one year to the next, with the variances."""
_LEAST = 0.01**2
_TYPICAL, _LOOSE = 0.1**2, 2.5
"""Mean and standard deviation, of its logarithm, of the prior of a variance."""
_DRIFT_STEPS = 2
_ANY_LEVEL = 10.0**2
"""Variance of the logarithm of a time of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePrior:
    """What is known of the times of published rows (m) and of machines (n), before the level of the rows is.

    Attributes:
        rows: The published rows of a task.
        places: Number of the accelerator of each row and machine (m + n,).
        years: Years of each row and machine since the first row (m + n,).
        speeds: Log speeds of accelerators at each task (k, a).
        errors: Their covariances (k, a, k, a).
        sizes: Log speeds of all accelerators of each row and machine together, relative to one (m + n,).
        losses: Their covariances (m + n, m + n).
        typical: Number of the task of the rows.
        configuration: Variance of the speed of an accelerator in a configuration.
    """

    rows: Sequence[AcceleratorRow]
    places: Array
    years: Array
    speeds: Array
    errors: Array
    sizes: Array
    losses: Array
    typical: int
    configuration: float

    def of_year(self, year: int) -> TimePrior:
        """Return the same for machines with software of a year; before the first row it is that of the first one."""
        number = len(self.rows)
        since = max(0, year - min(years_of(self.rows), default=year))
        return replace(self, years=np.array([*self.years[:number], *[since] * (len(self.years) - number)]))

    @property
    def levels(self) -> Array:
        """Logarithms of the time on the usual machine that follow from each row (m,)."""
        known, number = self.places[: len(self.rows)], len(self.rows)
        logs: Array = np.log([row.seconds for row in self.rows])
        levels: Array = logs + self.speeds[self.typical, known] + self.sizes[:number]
        return levels

    def effects(self) -> Array:
        """Return the covariances of the levels by errors of the speeds and sizes, and by the unknown time (m, m)."""
        known, number = self.places[: len(self.rows)], len(self.rows)
        of_speeds = self.errors[self.typical][:, self.typical][np.ix_(known, known)]
        effects: Array = of_speeds + self.losses[:number, :number] + _ANY_LEVEL
        return effects

    def noise(self) -> Array:
        """Return the covariances of the levels by the speed of accelerators in a configuration (m, m)."""
        return self.configuration * equal([(configuration_of(row), row.accelerator) for row in self.rows])

    def parts(self) -> dict[str, Array]:
        """Return the covariances of unit variance of the levels by each of :data:`LEVELS` (m, m)."""
        return {
            PUBLISHER: equal([row.publisher for row in self.rows]),
            CONFIGURATION: equal([configuration_of(row) for row in self.rows]),
            ACCELERATOR: equal([row.accelerator for row in self.rows]),
            YEAR: _walk(self.years[: len(self.rows)], self.years[: len(self.rows)]),
            ROW: np.eye(len(self.rows)),
        }

    def condition(self, variances: Mapping[str, float] | None) -> tuple[Array, Array]:
        """Return the log times of the machines; their program is like that of any of the tasks.

        Args:
            variances: Variances of :data:`LEVELS`, and the drift; ``None`` for times relative to the usual machine.

        Returns:
            Means (n,) and covariances (n, n).
        """
        number = len(self.rows)
        known, asked = self.places[:number], self.places[number:]
        same = (asked[:, None] == asked).astype(float)
        means = -self.speeds[:, asked] - self.sizes[number:]
        covariances = [
            self.errors[task][:, task][np.ix_(asked, asked)] + self.losses[number:, number:] + self.configuration * same
            for task in range(len(means))
        ]
        if variances is not None:
            parts = self.parts()
            effects = self.effects() + sum(variances[name] * parts[name] for name in (PUBLISHER, ACCELERATOR, YEAR))
            noise = self.noise() + sum(variances[name] * parts[name] for name in (CONFIGURATION, ROW))
            levels = self.levels - variances[DRIFT] * self.years[:number]
            centre = levels.mean()
            inverse = robust_inverse(effects, noise, levels - centre, np.ones(number, dtype=bool))
            years, asked_years = self.years[:number], self.years[number:]
            own = variances[PUBLISHER] + variances[CONFIGURATION] + variances[ACCELERATOR] * same + _ANY_LEVEL
            own = own + variances[YEAR] * _walk(asked_years, asked_years)
            common = self.losses[number:, :number] + variances[ACCELERATOR] * (asked[:, None] == known) + _ANY_LEVEL
            common = common + variances[YEAR] * _walk(asked_years, years)
            for task in range(len(means)):
                cross = self.errors[task][:, self.typical][np.ix_(asked, known)] + common
                weights = cross @ inverse
                means[task] += centre + weights @ (levels - centre) + variances[DRIFT] * asked_years
                covariances[task] += own - weights @ cross.T
        centred = means - means.mean(axis=0)
        return means.mean(axis=0), np.mean(covariances, axis=0) + centred.T @ centred / len(means)


def years_of(rows: Sequence[AcceleratorRow]) -> list[int]:
    """Return the year of the source of each row: the most frequent one, because single dates of logs are wrong."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        counts[row.source][row.year] += 1
    return [min(counts[row.source], key=lambda year: (-counts[row.source][year], year)) for row in rows]


def _walk(one: Array, other: Array) -> Array:
    """Return the covariances of a random walk with steps of unit variance between two sequences of years."""
    least: Array = np.minimum(one[:, None], other)
    return least


def fit_levels(priors: Sequence[TimePrior]) -> dict[str, float]:
    """Return the variance of each of :data:`LEVELS` that maximises the marginal likelihood, and the drift.

    Args:
        priors: What is known of the published times of each task.
    """
    total = sum(len(prior.rows) for prior in priors)
    known, parts = np.zeros((total, total)), np.zeros((len(LEVELS), total, total))
    start = 0
    for prior in priors:
        own = slice(start, start + len(prior.rows))
        known[own, own] = prior.effects() + prior.noise()
        parts[:, own, own] = [prior.parts()[name] for name in LEVELS]
        start = own.stop
    values = np.concatenate([prior.levels - prior.levels.mean() for prior in priors])
    years = np.concatenate([prior.years[: len(prior.rows)] for prior in priors]).astype(float)
    count, drift = len(LEVELS), 0.0
    for _ in range(_DRIFT_STEPS):
        # The variances depend little on the drift, which is that of generalised least squares.
        rest = values - drift * years
        fitted = maximise_likelihood(rest, parts, known, [_TYPICAL] * count, [_LOOSE] * count, [_LEAST] * count)
        weights = np.linalg.solve(known + np.tensordot(fitted, parts, axes=1), years)
        drift = float(weights @ values / (weights @ years)) if years.any() else 0.0
    return {**dict(zip(LEVELS, fitted, strict=True)), DRIFT: drift}


def spread_variances(prior: TimePrior, *, row: float) -> dict[str, float] | None:
    """Return the variances of :data:`LEVELS` of a fixed number of items, from how much the levels differ.

    Args:
        prior: What is known of the published times of a task.
        row: Variance of the logarithm of one published time.

    Returns:
        The variances; ``None`` if the configurations differ so much that their sources must mean different items.
    """
    own_between, own_within = spreads_of(prior.rows, prior.levels.tolist())
    between, within = max(PUBLISHER_SPREAD, own_between), max(CONFIGURATION_SPREAD, own_within)
    if math.hypot(between, within) > WIDEST_SPREAD:
        return None
    return {PUBLISHER: between**2, CONFIGURATION: within**2, ACCELERATOR: 0.0, YEAR: 0.0, ROW: row, DRIFT: 0.0}


def spreads_of(rows: Sequence[AcceleratorRow], levels: Sequence[float]) -> tuple[float, float]:
    """Return the standard deviations of levels between publishers and between the configurations of one.

    Each is 0 if there is only one.

    Args:
        rows: Published times of one task.
        levels: Logarithm of the time on the usual machine that follows from each.
    """
    by_configuration: dict[tuple[str, tuple[str, ...]], list[float]] = defaultdict(list)
    for row, level in zip(rows, levels, strict=True):
        by_configuration[row.publisher, configuration_of(row)].append(level)
    by_publisher: dict[str, list[float]] = defaultdict(list)
    for (publisher, _), listed in by_configuration.items():
        by_publisher[publisher].append(statistics.fmean(listed))
    means = [statistics.fmean(listed) for listed in by_publisher.values()]
    within = [statistics.variance(listed) for listed in by_publisher.values() if len(listed) > 1]
    return (
        statistics.stdev(means) if len(means) > 1 else 0.0,
        math.sqrt(statistics.fmean(within)) if within else 0.0,
    )
