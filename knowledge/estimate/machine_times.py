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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from knowledge.domain.ratio import Ratio
from knowledge.estimate.accelerator_ratio import (
    MOST_PAIRS,
    ROW,
    RatioModel,
    configuration_variance,
    relative_speeds,
    selected,
)
from knowledge.estimate.gain_space import Array
from knowledge.estimate.scaling_model import Enlargement, ScalingModel, configuration_of
from knowledge.estimate.time_levels import TimePrior, spread_variances, years_of
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import MLPERF, TO_QUALITY, AcceleratorRow

_COUNTED = ("items", "images", "samples", "sequences")
"""Units that publishers use for one and the same: an input of the model."""
_NOT_ITEMS = ("queries", "latency")


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
    """The time of an item of a task on a usual machine.

    Attributes:
        task: The task.
        mode: ``training`` or ``inference``.
        unit: What an item is.
        reference: Name of its accelerator: the most frequent of the published times.
        count: Number of its accelerators.
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
    count: int
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
        level: The time of an item on a usual machine with it; ``None`` if nobody published one.
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
        levels: Variances of the levels of trainings to a quality (:func:`knowledge.estimate.time_levels.fit_levels`).
    """

    rows: Sequence[AcceleratorRow]
    pairs: Sequence[AcceleratorPair]
    scaling: ScalingModel
    variances: Mapping[str, float]
    levels: Mapping[str, float]

    def predict(
        self, machines: Sequence[MachineSize], *, tasks: Sequence[tuple[str, str]], regime: str
    ) -> MachineTimes | None:
        """Predict the times of machines at a workload.

        Args:
            machines: The machines, with accelerators whose rates the catalogue states.
            tasks: Task and mode of each part of the workload, the most typical one first.
            regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.

        Returns:
            The times; ``None`` if nothing is published for one of the tasks.
        """
        published = {(pair.task, pair.mode) for pair in self.pairs if pair.regime == regime}
        published |= {(row.task, row.mode) for row in self.rows if row.regime_of_batch == regime}
        tasks = [task for task in tasks if task in published]
        return self.times(machines, tasks=tasks, regime=regime) if tasks else None

    def times(
        self,
        machines: Sequence[MachineSize],
        *,
        tasks: Sequence[tuple[str, str]],
        regime: str,
        year: int | None = None,
    ) -> MachineTimes:
        """Predict the times of machines at a workload, also if nothing is published for its tasks.

        The other arguments are those of :meth:`predict`.

        Args:
            machines: The machines.
            tasks: Task and mode of each part of the workload.
            regime: One of the regimes.
            year: Year of the software of trainings to a quality; by default the newest published one.
        """
        rows = self.typical(tasks, regime)
        usual = _usual(rows, machines)
        prior = self.prior([*machines, usual], rows, tasks=tasks, regime=regime)
        if year is not None:
            prior = prior.of_year(year)
        variances = None
        if rows:
            # Trainings to a quality are the same for all, which nobody knows of items.
            is_one_item = regime == MLPERF
            variances = self.levels if is_one_item else spread_variances(prior, row=self.variances[ROW])
        means, covariances = prior.condition(variances)
        level = (
            None if variances is None else _reference_time(rows, usual, float(means[-1]), float(covariances[-1, -1]))
        )
        of_regime = (row for row in self.rows if (row.task, row.mode) in tasks and row.regime_of_batch == regime)
        listed = Counter(row.accelerator for row in of_regime)
        return MachineTimes(
            machines=tuple(machines),
            reference=usual.accelerator,
            level=level,
            means=tuple(means[:-1].tolist()),
            covariances=tuple(map(tuple, covariances[:-1, :-1].tolist())),
            regime=regime,
            pairs=min(len(self.pairs), MOST_PAIRS),
            direct=tuple(listed[machine.accelerator] for machine in machines),
        )

    def prior(
        self,
        machines: Sequence[MachineSize],
        rows: Sequence[AcceleratorRow],
        *,
        tasks: Sequence[tuple[str, str]],
        regime: str,
    ) -> TimePrior:
        """Return what is known of published times and of machines, but for the level of the times.

        Args:
            machines: The machines.
            rows: The published times of one of the tasks; none for times relative to a usual machine.
            tasks: Task and mode of each part of the workload.
            regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.
        """
        usual = _usual(rows, machines)
        typical = (rows[0].task, rows[0].mode) if rows else tasks[0]
        accelerators = [*(row.accelerator for row in rows), *(machine.accelerator for machine in machines)]
        names = list(dict.fromkeys([*accelerators, usual.accelerator]))
        speeds, errors = relative_speeds(
            self._ratios(names), names, reference=usual.accelerator, tasks=tasks, regime=regime
        )
        places = np.array([names.index(name) for name in accelerators])
        seconds = _seconds(rows, usual.total, speeds[tasks.index(typical), places])
        every = [*(_enlargement_of(row) for row in rows), *(_enlargement(one, typical, regime) for one in machines)]
        sizes, losses = self.scaling.predict(
            [replace(one, few=usual.total, seconds=own) for one, own in zip(every, seconds, strict=True)]
        )
        years = years_of(rows) or [0]
        totals = [*(row.count for row in rows), *(machine.total for machine in machines)]
        return TimePrior(
            rows=rows,
            places=places,
            years=np.array([*years[: len(rows)], *[max(years)] * len(machines)]) - min(years),
            speeds=speeds,
            errors=errors,
            sizes=sizes + np.log(totals) - math.log(usual.total),
            losses=losses,
            typical=tasks.index(typical),
            configuration=configuration_variance(self.variances),
        )

    def _ratios(self, names: Sequence[str]) -> RatioModel:
        """Return the model of accelerators for some of them."""
        is_small = len(self.pairs) <= MOST_PAIRS
        return self._every_ratio if is_small else RatioModel(selected(self.pairs, names), self.variances)

    @cached_property
    def _every_ratio(self) -> RatioModel:
        return RatioModel(self.pairs, self.variances)

    def quality_priors(self) -> list[TimePrior]:
        """Return what is known of the published times of each task that was trained to a quality."""
        tasks = sorted({(row.task, row.mode) for row in self.rows if row.unit == TO_QUALITY})
        return [self.prior([], self.typical([task], MLPERF), tasks=[task], regime=MLPERF) for task in tasks]

    def typical(self, tasks: Sequence[tuple[str, str]], regime: str) -> list[AcceleratorRow]:
        """Return the published times of the first task that has any: the fastest batch of each."""
        for task in tasks:
            fastest: dict[tuple[str, str, str, int], AcceleratorRow] = {}
            for row in self.rows:
                is_of_task = (row.task, row.mode, row.regime_of_batch) == (*task, regime)
                if is_of_task and row.unit not in _NOT_ITEMS:
                    key = (row.source, row.configuration, row.accelerator, row.count)
                    fastest[key] = min(row, fastest.get(key, row), key=lambda row: row.seconds)
            if fastest:
                return _of_one_unit(list(fastest.values()))
        return []


def _usual(rows: Sequence[AcceleratorRow], machines: Sequence[MachineSize]) -> MachineSize:
    """Return the machine that speeds are relative to: the most frequent accelerator, and the most frequent number."""
    counts = Counter(row.accelerator for row in rows) or Counter(machine.accelerator for machine in machines)
    numbers = Counter(row.count for row in rows) or Counter([1])
    return MachineSize(
        accelerator=min(counts, key=lambda name: (-counts[name], name)),
        count=min(numbers, key=lambda number: (-numbers[number], number)),
    )


def _seconds(rows: Sequence[AcceleratorRow], usual: int, speeds: Array) -> list[float | None]:
    """Return about how long a training to a quality takes on a usual number of some accelerators.

    Args:
        rows: Published times of the training; of others, there is no such time.
        usual: The number.
        speeds: Log speeds of the accelerators of the rows, and of others (n,).
    """
    if not rows or rows[0].unit != TO_QUALITY:
        return [None] * len(speeds)
    levels = [math.log(row.seconds) + speed for row, speed in zip(rows, speeds, strict=False) if row.count == usual]
    return [math.exp(statistics.median(levels) - speed) for speed in speeds]


def _enlargement(machine: MachineSize, task: tuple[str, str], regime: str) -> Enlargement:
    return Enlargement(
        task=task[0],
        mode=task[1],
        is_to_quality=(task[1], regime) == ("training", MLPERF),
        accelerator=machine.accelerator,
        few=1,
        many=machine.total,
        machine=machine.count,
    )


def _enlargement_of(row: AcceleratorRow) -> Enlargement:
    return Enlargement(
        task=row.task,
        mode=row.mode,
        is_to_quality=row.unit == TO_QUALITY,
        accelerator=row.accelerator,
        few=1,
        many=row.count,
        configuration=configuration_of(row),
    )


def _reference_time(rows: Sequence[AcceleratorRow], usual: MachineSize, mean: float, variance: float) -> ReferenceTime:
    units = Counter(row.unit for row in rows)
    return ReferenceTime(
        task=rows[0].task,
        mode=rows[0].mode,
        unit=min(units, key=lambda unit: (-units[unit], unit)),
        reference=usual.accelerator,
        count=usual.total,
        mean=mean,
        variance=variance,
        rows=len(rows),
        configurations=len({configuration_of(row) for row in rows}),
        sources=tuple(sorted({row.source for row in rows})),
    )


def _of_one_unit(rows: Sequence[AcceleratorRow]) -> list[AcceleratorRow]:
    """Return the rows with the most frequent unit; units that mean an input of the model count as one."""
    units = ["items" if row.unit in _COUNTED else row.unit for row in rows]
    (usual, _), *_ = Counter(units).most_common(1)
    return [row for row, unit in zip(rows, units, strict=True) if unit == usual]
