"""What runs of several arms in rounds say about the ratios of their speeds, at every moment of an experiment.

The logarithm of a run's seconds is the sum of the arm's, of the round's (load, clocks and temperature change from round
to round), and of noise. Rounds are nuisance: only differences inside a round count. Speeds are those of least squares.
Some arms are noisier than others, so each has a variance of its own, moderated by that of all runs (G. K. Smyth, 2004,
as in :mod:`knowledge.evidence.paired_ratio`); degrees of freedom of a difference are Welch's and Satterthwaite's (F. E.
Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2(6), 1946).

An experiment looks at its results after every round and decides whether to continue, so its intervals must hold at all
times at once. They are the confidence sequences of M. Lindon, D. Ham, M. Tingley and I. Bojinov, "Anytime-Valid Linear
Models and Regression Adjusted Causal Inference in Randomized Experiments", 2022, arXiv:2210.08589, section 4: a
Gaussian mixture over the difference, right Haar priors of the variance and of the other coefficients. For two arms it
is the sequential t-test of H. Wang and A. Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
with unknown variance", Sequential Analysis 44(1), 2025. There, all runs have one variance, so with own variances the
intervals are an approximation: `python -m benchmarks.planner --uneven` counts wrong choices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from knowledge.domain.ratio import Ratio
from knowledge.evidence.paired_ratio import student_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MIXTURE = 25.0
"""Variance of the mixture over a difference, in variances of a run: intervals are shortest for differences of a few
standard deviations of a run."""
_COMMON_DEGREES = 3
"""Weight of the variance of all runs in that of an arm, in degrees of freedom. It is larger in three of four recorded
programs (`python -m benchmarks.planner --recorded`); a small one limits what an arm with much more noise can do."""
_LEAST_DEGREES = 1e-6
"""Fewer degrees of freedom are errors of rounding: the arm was not repeated."""
_WIDEST = math.log(1000)
"""Half the widest interval of the logarithm of a ratio; a wider one says nothing."""
_LEAST_VARIANCE = 0.001**2
"""Least variance of the logarithm of a run's seconds: clocks and printed numbers are not exact."""


class PairedRuns:
    """Logarithms of the seconds of runs, by round and arm; the ratio of two arms comes from the rounds they share."""

    def __init__(self) -> None:
        """Create runs without any round."""
        self._rounds: dict[int, dict[tuple[int, bool], float]] = defaultdict(dict)
        self._fit: Fit | None = None

    def add(self, round_number: int, arm: int, seconds: float, *, is_second: bool = False) -> None:
        """Add the first or the second run of an arm in a round; a later one of the same kind replaces it."""
        self._rounds[round_number][arm, is_second] = math.log(seconds)
        self._fit = None

    @property
    def rounds(self) -> int:
        """Number of rounds that have runs."""
        return len(self._rounds)

    def fit(self) -> Fit:
        """Return the speeds of the arms that ran together with others, relative to the first of them."""
        if self._fit is None:
            self._fit = self._fit_now()
        return self._fit

    def _fit_now(self) -> Fit:
        # Slow to import, and needed by experiments only.
        import numpy as np

        rounds = [runs for runs in self._rounds.values() if len(runs) > 1]
        arms = sorted({arm for runs in rounds for arm, _ in runs})
        place = {arm: number for number, arm in enumerate(arms)}
        owners = np.array([place[arm] for runs in rounds for arm, _ in runs], dtype=int)
        values = np.array([run for runs in rounds for run in runs.values()])
        sizes = np.array([len(runs) for runs in rounds], dtype=int)
        own_round = np.repeat(np.arange(len(rounds)), sizes)
        # Only differences inside a round count, and more speed is fewer seconds.
        shares = np.zeros((len(rounds), len(arms)))
        np.add.at(shares, (own_round, owners), 1 / sizes[own_round])
        design = shares[own_round] - np.eye(len(arms))[owners]
        values -= (np.bincount(own_round, values) / sizes)[own_round]
        information = design.T @ design
        groups, covariance = _groups(information), np.zeros_like(information)
        covariance[1:, 1:] = np.linalg.pinv(information[1:, 1:])
        influence = design @ covariance
        logarithms = influence.T @ values
        squares = (values - design @ logarithms) ** 2
        degrees = len(values) - len(rounds) - (len(arms) - len(set(groups)))
        variance = max(_LEAST_VARIANCE, float(squares.sum()) / degrees) if degrees else math.inf
        remainders = _remainders(owners, own_round, design, influence)
        own_degrees = remainders.sum(axis=1)
        common = _COMMON_DEGREES * variance if degrees else 0.0
        own = np.linalg.solve(remainders + _COMMON_DEGREES * np.eye(len(arms)), np.bincount(owners, squares) + common)
        # It is not less than if the runs of the arm had not differed at all.
        own_variances = np.maximum(own, common / (own_degrees + _COMMON_DEGREES))
        return Fit(
            arms=tuple(arms),
            groups=groups,
            logarithms=logarithms,
            influence=influence,
            owners=owners,
            information=information,
            variance=variance,
            degrees=degrees,
            own_variances=np.maximum(_LEAST_VARIANCE, own_variances),
            own_degrees=own_degrees,
        )


def _remainders(
    owners: NDArray[np.int64],
    own_round: NDArray[np.int64],
    design: NDArray[np.float64],
    influence: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return how much of the variance of each arm is in the sum of the squared residuals of each, shape (arms, arms).

    The noise of a run is also left over in the other runs of its round. The numbers of a row add up to the degrees of
    freedom of an arm. The variances follow from the sums: C. R. Rao, "Estimation of variance and covariance components
    -- MINQUE theory", Journal of Multivariate Analysis 1, 1971.

    Args:
        owners: Place of each run's arm among the arms; shape (runs,).
        own_round: Place of its round; shape (runs,).
        design: Its row of the linear model without the levels of rounds; shape (runs, arms).
        influence: What it adds to the speed of each arm; shape (runs, arms).
    """
    import numpy as np

    count, sizes = design.shape[1], np.bincount(own_round)
    runs, sums = np.zeros((len(sizes), count)), np.zeros((2, len(sizes), count, count))
    np.add.at(runs, (own_round, owners), 1)
    for places, rows in zip(sums, (influence, design), strict=True):
        np.add.at(places, (own_round, owners), rows)
    # Squares of what a run leaves in another: 1 in itself, less its share in the round's level and that in the speeds.
    itself = 1 - 2 / sizes[own_round] - 2 * (influence * design).sum(axis=1)
    levels = (runs.T / sizes**2) @ runs
    levels_and_speeds = np.einsum("rak,rbk->ab", sums[0] / sizes[:, None, None], sums[1], optimize=True)
    arms = [influence[owners == arm].T @ design[owners == arm] for arm in range(count)]
    speeds = np.array([[np.vdot(one, other.T) for other in arms] for one in arms]).reshape(count, count)
    own = np.diag(np.bincount(owners, itself, minlength=count))
    remainders: NDArray[np.float64] = own + levels + 2 * levels_and_speeds + speeds
    return remainders


def _groups(information: NDArray[np.float64]) -> tuple[int, ...]:
    """Return a number for each arm that is equal for arms which rounds connect, directly or by other arms."""
    import numpy as np

    groups, linked = np.arange(len(information)), information != 0
    while True:
        least = np.where(linked, groups, len(information)).min(axis=1, initial=len(information))
        if (least == groups).all():
            return tuple(groups.tolist())
        groups = least


class _Uncertainty(NamedTuple):
    """Uncertainty of a difference: its variance, also in variances of a run, and the degrees of freedom of that."""

    variance: float
    spread: float
    degrees: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Speeds of arms relative to the first one, with their uncertainty.

    Attributes:
        arms: The arms.
        groups: A number for each arm, equal for arms that rounds connect; others cannot be compared.
        logarithms: Logarithm of each arm's speed over that of the first; shape (arms,).
        influence: Weight of each run's logarithm in each of them; shape (runs, arms).
        owners: Place of each run's arm among the arms; shape (runs,).
        information: Inverse of their covariance, times the variance of a run; the first arm has no special place in it.
        variance: Variance of the logarithm of a run's seconds within a round; infinite if nothing was repeated.
        degrees: Degrees of freedom of the variance.
        own_variances: The same variance for the runs of each arm, moderated by that of all runs; shape (arms,).
        own_degrees: Degrees of freedom that the runs of each arm have; shape (arms,).
    """

    arms: tuple[int, ...]
    groups: tuple[int, ...]
    logarithms: NDArray[np.float64]
    influence: NDArray[np.float64]
    owners: NDArray[np.int64]
    information: NDArray[np.float64]
    variance: float
    degrees: int
    own_variances: NDArray[np.float64]
    own_degrees: NDArray[np.float64]

    def difference(self, arm: int, other: int) -> float:
        """Return the logarithm of an arm's speed over that of another one; 0 if one of them did not run.

        It says nothing where :meth:`half_width` is infinite.
        """
        if arm not in self.arms or other not in self.arms:
            return 0.0
        return float(self.logarithms[self.arms.index(arm)] - self.logarithms[self.arms.index(other)])

    def _uncertainty(self, arm: int, other: int) -> _Uncertainty | None:
        """Return the uncertainty of a difference; ``None`` unless both arms were repeated, and rounds connect them."""
        import numpy as np

        if arm == other or arm not in self.arms or other not in self.arms:
            return None
        pair = [self.arms.index(arm), self.arms.index(other)]
        if self.groups[pair[0]] != self.groups[pair[1]] or self.own_degrees[pair].min() < _LEAST_DEGREES:
            return None
        shares = np.bincount(self.owners, (self.influence[:, pair[0]] - self.influence[:, pair[1]]) ** 2)
        parts = shares * self.own_variances
        variance = float(parts.sum())
        degrees = variance**2 / float((parts**2 / (self.own_degrees + _COMMON_DEGREES)).sum())
        return _Uncertainty(variance, float(shares.sum()), min(self.degrees, degrees))

    def half_width(self, arm: int, other: int, *, error: float) -> float:
        """Return half the interval of a difference, which misses the truth at any time with this probability.

        It is infinite if there is no such ratio.
        """
        ratio = self.ratio(arm, other, error=error)
        return ratio.half_width if ratio else math.inf

    def ratio(self, arm: int, other: int, *, error: float) -> Ratio | None:
        """Return the speed of an arm over that of another one, with an interval that holds at all times.

        ``None`` if they did not run together often enough, or if the interval would be wider than a factor of 1000.
        """
        if (uncertainty := self._uncertainty(arm, other)) is None:
            return None
        quantile = anytime_quantile(uncertainty.spread, uncertainty.degrees, error=error)
        if quantile * math.sqrt(uncertainty.variance) > _WIDEST:
            return None
        return Ratio(mean=self.difference(arm, other), variance=uncertainty.variance, quantile=quantile)

    def ratio_now(self, arm: int, other: int, *, error: float) -> Ratio | None:
        """Return the same with an interval of Student's distribution, which holds for one look at the runs.

        Its lower bound is above the truth with the probability ``error``.
        """
        if (uncertainty := self._uncertainty(arm, other)) is None:
            return None
        quantile = student_quantile(1 - error, uncertainty.degrees)
        return Ratio(mean=self.difference(arm, other), variance=uncertainty.variance, quantile=quantile)


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
