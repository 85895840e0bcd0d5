"""Policies that `python -m benchmarks.planner` compares with the one of the product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import NormalDist

import numpy as np

from advisor.experiment.policy import Policy, Situation, expected_excess

_POINTS = 41
_NORMAL_POINTS = [NormalDist().inv_cdf((number + 0.5) / _POINTS) for number in range(_POINTS)]


def round_robin(s: Situation) -> Sequence[int]:
    """Run every arm in every round, also those that cannot be the best any more."""
    return sorted(s.seconds)


def racing(s: Situation) -> Sequence[int]:
    """Run every arm that may still be the best in every round, as irace does."""
    return s.alive


def top_two(s: Situation, *, random: np.random.Generator) -> Sequence[int]:
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


def knowledge_gradient(s: Situation) -> Sequence[int]:
    """Run the two arms whose next run is expected to improve the choice most for each second.

    P. Frazier, W. Powell and S. Dayanik, "The knowledge-gradient policy for correlated normal beliefs", INFORMS Journal
    on Computing 21(4), 2009.
    """
    rates = {arm: _gain_of_run(s, arm) / s.seconds[arm] for arm in s.alive if arm}
    ordered = sorted(rates, key=lambda arm: rates[arm], reverse=True)
    return ordered[:2]


def _gain_of_run(s: Situation, arm: int) -> float:
    """Return by how much the largest mean of the belief is expected to grow with another run of an arm."""
    # With the run of the reference in the same round.
    deviation = math.sqrt(float(s.belief.covariance[arm, arm]) + 2 * s.noise_variance)
    slopes = s.belief.covariance[arm] / deviation
    means = s.belief.mean[list(s.alive)][:, None] + np.outer(slopes[list(s.alive)], _NORMAL_POINTS)
    return float(means.max(axis=0).mean() - s.belief.mean[list(s.alive)].max())


def policies(seed: int) -> dict[str, Policy]:
    """Return the policies by name."""
    return {
        "round robin": round_robin,
        "racing": racing,
        "expected excess": expected_excess,
        "top-two": partial(top_two, random=np.random.default_rng(seed)),
        "knowledge gradient": knowledge_gradient,
    }
