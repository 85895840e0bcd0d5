"""Which arms run in the next round of an experiment; `python -m benchmarks.planner` compares it with other policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from advisor.experiment.belief import Belief


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a policy knows.

    Attributes:
        belief: What is expected of the arms.
        noise_variance: Variance of the logarithm of a run's seconds within a round.
        alive: Arms that may still be chosen or may be faster than the choice, with the choice.
        choice: The arm that would be chosen now.
        seconds: Seconds of the next run of each arm, with the building of its environment if that is missing.
        tolerance: Largest acceptable loss of the choice, as a logarithm of the speed.
    """

    belief: Belief
    noise_variance: float
    alive: Sequence[int]
    choice: int
    seconds: Mapping[int, float]
    tolerance: float


Policy = Callable[[Situation], Sequence[int]]
"""Returns the arms of the next round; the reference also runs, unless it is certainly slower."""


def expected_excess(s: Situation) -> Sequence[int]:
    """Run the choice and the two arms that are expected to exceed it by most above the tolerance for each second.

    It is the expected improvement of J. Mockus (1975), as D. Jones, M. Schonlau and W. Welch use it in "Efficient
    global optimization of expensive black-box functions", Journal of Global Optimization 13, 1998, with a margin.
    """
    rates = {arm: _excess(s, arm) / s.seconds[arm] for arm in s.alive if arm != s.choice}
    return (s.choice, *sorted(rates, key=lambda arm: rates[arm], reverse=True)[:2])


def _excess(s: Situation, arm: int) -> float:
    """Return the mean of what an arm's logarithm of the speed has above the choice's and the tolerance, or else 0."""
    normal, covariance = NormalDist(), s.belief.covariance
    variance = float(covariance[arm, arm] + covariance[s.choice, s.choice] - 2 * covariance[arm, s.choice])
    deviation, mean = math.sqrt(max(1e-12, variance)), float(s.belief.mean[arm] - s.belief.mean[s.choice])
    ratio = (mean - s.tolerance) / deviation
    return deviation * (ratio * normal.cdf(ratio) + normal.pdf(ratio))
