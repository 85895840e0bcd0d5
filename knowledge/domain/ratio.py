"""A ratio of speeds with its uncertainty. Its logarithm has a normal distribution, or a Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

CONFIDENCE = 0.95
"""Confidence of intervals, unless something else is stated."""
NORMAL_QUANTILE = 1.959963984540054
"""Number of standard deviations on both sides that contain :data:`CONFIDENCE` of a normal distribution."""
MIN_GAIN = 0.03
"""Smallest gain of speed for which another stack than the newest one is chosen, as a fraction."""
RISK = 16.0
"""Risk aversion: weight of the variance against a gain. A gain must also be significant and at least one step of 1 %: a
log speed-up of 0.05 counts if its standard deviation is at most 0.025, one of 0.60 if it is at most 0.27. The value is
a judgement; `python -m benchmarks.held_out` prints the regret of the advice with it."""
_WIDEST = 100.0
"""Largest half-width of an interval of a logarithm: with one degree of freedom, wider ones overflow as ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of speeds, by the mean and the variance of its natural logarithm.

    Attributes:
        mean: Mean of the logarithm; positive is faster.
        variance: Variance of the logarithm. A difference of variances may be slightly negative; it counts as 0.
        quantile: Number of standard deviations from the mean to an end of the interval.
    """

    mean: float
    variance: float
    quantile: float = NORMAL_QUANTILE

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(max(0.0, self.variance))

    @property
    def half_width(self) -> float:
        """Half the width of the interval of the logarithm."""
        return min(self.quantile * self.deviation, _WIDEST)

    @property
    def speedup(self) -> float:
        """The ratio."""
        return math.exp(self.mean)

    @property
    def low(self) -> float:
        """Lower end of the interval of the ratio."""
        return math.exp(self.mean - self.half_width)

    @property
    def high(self) -> float:
        """Upper end of the interval of the ratio."""
        return math.exp(self.mean + self.half_width)

    @property
    def cautious(self) -> float:
        """Certainty equivalent of the logarithm: the mean minus a penalty for the variance."""
        return self.mean - RISK / 2 * self.variance

    def is_significant(self, comparisons: int = 1) -> bool:
        """Whether the interval excludes 1, if it is widened for a number of comparisons (Bonferroni)."""
        half = self.half_width
        if comparisons > 1:
            # Slow to import, and every command imports this module.
            from statistics import NormalDist

            half = max(half, NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / comparisons) * self.deviation)
        return not math.exp(self.mean - half) <= 1 <= math.exp(self.mean + half)

    def inverse(self) -> Ratio:
        """Return the ratio of the other side to this one."""
        return Ratio(mean=-self.mean, variance=self.variance, quantile=self.quantile)

    def scaled(self, share: float) -> Ratio:
        """Return the ratio of a program of which only a share of the time changes; the logarithm is multiplied."""
        return Ratio(mean=share * self.mean, variance=share**2 * self.variance, quantile=self.quantile)

    def times(self, other: Ratio) -> Ratio:
        """Return the product with another ratio, whose error is independent."""
        return product((self, other))

    def over(self, other: Ratio) -> Ratio:
        """Return this ratio divided by another one, whose error is independent."""
        return product((self, other.inverse()))


NO_GAIN = Ratio(mean=0.0, variance=0.0)
"""The ratio of equal speeds."""


def exactly(value: float) -> Ratio:
    """Return a ratio without error; it must be positive."""
    return Ratio(mean=math.log(value), variance=0.0)


def product(ratios: Iterable[Ratio]) -> Ratio:
    """Return the product of ratios whose errors are independent: means and variances of the logarithms add up.

    Its interval is as wide in standard deviations as that of the least certain factor.
    """
    factors = tuple(ratios)
    return Ratio(
        mean=sum(r.mean for r in factors),
        variance=sum(r.variance for r in factors),
        quantile=max((r.quantile for r in factors), default=NORMAL_QUANTILE),
    )


class WithRatio:
    """A value with a ratio of speeds, whose numbers are its own attributes, too."""

    __slots__ = ()
    ratio: Ratio

    @property
    def speedup(self) -> float:
        """The ratio."""
        return self.ratio.speedup

    @property
    def low(self) -> float:
        """Lower end of the interval of the ratio."""
        return self.ratio.low

    @property
    def high(self) -> float:
        """Upper end of the interval of the ratio."""
        return self.ratio.high

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 1."""
        return self.ratio.is_significant()
