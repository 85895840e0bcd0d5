"""What is expected of arms before and between measurements: a normal distribution of the logarithms of their speeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.experiment.change import Change
from advisor.experiment.paired_runs import Fit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INTERACTION = 0.03
"""Standard deviation of what several changes together gain beyond the sum of what each gains."""
_SAME_NAME = 0.3
"""Correlation of what two releases of a package gain, or two values of a setting: 0.24 to 0.38 for the stacks of
recorded programs (`python -m benchmarks.planner --recorded`)."""
_REFERENCE_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Belief:
    """Expected logarithm of the speed of each arm over the reference, with its covariance.

    Attributes:
        mean: Shape (arms,).
        covariance: Shape (arms, arms).
    """

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def after(self, fit: Fit, noise_variance: float) -> Belief:
        """Return what is expected after runs whose logarithms have this variance within a round."""
        import numpy as np

        information = np.zeros_like(self.covariance)
        places = list(fit.arms)
        information[np.ix_(places, places)] = fit.information / noise_variance
        logarithms = np.zeros_like(self.mean)
        logarithms[places] = fit.logarithms
        prior = np.linalg.inv(self.covariance)
        covariance = np.linalg.inv(prior + information).astype(np.float64)
        return Belief(covariance @ (prior @ self.mean + information @ logarithms), covariance)

    def probability_of_gain(self, arm: int, other: int, least: float) -> float:
        """Return the probability that the logarithm of an arm's speed over another's is larger than a number."""
        from statistics import NormalDist

        spread = float(self.covariance[arm, arm] + self.covariance[other, other] - 2 * self.covariance[arm, other])
        mean = float(self.mean[arm] - self.mean[other])
        return 1 - NormalDist(mean, math.sqrt(max(spread, _REFERENCE_VARIANCE))).cdf(least)


def prior_belief(arms: Sequence[Sequence[Change]]) -> Belief:
    """Return the belief about arms, each a set of changes whose gains multiply; the reference has none."""
    import numpy as np

    names = list(dict.fromkeys(change for changes in arms for change in changes))
    design = np.array([[float(name in changes) for name in names] for changes in arms]).reshape(len(arms), len(names))
    mean = design @ np.array([change.gain.mean for change in names])
    deviations = np.array([change.gain.deviation for change in names])
    alike = np.array([[1.0 if a is b else _SAME_NAME * (a.name == b.name) for b in names] for a in names])
    covariance = design @ (alike.reshape(len(names), len(names)) * np.outer(deviations, deviations)) @ design.T
    for number, changes in enumerate(arms):
        covariance[number, number] += _REFERENCE_VARIANCE + (_INTERACTION**2 if len(changes) > 1 else 0.0)
    return Belief(mean, covariance)
