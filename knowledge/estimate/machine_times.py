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

from knowledge.domain.ratio import NORMAL_QUANTILE, Ratio
from knowledge.estimate.accelerator_ratio import ROW, RatioModel, relative_speeds, selected
from knowledge.estimate.gain_space import Array
from knowledge.estimate.scaling_model import Enlargement, ScalingModel
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import TO_QUALITY, AcceleratorRow
from knowledge.evidence.paired_ratio import student_quantile

TYPICAL_SPREAD = 0.24
"""Standard deviation of the logarithm of the time between configurations of a task, where one alone was published: the
median of 24 tasks with at least three, in the default precision (`python -m benchmarks.machine_times`)."""
WIDEST_SPREAD = math.log(4)
"""Largest standard deviation between configurations: beyond it, sources count different items, such as batches. The
bound is a judgement."""
_QUERIES = "queries"


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
        variance: Its variance, with that between configurations.
        spread: Standard deviation of the logarithm between configurations.
        quantile: Number of standard deviations from the mean to an end of the interval.
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
    spread: float
    quantile: float
    rows: int
    configurations: int
    sources: tuple[str, ...]

    @property
    def seconds(self) -> Ratio:
        """The time, as a ratio to one second."""
        return Ratio(mean=self.mean, variance=self.variance, quantile=self.quantile)


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
        direct: Number of published rows of each machine's accelerator at the tasks (n).
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
        typical, rows = self._typical(tasks, regime)
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
        listed = Counter(row.accelerator for row in self.rows if (row.task, row.mode) in tasks)
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

    def _typical(self, tasks: Sequence[tuple[str, str]], regime: str) -> tuple[tuple[str, str], list[AcceleratorRow]]:
        """Return the first task with published times of a single accelerator, and these: the fastest batch of each."""
        for task in tasks:
            fastest: dict[tuple[str, str, str], AcceleratorRow] = {}
            for row in self.rows:
                is_of_task = (row.task, row.mode, row.regime_of_batch, row.count) == (*task, regime, 1)
                if is_of_task and row.unit not in (TO_QUALITY, _QUERIES):
                    key = (row.source, row.configuration, row.accelerator)
                    fastest[key] = min(row, fastest.get(key, row), key=lambda row: row.seconds)
            if fastest:
                return task, list(fastest.values())
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
    by_configuration: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        mean, variance = speeds[row.accelerator]
        key = (row.source, row.configuration)
        by_configuration[key].append((math.log(row.seconds) + mean, variance + error))
    levels = [_weighted(listed) for listed in by_configuration.values()]
    mean = statistics.fmean(level for level, _ in levels)
    own_error = statistics.fmean(variance for _, variance in levels) / len(levels)
    spread, quantile = TYPICAL_SPREAD**2, NORMAL_QUANTILE
    if len(levels) > 2:
        spread = statistics.variance(level for level, _ in levels)
        quantile = student_quantile(0.975, len(levels) - 1)
    if math.sqrt(spread) > WIDEST_SPREAD:
        return None
    units = Counter(row.unit for row in rows)
    return ReferenceTime(
        task=rows[0].task,
        mode=rows[0].mode,
        unit=min(units, key=lambda unit: (-units[unit], unit)),
        reference=reference,
        mean=mean,
        variance=own_error + spread * (1 + 1 / len(levels)),
        spread=math.sqrt(spread),
        quantile=quantile,
        rows=len(rows),
        configurations=len(levels),
        sources=tuple(sorted({row.source for row in rows})),
    )


def _weighted(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of values, weighted by their variances, and its variance."""
    weights = [1 / variance for _, variance in values]
    return math.fsum(w * v for w, (v, _) in zip(weights, values, strict=True)) / sum(weights), 1 / sum(weights)
