"""Variances that borrow strength from each other: with few rounds, one arm's own spread says little about its noise.

The empirical Bayes model of G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments", Statistical Applications in Genetics and Molecular Biology 3(1), 2004, sections
3 and 6.2: true variances are scaled inverse chi-squared around a common value; how closely is estimated from how much
the observed variances differ beyond chance. Where they are alike, each is known nearly as well as all together; where
they are not, each stands for itself.

Smyth has thousands of independent variances. Here a few arms of one indicator share a reference, so two things are
added: variances that share noise differ less by chance, and the common value is itself known from few. Without them
intervals are too short (`python -m benchmarks.rounds --levels`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_FEWEST = 6
"""Fewer variances say too little of how much they differ."""
_COMMON = 0.25
"""Correlation of two variances of ratios to one reference that is as noisy as the arms: the ratios' own is 1/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What the variances have in common.

    Attributes:
        variance: The common variance.
        degrees: How many degrees of freedom it is worth; 0 where nothing is shared.
    """

    variance: float = 0.0
    degrees: float = 0.0

    def moderate(self, variance: float, degrees: float) -> tuple[float, float]:
        """Return a variance drawn towards the common one, and its degrees of freedom."""
        total = self.degrees + degrees
        return (self.degrees * self.variance + degrees * variance) / total, total


def estimate_prior(variances: Sequence[tuple[float, float]]) -> Prior:
    """Estimate what variances of one indicator's arms have in common, by the moments of their logarithms.

    Args:
        variances: Each with its degrees of freedom; those that are 0 tell nothing. All are of ratios to one reference.
    """
    told = [(v, d) for v, d in variances if v > 0 and d > 0]
    if len(told) < _FEWEST:
        return Prior()
    centred = [math.log(v) - digamma(d / 2) + math.log(d / 2) for v, d in told]
    chance = statistics.fmean(trigamma(d / 2) for _, d in told)
    own, common = (1 - _COMMON) * chance, _COMMON * chance
    excess = max(0.0, statistics.variance(centred) - own)
    # A true variance lies around the mean of the logarithms by its own excess and by the error of that mean.
    half = _inverse_trigamma(excess + common + (own + excess) / len(told))
    return Prior(variance=math.exp(statistics.fmean(centred) + digamma(half) - math.log(half)), degrees=2 * half)


# Not `scipy.special`, which takes longer to import than to use: each advice estimates these.


def digamma(x: float) -> float:
    """Derivative of the logarithm of the gamma function (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    result = 0.0
    while x < 10:
        result -= 1 / x
        x += 1
    square = 1 / (x * x)
    return result + math.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))


def trigamma(x: float) -> float:
    """Derivative of :func:`digamma` (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    result = 0.0
    while x < 10:
        result += 1 / (x * x)
        x += 1
    square = 1 / (x * x)
    return result + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))


def _inverse_trigamma(value: float) -> float:
    """Solve ``trigamma(x) = value`` by bisection of the logarithm; trigamma falls from infinity to 0."""
    low, high = math.log(1e-8), math.log(1e6)
    for _ in range(80):
        middle = (low + high) / 2
        if trigamma(math.exp(middle)) > value:
            low = middle
        else:
            high = middle
    return math.exp(low)
