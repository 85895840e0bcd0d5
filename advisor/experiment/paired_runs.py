"""What runs of several arms in rounds say about the ratios of their speeds, at every moment of an experiment.

The logarithm of a run's seconds is the sum of the arm's, of the round's (load, clocks and temperature change from round
to round), and of noise with one variance. Rounds are nuisance: only differences inside a round count.

An experiment looks at its results after every round and decides whether to continue, so its intervals must hold at all
times at once. They are the confidence sequences of M. Lindon, D. Ham, M. Tingley and I. Bojinov, "Anytime-Valid Linear
Models and Regression Adjusted Causal Inference in Randomized Experiments", 2022, arXiv:2210.08589, section 4: a
Gaussian mixture over the difference, right Haar priors of the variance and of the other coefficients. For two arms it
is the sequential t-test of H. Wang and A. Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
with unknown variance", Sequential Analysis 44(1), 2025. `python -m benchmarks.planner` counts wrong choices, with
arms that are dropped on the way.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knowledge.domain.ratio import Ratio
from knowledge.evidence.paired_ratio import Prior, student_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MIXTURE = 25.0
"""Variance of the mixture over a difference, in variances of a run: intervals are shortest for differences of a few
standard deviations of a run."""
_COMMON_DEGREES = 3
"""Weight of the variance of all runs in that of an arm, in degrees of freedom. It is larger in three of four recorded
programs (`python -m benchmarks.planner --recorded`); a small one limits what an arm with much more noise can do."""
_LEAST_VARIANCE = 0.001**2
"""Least variance of the logarithm of a run's seconds: clocks and printed numbers are not exact."""


class PairedRuns:
    """Logarithms of the seconds of runs, by round and arm; the ratio of two arms comes from the rounds they share."""

    def __init__(self) -> None:
        """Create runs without any round."""
        self._rounds: dict[int, dict[tuple[int, bool], float]] = defaultdict(dict)

    def add(self, round_number: int, arm: int, seconds: float, *, is_second: bool = False) -> None:
        """Add the first or the second run of an arm in a round; a later one of the same kind replaces it."""
        self._rounds[round_number][arm, is_second] = math.log(seconds)

    @property
    def rounds(self) -> int:
        """Number of rounds that have runs."""
        return len(self._rounds)

    def fit(self) -> Fit:
        """Return the speeds of the arms that ran together with others, relative to the first of them."""
        # Slow to import, and needed by experiments only.
        import numpy as np

        rounds = [runs for runs in self._rounds.values() if len(runs) > 1]
        arms = sorted({arm for runs in rounds for arm, _ in runs})
        place = {arm: number for number, arm in enumerate(arms)}
        information = np.zeros((len(arms), len(arms)))
        score = np.zeros(len(arms))
        total = 0.0
        for runs in rounds:
            places = [place[arm] for arm, _ in runs]
            centred = np.array(list(runs.values()))
            centred -= centred.mean()
            np.subtract.at(information, np.ix_(places, places), 1 / len(runs))
            np.add.at(information, (places, places), 1)
            np.subtract.at(score, places, centred)
            total += float(centred @ centred)
        groups = _groups(information)
        if len(arms) < 2:
            return Fit(tuple(arms), groups, np.zeros(len(arms)), np.zeros_like(information), information, math.inf, 0)
        covariance = np.zeros_like(information)
        covariance[1:, 1:] = np.linalg.pinv(information[1:, 1:])
        logarithms = covariance @ score
        degrees = sum(len(runs) - 1 for runs in rounds) - (len(arms) - len(set(groups)))
        residual = total - float(logarithms @ score)
        variance = max(_LEAST_VARIANCE, residual / degrees) if degrees else math.inf
        return Fit(tuple(arms), groups, logarithms, covariance, information, variance, degrees)

    def ratios_now(self, arms: Sequence[int], other: int, *, error: float) -> dict[int, Ratio]:
        """Return the speeds of arms over another one, for one look at the runs.

        It is Student's paired t-test of the rounds that have both. Each arm has its own variance, which is uncertain
        after a few rounds, so the variance of all runs counts, too, with a small weight.

        Args:
            arms: The arms to compare; one that shares fewer than two rounds with the other has no ratio.
            other: The arm that they are compared with.
            error: Probability that one of the lower bounds is above the truth.
        """
        fit, ratios = self.fit(), dict[int, Ratio]()
        for arm in arms:
            if len(own := self._differences(arm, other)) > 1:
                # Degrees of freedom of the runs of other arms.
                rest = max(0, fit.degrees - (len(own) - 1))
                common = Prior(variance=2 * fit.variance, degrees=min(_COMMON_DEGREES, rest))
                variance, degrees = common.moderate(statistics.variance(own), len(own) - 1)
                quantile = student_quantile(1 - error / len(arms), degrees)
                variance = max(_LEAST_VARIANCE, variance) / len(own)
                ratios[arm] = Ratio(mean=statistics.fmean(own), variance=variance, quantile=quantile)
        return ratios

    def _differences(self, arm: int, other: int) -> list[float]:
        """Return the logarithm of an arm's speed over another one's in each round that has both."""
        rounds = [
            [[seconds for (own, _), seconds in runs.items() if own == side] for side in (other, arm)]
            for runs in self._rounds.values()
        ]
        return [statistics.fmean(of_other) - statistics.fmean(own) for of_other, own in rounds if own and of_other]


def _groups(information: NDArray[np.float64]) -> tuple[int, ...]:
    """Return a number for each arm that is equal for arms which rounds connect, directly or by other arms."""
    import numpy as np

    groups, linked = np.arange(len(information)), information != 0
    while True:
        least = np.where(linked, groups, len(information)).min(axis=1, initial=len(information))
        if (least == groups).all():
            return tuple(groups.tolist())
        groups = least


@dataclass(frozen=True, slots=True)
class Fit:
    """Speeds of arms relative to the first one, with their uncertainty.

    Attributes:
        arms: The arms.
        groups: A number for each arm, equal for arms that rounds connect; others cannot be compared.
        logarithms: Logarithm of each arm's speed over that of the first; shape (arms,).
        covariance: Their covariance, in variances of a run; shape (arms, arms).
        information: The same as a matrix of information, in which the first arm has no special place.
        variance: Variance of the logarithm of a run's seconds within a round; infinite if nothing was repeated.
        degrees: Degrees of freedom of the variance.
    """

    arms: tuple[int, ...]
    groups: tuple[int, ...]
    logarithms: NDArray[np.float64]
    covariance: NDArray[np.float64]
    information: NDArray[np.float64]
    variance: float
    degrees: int

    def difference(self, arm: int, other: int) -> float:
        """Return the logarithm of an arm's speed over that of another one; 0 if one of them did not run.

        It says nothing where :meth:`half_width` is infinite.
        """
        if arm not in self.arms or other not in self.arms:
            return 0.0
        return float(self.logarithms[self.arms.index(arm)] - self.logarithms[self.arms.index(other)])

    def _spread(self, arm: int, other: int) -> float:
        """Return the variance of a difference, in variances of a run; infinite if it is not known."""
        if self.degrees < 1 or arm not in self.arms or other not in self.arms:
            return math.inf
        i, j = self.arms.index(arm), self.arms.index(other)
        if self.groups[i] != self.groups[j]:
            return math.inf
        return float(self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j])

    def half_width(self, arm: int, other: int, *, error: float) -> float:
        """Return half the interval of a difference, which misses the truth at any time with this probability."""
        spread = self._spread(arm, other)
        if not math.isfinite(spread):
            return math.inf
        return math.sqrt(spread * self.variance) * anytime_quantile(spread, self.degrees, error=error)

    def ratio(self, arm: int, other: int, *, error: float) -> Ratio | None:
        """Return the speed of an arm over that of another one, with an interval that holds at all times.

        ``None`` if they did not run together often enough.
        """
        half = self.half_width(arm, other, error=error)
        if not math.isfinite(half) or half == 0:
            return None
        variance = self._spread(arm, other) * self.variance
        return Ratio(mean=self.difference(arm, other), variance=variance, quantile=half / math.sqrt(variance))


def anytime_quantile(spread: float, degrees: float, *, error: float) -> float:
    """Return the number of standard errors in half an interval that holds at all times.

    Args:
        spread: Variance of the estimate, in variances of a run.
        degrees: Degrees of freedom of the variance of a run.
        error: Probability that the interval ever misses the truth.
    """
    shrinkage = spread / (spread + _MIXTURE)
    base = (error**2 * shrinkage) ** (1 / (degrees + 1))
    return math.sqrt(degrees * (1 - base) / (base - shrinkage)) if base > shrinkage else math.inf
