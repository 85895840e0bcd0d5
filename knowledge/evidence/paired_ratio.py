"""Robust location of a few paired differences: rounds that were disturbed by other load have little influence.

The mean is influenced by every disturbed round. The trimmed mean leaves out the smallest and the largest quarter, and
the Winsorised variance gives its standard error (J. W. Tukey and D. H. McLaughlin, "Less vulnerable confidence and
significance procedures for location based on a single sample", Sankhya A 25, 1963; R. R. Wilcox, Introduction to Robust
Estimation and Hypothesis Testing, 3rd edition, 2012, section 4.3). `benchmarks/rounds.py` compares it with the mean,
with Hodges and Lehmann's estimator and its signed-rank interval, and with the bootstrap of the trimmed mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_TRIMMED_SHARE = 0.25
_DEGREES_SHARE = 0.8
"""Degrees of freedom of the Winsorised variance of normal differences, over those of its formula (number of untrimmed
values less one): from 0.74 for 8 rounds to 0.85 for 7 (`python -m benchmarks.rounds --constants`)."""
_FEW = {2: 1.0, 3: 1.35, 4: 1.19, 5: 1.14}
"""Variance of the trimmed mean of so few normal values, over that of their mean (same command)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Location of paired differences, with its uncertainty.

    Attributes:
        value: The trimmed mean.
        variance: Squared standard error of the trimmed mean, times the number of differences.
        degrees: Degrees of freedom of the variance.
    """

    value: float
    variance: float
    degrees: float


def locate(differences: Sequence[float]) -> Location:
    """Return the trimmed mean of two or more paired differences, with its variance.

    With up to five differences, a Winsorised variance has fewer than two degrees of freedom, so the ordinary variance
    is used: one disturbed round then widens the interval, and changes the estimate little.
    """
    ordered = sorted(differences)
    count = len(ordered)
    cut = 1 if count == 3 else int(_TRIMMED_SHARE * count)
    middle = ordered[cut : count - cut]
    value = statistics.fmean(middle)
    if count in _FEW:
        return Location(value=value, variance=_FEW[count] * statistics.variance(ordered), degrees=count - 1)
    spread = statistics.variance(winsorised(ordered, cut))
    squared_error = (count - 1) * spread / (len(middle) * (len(middle) - 1))
    return Location(value=value, variance=squared_error * count, degrees=_DEGREES_SHARE * (len(middle) - 1))


def winsorised(values: Sequence[float], cut: int) -> list[float]:
    """Return values with the ``cut`` smallest and the ``cut`` largest replaced by the next value inside."""
    ordered = sorted(values)
    low, high = ordered[cut], ordered[len(ordered) - 1 - cut]
    return [min(max(value, low), high) for value in values]


_FEWEST = 5
"""Minimum number of variances from which their scatter is estimated; with four, intervals are too short."""
_COMMON = 0.25
"""Correlation of two variances of ratios to one reference that is as noisy as the arms: the ratios' own is 1/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Common prior of variances.

    Attributes:
        variance: The common variance.
        degrees: Weight of the common variance in degrees of freedom; 0 if nothing is shared.
    """

    variance: float = 0.0
    degrees: float = 0.0

    def moderate(self, variance: float, degrees: float) -> tuple[float, float]:
        """Return a variance shrunk towards the common one, and its degrees of freedom."""
        total = self.degrees + degrees
        return (self.degrees * self.variance + degrees * variance) / total, total


def estimate_prior(variances: Sequence[tuple[float, float]]) -> Prior:
    """Estimate the common prior of the variances of one indicator's arms, from the moments of their logarithms.

    With few rounds, the variance of one arm alone is uncertain. This is the empirical Bayes model of G. K. Smyth,
    "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments",
    Statistical Applications in Genetics and Molecular Biology 3(1), 2004, sections 3 and 6.2: true variances are scaled
    inverse chi-squared around a common value; how closely is estimated from how much the observed variances differ
    beyond chance. If they are similar, each is known nearly as well as all together; if not, each keeps its own value.

    Smyth has thousands of independent variances. Here a few arms of one indicator share a reference, so two things are
    added: variances that share noise differ less by chance, and the common value is itself uncertain. Without these,
    intervals are too short (`python -m benchmarks.rounds --levels`).

    Args:
        variances: Variances of ratios to one reference, each with its degrees of freedom; zeros are ignored.
    """
    from scipy.special import digamma

    positive = [(v, d) for v, d in variances if v > 0 and d > 0]
    if len(positive) < _FEWEST:
        return Prior()
    centred = [math.log(v) - float(digamma(d / 2)) + math.log(d / 2) for v, d in positive]
    chance = statistics.fmean(_trigamma(d / 2) for _, d in positive)
    own, common = (1 - _COMMON) * chance, _COMMON * chance
    excess = max(0.0, statistics.variance(centred) - own)
    # The log of a true variance differs from the mean of the logarithms by its own excess and by the error of the mean.
    half = _inverse_trigamma(excess + common + (own + excess) / len(positive))
    variance = math.exp(statistics.fmean(centred) + float(digamma(half)) - math.log(half))
    return Prior(variance=variance, degrees=2 * half)


def _trigamma(x: float) -> float:
    from scipy.special import zeta

    # `scipy.special.polygamma(1, x)` is the same number, and takes several times as long.
    return float(zeta(2, x))


def _inverse_trigamma(value: float) -> float:
    """Solve ``trigamma(x) = value`` by bisection of the logarithm; trigamma falls from infinity to 0."""
    low, high = math.log(1e-8), math.log(1e6)
    for _ in range(80):
        middle = (low + high) / 2
        if _trigamma(math.exp(middle)) > value:
            low = middle
        else:
            high = middle
    return math.exp(low)


@lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees: float) -> float:
    """Return a quantile of Student's t distribution."""
    # Not `scipy.stats`, whose import takes a second; and imported only when an interval is computed.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
