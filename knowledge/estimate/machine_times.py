"""How long machines take for an item of a workload, all together: from published times, ratios and scaling.

A published time is that of one reference accelerator, divided by the speed of the published one relative to it, by
their number and by their efficiency. The speeds come from the model of accelerators
(:mod:`knowledge.estimate.accelerator_ratio`), and the efficiency from that of scaling
(:mod:`knowledge.estimate.scaling_model`). Both say how their errors at two machines are related, so that a machine like
the published ones is predicted with a smaller error than another one. Each publisher and each configuration has a level
of its own, and so has the user's program: this is a part of the uncertainty of every time, but not of the ratio of two
machines.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from knowledge.domain.ratio import Ratio
from knowledge.estimate.accelerator_ratio import (
    ROW,
    RatioModel,
    configuration_variance,
    relative_speeds,
    selected,
)
from knowledge.estimate.gain_model import robust_inverse
from knowledge.estimate.gain_space import Array, equal
from knowledge.estimate.scaling_model import Enlargement, ScalingModel, configuration_of
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import MLPERF, AcceleratorRow

CONFIGURATION_SPREAD, PUBLISHER_SPREAD = 0.24, 0.29
"""Least standard deviations of the logarithm of a time: between the configurations of a publisher, and between
publishers. The first is the median of 72 tasks in a precision, the second the root mean square of 8: few were published
by several (`python -m benchmarks.machine_times`). The user's program is another publisher's."""
WIDEST_SPREAD = math.log(4)
"""Largest standard deviation between configurations: beyond it, sources count different items, such as batches. The
bound is a judgement."""
_COUNTED = ("items", "images", "samples", "sequences")
"""Units that publishers use for one and the same: an input of the model."""
_NOT_ITEMS = ("queries", "latency")
EXTRA=0.0
ROWV=0.0
ROBUST=True
_ANY_LEVEL = 10.0**2
"""Variance of the logarithm of a time of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """Equal accelerators that work together.

    Attributes:
        accelerator: Name of the model in the catalogue.
        count: Number of accelerators of one machine.
        nodes: Number of machines.
    """

    accelerator: str
    count: int = 1
    nodes: int = 1

    @property
    def total(self) -> int:
        """Number of accelerators of all machines."""
        return self.count * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTime:
    """The time of an item of a task on the reference accelerator.

    Attributes:
        task: The task.
        mode: ``training`` or ``inference``.
        unit: What an item is.
        reference: Name of the accelerator.
        mean: Natural logarithm of the seconds.
        variance: Its variance, with those between publishers and between configurations.
        rows: Number of published times.
        configurations: Number of published configurations.
        sources: Who published them.
    """

    task: str
    mode: str
    unit: str
    reference: str
    mean: float
    variance: float
    rows: int
    configurations: int
    sources: tuple[str, ...]

    @property
    def seconds(self) -> Ratio:
        """The time, as a ratio to one second."""
        return Ratio(mean=self.mean, variance=self.variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTimes:
    """Times of an item of a workload on machines.

    Attributes:
        machines: The machines (n).
        reference: Name of the reference accelerator.
        level: The time of an item on it; ``None`` if nobody published one.
        means: Mean log time of an item on each machine (n): of seconds, or without a level relative to the reference.
        covariances: Covariances of these (n x n).
        regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.
        pairs: Number of published pairs of accelerators that the speeds rest on.
        direct: Number of published times of each machine's accelerator at the tasks in the regime (n).
    """

    machines: tuple[MachineSize, ...]
    reference: str
    level: ReferenceTime | None
    means: tuple[float, ...]
    covariances: tuple[tuple[float, ...], ...]
    regime: str
    pairs: int
    direct: tuple[int, ...]

    def item(self, place: int) -> Ratio:
        """Return the time of an item on a machine: in seconds, or without a level relative to the reference."""
        return Ratio(mean=self.means[place], variance=self.covariances[place][place])

    def speedup(self, place: int, other: int) -> Ratio:
        """Return how much faster one machine is than another one."""
        one, two = self.covariances[place], self.covariances[other]
        return Ratio(mean=self.means[other] - self.means[place], variance=one[place] + two[other] - 2 * one[other])


@dataclass(frozen=True, kw_only=True)
class PublishedTimes:
    """What is published about times of accelerators, with the variances of the models.

    Attributes:
        rows: Published times.
        pairs: Pairs of accelerators.
        scaling: The model of numbers of accelerators.
        variances: Variances of the model of accelerators.
    """

    rows: Sequence[AcceleratorRow]
    pairs: Sequence[AcceleratorPair]
    scaling: ScalingModel
    variances: Mapping[str, float]

    def predict(
        self, machines: Sequence[MachineSize], *, tasks: Sequence[tuple[str, str]], regime: str
    ) -> MachineTimes | None:
        """Predict the times of machines at a workload.

        Args:
            machines: The machines, with accelerators whose rates the catalogue states.
            tasks: Task and mode of each part of the workload, the most typical one first.
            regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.

        Returns:
            The times; ``None`` if no two accelerators were compared at one of the tasks.
        """
        published = {(pair.task, pair.mode) for pair in self.pairs if pair.regime == regime}
        published |= {(row.task, row.mode) for row in self.rows if row.regime_of_batch == regime}
        tasks = [task for task in tasks if task in published]
        if not tasks:
            return None
        typical, rows = self.typical(tasks, regime)
        names = list(dict.fromkeys([*(m.accelerator for m in machines), *(row.accelerator for row in rows)]))
        counts = Counter(row.accelerator for row in rows)
        reference = min(names, key=lambda name: (-counts[name], name))
        model = RatioModel(selected(self.pairs, names), self.variances)
        speeds, errors = relative_speeds(model, names, reference=reference, tasks=tasks, regime=regime)
        counts = Counter(row.count for row in rows) or Counter([1])
        usual = min(counts, key=lambda count: (-counts[count], count))
        asked = [*machines, MachineSize(accelerator=reference, count=usual)]
        sizes, losses = self.scaling.predict(
            [*(_enlargement_of(row, usual) for row in rows), *(_enlargement(m, typical, regime, usual) for m in asked)]
        )
        totals = [*(row.count for row in rows), *(machine.total for machine in asked)]
        prior = _Prior(
            places=np.array([names.index(one.accelerator) for one in [*rows, *asked]]),
            speeds=speeds,
            errors=errors,
            sizes=sizes + np.log(totals),
            losses=losses,
            typical=tasks.index(typical),
            configuration=configuration_variance(self.variances),
            row=self.variances[ROW],
        )
        means, covariances, spreads = prior.condition(rows)
        level = None
        if spreads is not None:
            level = _reference_time(rows, reference, float(means[-1]), float(covariances[-1, -1]))
        of_regime = (row for row in self.rows if (row.task, row.mode) in tasks and row.regime_of_batch == regime)
        listed = Counter(row.accelerator for row in of_regime)
        return MachineTimes(
            machines=tuple(machines),
            reference=reference,
            level=level,
            means=tuple(means[:-1].tolist()),
            covariances=tuple(map(tuple, covariances[:-1, :-1].tolist())),
            regime=regime,
            pairs=len(model.pairs),
            direct=tuple(listed[machine.accelerator] for machine in machines),
        )

    def typical(self, tasks: Sequence[tuple[str, str]], regime: str) -> tuple[tuple[str, str], list[AcceleratorRow]]:
        """Return the first task with published times, and these: the fastest batch of each."""
        for task in tasks:
            fastest: dict[tuple[str, str, str, int], AcceleratorRow] = {}
            for row in self.rows:
                is_of_task = (row.task, row.mode, row.regime_of_batch) == (*task, regime)
                if is_of_task and row.unit not in _NOT_ITEMS:
                    key = (row.source, row.configuration, row.accelerator, row.count)
                    fastest[key] = min(row, fastest.get(key, row), key=lambda row: row.seconds)
            if fastest:
                return task, _of_one_unit(list(fastest.values()))
        return tasks[0], []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prior:
    """What is known of the times of published rows (m) and of machines (n), before the level of the rows is.

    Attributes:
        places: Number of the accelerator of each (m + n,).
        speeds: Log speeds of accelerators at each task (k, a).
        errors: Their covariances (k, a, k, a).
        sizes: Log speeds of all accelerators of each together, relative to one (m + n,).
        losses: Their covariances (m + n, m + n).
        typical: Number of the task of the rows.
        configuration: Variance of the speed of an accelerator in a configuration.
        row: Variance of the logarithm of a published time.
    """

    places: Array
    speeds: Array
    errors: Array
    sizes: Array
    losses: Array
    typical: int
    configuration: float
    row: float

    def condition(self, rows: Sequence[AcceleratorRow]) -> tuple[Array, Array, tuple[float, float] | None]:
        """Return log times of the machines, given published times.

        The program of the machines is like that of any of the tasks.

        Returns:
            Means (n,), covariances (n, n), and the standard deviations between publishers and configurations; ``None``
            if there are no rows, or if they differ so much that their sources must mean different items.
        """
        number = len(rows)
        known, asked = self.places[:number], self.places[number:]
        logs = np.log([row.seconds for row in rows])
        levels = logs + self.speeds[self.typical, known] + self.sizes[:number]
        spreads = _spreads(rows, levels.tolist()) if rows else None
        at_task = EXTRA
        own = (self.configuration + at_task) * (asked[:, None] == asked)
        of_typical = self.errors[self.typical][:, self.typical]
        effects = of_typical[np.ix_(known, known)] + self.losses[:number, :number] + at_task * (known[:, None] == known)
        if spreads is not None:
            between, within = (spread**2 for spread in spreads)
            effects = effects + between * equal([row.publisher for row in rows]) + _ANY_LEVEL
            noise = within * equal([configuration_of(row) for row in rows]) + (ROWV or self.row) * np.eye(number)
            noise += self.configuration * equal([(configuration_of(row), row.accelerator) for row in rows])
            centre = levels.mean()
            if ROBUST: inverse = robust_inverse(effects, noise, levels - centre, np.ones(number, dtype=bool))
            else: inverse = np.linalg.inv(effects + noise)
            own = own + between + within + _ANY_LEVEL
        means, covariances = [], []
        for task in range(len(self.speeds)):
            mean = -self.speeds[task, asked] - self.sizes[number:]
            covariance = self.errors[task][:, task][np.ix_(asked, asked)] + self.losses[number:, number:] + own
            if spreads is not None:
                cross = self.errors[task][:, self.typical][np.ix_(asked, known)] + self.losses[number:, :number]
                cross = cross + at_task * (asked[:, None] == known) + _ANY_LEVEL
                weights = cross @ inverse
                mean = mean + centre + weights @ (levels - centre)
                covariance = covariance - weights @ cross.T
            means.append(mean)
            covariances.append(covariance)
        every = np.array(means)
        centred = every - every.mean(axis=0)
        return every.mean(axis=0), np.mean(covariances, axis=0) + centred.T @ centred / len(every), spreads


def _enlargement(machine: MachineSize, task: tuple[str, str], regime: str, usual: int) -> Enlargement:
    return Enlargement(
        task=task[0],
        mode=task[1],
        is_to_quality=regime == MLPERF,
        accelerator=machine.accelerator,
        few=usual,
        many=machine.total,
        machine=machine.count,
    )


def _enlargement_of(row: AcceleratorRow, usual: int) -> Enlargement:
    return Enlargement(
        task=row.task,
        mode=row.mode,
        is_to_quality=row.regime == MLPERF,
        accelerator=row.accelerator,
        few=usual,
        many=row.count,
        configuration=configuration_of(row),
    )


def _reference_time(rows: Sequence[AcceleratorRow], reference: str, mean: float, variance: float) -> ReferenceTime:
    units = Counter(row.unit for row in rows)
    return ReferenceTime(
        task=rows[0].task,
        mode=rows[0].mode,
        unit=min(units, key=lambda unit: (-units[unit], unit)),
        reference=reference,
        mean=mean,
        variance=variance,
        rows=len(rows),
        configurations=len({configuration_of(row) for row in rows}),
        sources=tuple(sorted({row.source for row in rows})),
    )


def _spreads(rows: Sequence[AcceleratorRow], levels: Sequence[float]) -> tuple[float, float] | None:
    """Return the standard deviations between publishers and between configurations; ``None`` if they are too large."""
    own = spreads_of(rows, levels)
    between, within = max(PUBLISHER_SPREAD, own[0]), max(CONFIGURATION_SPREAD, own[1])
    return (between, within) if math.hypot(between, within) <= WIDEST_SPREAD else None


def spreads_of(rows: Sequence[AcceleratorRow], levels: Sequence[float]) -> tuple[float, float]:
    """Return the standard deviations of levels between publishers and between the configurations of one.

    Each is 0 if there is only one.

    Args:
        rows: Published times of one task.
        levels: Logarithm of the time on the reference that follows from each.
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


def _of_one_unit(rows: Sequence[AcceleratorRow]) -> list[AcceleratorRow]:
    """Return the rows with the most frequent unit; units that mean an input of the model count as one."""
    units = ["items" if row.unit in _COUNTED else row.unit for row in rows]
    (usual, _), *_ = Counter(units).most_common(1)
    return [row for row, unit in zip(rows, units, strict=True) if unit == usual]
