"""Power of a machine whose accelerators are busy: that of a host, and a part of the accelerators' power limits.

A machine with accelerators of together R watts takes ``host + share * R``: fans, power supplies and processors of large
machines grow with their accelerators. The three numbers, and by how much machines differ from them, are fitted to
published results with a power meter. Each machine counts once, with the mean logarithm of its results.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from knowledge.domain.ratio import Ratio
from knowledge.estimate.gain_space import Array
from knowledge.evidence.power_rows import PowerRow

LEAST_MACHINES = 10
"""Fewest published machines that the numbers are fitted to. The value is a judgement."""
_ITERATIONS = 50
_LEAST_WATTS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredMachine:
    """A published machine.

    Attributes:
        accelerator: Name of the model of its accelerators in the catalogue.
        submitter: Who published it.
        rated: Power limit of all accelerators together in watts.
        is_tuned: Whether the submitter lowered limits of power.
        mean: Mean logarithm of its power in watts.
        spread: Variance of the logarithm between its benchmarks; ``None`` with one.
    """

    accelerator: str
    submitter: str
    rated: float
    is_tuned: bool
    mean: float
    spread: float | None


class PowerModel:
    """The model, fitted to published machines."""

    def __init__(self, machines: Sequence[MeteredMachine]) -> None:
        """Fit the model.

        Raises:
            ValueError: If there are fewer than :data:`LEAST_MACHINES`.
        """
        if len(machines) < LEAST_MACHINES:
            raise ValueError(f"{len(machines)} machines are too few")
        self.machines = tuple(machines)
        terms = np.array([_terms(m.rated, is_tuned=m.is_tuned) for m in machines])
        watts = np.exp([m.mean for m in machines])
        self._numbers = _fitted(terms, watts)
        errors = np.log(watts / self._watts(terms))
        between = float(errors @ errors) / (len(machines) - terms.shape[1])
        within = [machine.spread for machine in machines if machine.spread is not None]
        self._variance = between + (statistics.fmean(within) if within else 0.0)

    @property
    def untuned(self) -> int:
        """Number of the machines whose limits of power were not lowered."""
        return sum(not machine.is_tuned for machine in self.machines)

    @property
    def host(self) -> float:
        """Power of a machine without its accelerators in watts."""
        return float(self._numbers[0])

    @property
    def share(self) -> float:
        """Power for each watt of the accelerators' power limits."""
        return float(self._numbers[1])

    def predict(self, rated: float, *, is_tuned: bool = False) -> Ratio:
        """Return the power in watts of a busy machine, as a ratio to one watt.

        Args:
            rated: Power limit of all its accelerators together in watts.
            is_tuned: Whether its limits of power are lowered.
        """
        watts = self._watts(np.array([_terms(rated, is_tuned=is_tuned)]))
        return Ratio(mean=math.log(float(watts[0])), variance=self._variance)

    def held_out(self, key: Callable[[MeteredMachine], object]) -> Iterator[tuple[MeteredMachine, Ratio]]:
        """Yield each machine with its prediction from the machines that have another value of a key."""
        for value in dict.fromkeys(map(key, self.machines)):
            model = PowerModel([machine for machine in self.machines if key(machine) != value])
            for machine in self.machines:
                if key(machine) == value:
                    yield machine, model.predict(machine.rated, is_tuned=machine.is_tuned)

    def _watts(self, terms: Array) -> Array:
        watts: Array = np.maximum(terms @ self._numbers, _LEAST_WATTS)
        return watts


def metered_machines(rows: Sequence[PowerRow]) -> tuple[MeteredMachine, ...]:
    """Return the machines of published rows; a machine of several rounds is several."""
    groups: dict[tuple[str, ...], list[PowerRow]] = defaultdict(list)
    for row in rows:
        groups[row.submitter, row.system, row.round_, row.accelerator, str(row.is_tuned)].append(row)
    machines = []
    for _, listed in sorted(groups.items()):
        # The two required accuracies of a benchmark are mostly one run.
        logs = [math.log(watts) for watts in sorted({row.watts for row in listed})]
        machines.append(
            MeteredMachine(
                accelerator=listed[0].accelerator,
                submitter=listed[0].submitter,
                rated=listed[0].rated,
                is_tuned=listed[0].is_tuned,
                mean=statistics.fmean(logs),
                spread=statistics.variance(logs) if len(logs) > 1 else None,
            )
        )
    return tuple(machines)


def _terms(rated: float, *, is_tuned: bool) -> tuple[float, float, float]:
    return 1.0, 0.0 if is_tuned else rated, rated if is_tuned else 0.0


def _fitted(terms: Array, watts: Array) -> Array:
    """Return the numbers with the smallest relative errors: least squares, weighted by the predictions."""
    numbers: Array = np.zeros(terms.shape[1])
    predicted = watts
    for _ in range(_ITERATIONS):
        numbers, *_ = np.linalg.lstsq(terms / predicted[:, None], watts / predicted)
        predicted = np.maximum(terms @ numbers, _LEAST_WATTS)
    return numbers
