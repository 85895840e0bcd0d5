"""Robust location of a few paired differences: rounds that were disturbed by other load have little influence.

The mean is influenced by every disturbed round. The trimmed mean leaves out the smallest and the largest quarter, and
the Winsorised variance gives its standard error (J. W. Tukey and D. H. McLaughlin, "Less vulnerable confidence and
significance procedures for location based on a single sample", Sankhya A 25, 1963; R. R. Wilcox, Introduction to Robust
Estimation and Hypothesis Testing, 3rd edition, 2012, section 4.3). `benchmarks/rounds.py` compares it with the mean,
with Hodges and Lehmann's estimator and its signed-rank interval, and with the bootstrap of the trimmed mean.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
    """Return the trimmed mean of paired differences, with its variance.

    With up to five differences, a Winsorised variance has fewer than two degrees of freedom, so the ordinary variance
    is
    used: one disturbed round then widens the interval, and changes the estimate little.

    Args:
        differences: Two or more.
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
