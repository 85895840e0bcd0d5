"""Table cells of the ratio of two measured stacks: a number with its interval, or `no result`."""

from __future__ import annotations

import math

from knowledge.estimate.compare import Comparison

_LARGEST = math.log(100)
NO_RESULT = "no result"


def ratio_cells(comparison: Comparison) -> tuple[str, str, str]:
    """Return the ratio, its interval, and `*` where the difference is significant.

    An interval that is too wide, or that contradicts the medians, is no result.
    """
    interval = f"{_end(comparison.low)} to {_end(comparison.high)}"
    if not comparison.conclusive:
        return NO_RESULT, f"{interval}: too few or too noisy rounds", ""
    return f"{math.exp(comparison.mean):.3f}", interval, "*" if comparison.significant else ""


def _end(log_ratio: float) -> str:
    if abs(log_ratio) > _LARGEST:
        return "below 0.01" if log_ratio < 0 else "above 100"
    return f"{math.exp(log_ratio):.3f}"
