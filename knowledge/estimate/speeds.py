"""Log speed-ups of several stacks over one, and the gains between any two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from knowledge.estimate.gaussian_process import Sums
from knowledge.estimate.interface import PredictedGain
from knowledge.estimate.machine_discrepancy import MachineDiscrepancy
from knowledge.estimate.stack_discrepancy import Program, StackDiscrepancy
from knowledge.estimate.task_discrepancy import TaskDiscrepancy

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array


class Speeds(NamedTuple):
    """Log speed-ups of stacks over the anchor.

    Attributes:
        means: Means (n,).
        sums: The parts' gains over the anchor, weighted by their shares of the time at each stack.
        widening: Factor of the standard deviations of gains over a stack with the same settings.
        setting_widening: Factor of the others.
        programs: Version and settings of each stack.
        discrepancy: Standard deviation of the gain of one stack over another beyond that of the parts.
        elsewhere: The same because settings were measured on other kinds of machines.
    """

    means: Array
    sums: Sums
    widening: float
    setting_widening: float
    programs: Sequence[Program]
    discrepancy: StackDiscrepancy | TaskDiscrepancy
    elsewhere: MachineDiscrepancy

    def gain(self, one: int, other: int) -> PredictedGain:
        """Return the gain of one stack over another; stacks are given by their indices."""
        return self.gains([one], [other])[0]

    def gains(self, ones: Sequence[int], others: Sequence[int]) -> list[PredictedGain]:
        """Return the gains of pairs of stacks."""
        programs = [(self.programs[one], self.programs[other]) for one, other in zip(ones, others, strict=True)]
        means = (self.means[list(ones)] - self.means[list(others)]).tolist()
        variances = self.sums.variances(ones, others).tolist()
        # Many pairs of stacks differ in their companions only.
        distinct = {both: (self._widening(*both) ** 2, self.discrepancy.between(*both) ** 2) for both in set(programs)}
        return [
            PredictedGain(
                mean=mean,
                variance=variance * distinct[both][0] + distinct[both][1] + self.elsewhere.between(*both, mean) ** 2,
            )
            for both, mean, variance in zip(programs, means, variances, strict=True)
        ]

    def _widening(self, one: Program, other: Program) -> float:
        return self.widening if one[1] == other[1] else self.setting_widening
