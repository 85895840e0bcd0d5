"""Which arms run in the next round of an experiment. `python -m benchmarks.planner` compares the policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from advisor.experiment.belief import Belief

if TYPE_CHECKING:
    import numpy as np


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


Policy = Callable[[Situation, "np.random.Generator"], Sequence[int]]
"""Returns the arms of the next round; the reference runs in each round anyway."""


def round_robin(s: Situation, random: np.random.Generator) -> Sequence[int]:
    """Run every arm in every round, also those that cannot be the best any more."""
    return sorted(s.seconds)


def racing(s: Situation, random: np.random.Generator) -> Sequence[int]:
    """Run every arm that may still be the best in every round, as irace does."""
    return s.alive


def expected_excess(s: Situation, random: np.random.Generator) -> Sequence[int]:
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


def top_two(s: Situation, random: np.random.Generator) -> Sequence[int]:
    """Run the best arm of a sample of the belief, and the best of another sample that has another best arm.

    D. Russo, "Simple Bayesian algorithms for best-arm identification", Operations Research 68(6), 2020.
    """
    alive = list(s.alive)
    draws = random.multivariate_normal(s.belief.mean, s.belief.covariance, size=200, method="svd")[:, alive]
    best = [alive[place] for place in draws.argmax(axis=1)]
    first = best[0]
    second = next((arm for arm in best if arm != first), None)
    if second is None:
        others = [arm for arm in alive if arm != first]
        second = max(others, key=lambda arm: s.belief.mean[arm], default=first)
    return tuple(dict.fromkeys((first, second)))


def knowledge_gradient(s: Situation, random: np.random.Generator) -> Sequence[int]:
    """Run the two arms whose next run is expected to improve the choice most for each second.

    P. Frazier, W. Powell and S. Dayanik, "The knowledge-gradient policy for correlated normal beliefs", INFORMS Journal
    on Computing 21(4), 2009.
    """
    rates = {arm: _gain_of_run(s, arm) / s.seconds[arm] for arm in s.alive if arm}
    ordered = sorted(rates, key=lambda arm: rates[arm], reverse=True)
    return ordered[:2]


def _gain_of_run(s: Situation, arm: int) -> float:
    """Return by how much the largest mean of the belief is expected to grow with another run of an arm."""
    import numpy as np

    # With the run of the reference in the same round.
    deviation = math.sqrt(float(s.belief.covariance[arm, arm]) + 2 * s.noise_variance)
    slopes = s.belief.covariance[arm] / deviation
    normal = _NORMAL_POINTS
    means = s.belief.mean[list(s.alive)][:, None] + np.outer(slopes[list(s.alive)], normal)
    return float(means.max(axis=0).mean() - s.belief.mean[list(s.alive)].max())


def _points() -> tuple[float, ...]:
    count = 41
    return tuple(NormalDist().inv_cdf((number + 0.5) / count) for number in range(count))


_NORMAL_POINTS = _points()

POLICIES: Mapping[str, Policy] = {
    "round robin": round_robin,
    "racing": racing,
    "expected excess": expected_excess,
    "top-two": top_two,
    "knowledge gradient": knowledge_gradient,
}
