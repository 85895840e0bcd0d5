"""How long machines take for an item of a workload, all together: from published times, ratios and scaling.

The time of an item on a machine is that of one reference accelerator, divided by the machine's speed relative to it.
The speeds come from the model of accelerators (:mod:`knowledge.estimate.accelerator_ratio`), and the loss of several
accelerators from that of scaling (:mod:`knowledge.estimate.scaling_model`). The time of the reference comes from
published times of one of the workload's tasks on any accelerators. Each published configuration has a level of its own,
and so has the user's program: what the configurations differ by is a part of the uncertainty of every time, but not of
the ratio of two machines.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from knowledge.domain.ratio import Ratio
from knowledge.estimate.accelerator_ratio import ROW, RatioModel, relative_speeds, selected
from knowledge.estimate.gain_space import Array
from knowledge.estimate.scaling_model import Enlargement, ScalingModel
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import TO_QUALITY, AcceleratorRow

CONFIGURATION_SPREAD, PUBLISHER_SPREAD = 0.24, 0.29
"""Least standard deviations of the logarithm of a time: between the configurations of a publisher, and between
publishers. The first is the median of 72 tasks in a precision, the second the root mean square of 8: few were published
by several (`python -m benchmarks.machine_times`). The user's program is another publisher's."""
WIDEST_SPREAD = math.log(4)
"""Largest standard deviation between configurations: beyond it, sources count different items, such as batches. The
bound is a judgement."""
_COUNTED = ("items", "images", "samples", "sequences")
"""Units that publishers use for one and the same: an input of the model."""
_NOT_ITEMS = (TO_QUALITY, "queries", "latency")


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
        means: Mean log speed of each machine, relative to the reference accelerator (n).
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
        own = Ratio(mean=-self.means[place], variance=self.covariances[place][place])
        return own if self.level is None else own.times(self.level.seconds)

    def speedup(self, place: int, other: int) -> Ratio:
        """Return how much faster one machine is than another one."""
        one, two = self.covariances[place], self.covariances[other]
        return Ratio(mean=self.means[place] - self.means[other], variance=one[place] + two[other] - 2 * one[other])


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
        compared = {(pair.task, pair.mode) for pair in self.pairs if pair.regime == regime}
        tasks = [task for task in tasks if task in compared]
        if not tasks:
            return None
        typical, rows = self.typical(tasks, regime)
        names = list(dict.fromkeys([*(m.accelerator for m in machines), *(row.accelerator for row in rows)]))
        counts = Counter(row.accelerator for row in rows)
        reference = min(names, key=lambda name: (-counts[name], name))
        model = RatioModel(selected(self.pairs, names), self.variances)
        means, covariances = relative_speeds(
            model, self.variances, names, reference=reference, tasks=tasks, regime=regime
        )
        place = {name: number for number, name in enumerate(names)}
        level = None
        if rows:
            own, errors = relative_speeds(
                model, self.variances, names, reference=reference, tasks=[typical], regime=regime
            )
            speeds = {name: (float(own[n]), float(errors[n, n])) for name, n in place.items()}
            level = level_of(rows, speeds, reference, error=self.variances[ROW])
        places = [place[machine.accelerator] for machine in machines]
        sizes, losses = self._sizes(machines, typical)
        of_regime = (row for row in self.rows if (row.task, row.mode) in tasks and row.regime_of_batch == regime)
        listed = Counter(row.accelerator for row in of_regime)
        return MachineTimes(
            machines=tuple(machines),
            reference=reference,
            level=level,
            means=tuple((means[places] + sizes).tolist()),
            covariances=tuple(map(tuple, (covariances[np.ix_(places, places)] + losses).tolist())),
            regime=regime,
            pairs=len(model.pairs),
            direct=tuple(listed[machine.accelerator] for machine in machines),
        )

    def typical(self, tasks: Sequence[tuple[str, str]], regime: str) -> tuple[tuple[str, str], list[AcceleratorRow]]:
        """Return the first task with published times of a single accelerator, and these: the fastest batch of each."""
        for task in tasks:
            fastest: dict[tuple[str, str, str], AcceleratorRow] = {}
            for row in self.rows:
                is_of_task = (row.task, row.mode, row.regime_of_batch, row.count) == (*task, regime, 1)
                if is_of_task and row.unit not in _NOT_ITEMS:
                    key = (row.source, row.configuration, row.accelerator)
                    fastest[key] = min(row, fastest.get(key, row), key=lambda row: row.seconds)
            if fastest:
                return task, _of_one_unit(list(fastest.values()))
        return tasks[0], []

    def _sizes(self, machines: Sequence[MachineSize], task: tuple[str, str]) -> tuple[Array, Array]:
        """Return the log speed of the accelerators of each machine together, relative to one of them (n,) (n, n)."""
        sizes = np.array([math.log(machine.total) for machine in machines])
        covariances = np.zeros((len(machines), len(machines)))
        several = [number for number, machine in enumerate(machines) if machine.total > 1]
        if several:
            means, errors = self.scaling.predict([_enlargement(machines[number], task) for number in several])
            sizes[several] += means
            covariances[np.ix_(several, several)] = errors
        return sizes, covariances


def _enlargement(machine: MachineSize, task: tuple[str, str]) -> Enlargement:
    return Enlargement(
        task=task[0],
        mode=task[1],
        is_to_quality=False,
        accelerator=machine.accelerator,
        few=1,
        many=machine.total,
        machine=machine.count,
    )


def level_of(
    rows: Sequence[AcceleratorRow], speeds: Mapping[str, tuple[float, float]], reference: str, *, error: float
) -> ReferenceTime | None:
    """Return the time of an item on the reference accelerator, from published times on any accelerators.

    ``None`` if the configurations differ so much that their sources must mean different items.

    Args:
        rows: Published times of one task on single accelerators.
        speeds: Mean log speed of each accelerator, relative to the reference, and its variance.
        reference: Name of the reference.
        error: Variance of the logarithm of one published time.
    """
    by_publisher = levels_by_publisher(rows, speeds, error=error)
    levels = [statistics.fmean(level for level, _ in listed) for listed in by_publisher.values()]
    errors = [variance for listed in by_publisher.values() for _, variance in listed]
    count = len(errors)
    own_between, own_within = spreads_of(by_publisher)
    between, within = max(PUBLISHER_SPREAD, own_between) ** 2, max(CONFIGURATION_SPREAD, own_within) ** 2
    if math.sqrt(between + within) > WIDEST_SPREAD:
        return None
    units = Counter(row.unit for row in rows)
    return ReferenceTime(
        task=rows[0].task,
        mode=rows[0].mode,
        unit=min(units, key=lambda unit: (-units[unit], unit)),
        reference=reference,
        mean=statistics.fmean(levels),
        variance=statistics.fmean(errors) / count + between * (1 + 1 / len(levels)) + within * (1 + 1 / count),
        rows=len(rows),
        configurations=count,
        sources=tuple(sorted({row.source for row in rows})),
    )


def levels_by_publisher(
    rows: Sequence[AcceleratorRow], speeds: Mapping[str, tuple[float, float]], *, error: float
) -> dict[str, list[tuple[float, float]]]:
    """Return the logarithm of the time on the reference, and its variance, of each configuration of each publisher.

    The arguments are those of :func:`level_of`.
    """
    by_configuration: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        mean, variance = speeds[row.accelerator]
        by_configuration[row.publisher, row.configuration].append((math.log(row.seconds) + mean, variance + error))
    by_publisher: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (publisher, _), listed in by_configuration.items():
        by_publisher[publisher].append(_weighted(listed))
    return dict(by_publisher)


def spreads_of(by_publisher: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """Return the standard deviations of levels between publishers and between the configurations of one.

    Each is 0 if there is only one.
    """
    levels = [[level for level, _ in listed] for listed in by_publisher.values()]
    means = [statistics.fmean(listed) for listed in levels]
    within = [statistics.variance(listed) for listed in levels if len(listed) > 1]
    return (
        statistics.stdev(means) if len(means) > 1 else 0.0,
        math.sqrt(statistics.fmean(within)) if within else 0.0,
    )


def _of_one_unit(rows: Sequence[AcceleratorRow]) -> list[AcceleratorRow]:
    """Return the rows with the most frequent unit; units that mean an input of the model count as one."""
    units = ["items" if row.unit in _COUNTED else row.unit for row in rows]
    (usual, _), *_ = Counter(units).most_common(1)
    return [row for row, unit in zip(rows, units, strict=True) if unit == usual]


def _weighted(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of values, weighted by their variances, and its variance."""
    weights = [1 / variance for _, variance in values]
    return math.fsum(w * v for w, (v, _) in zip(weights, values, strict=True)) / sum(weights), 1 / sum(weights)
