"""The indicator cases that the parts of a profiled workload stand for."""

from __future__ import annotations

from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import IndicatorCase

SMALLEST_SHARE = 0.005
"""Parts with a smaller share of the time are not measured."""


def workload_cases(workload: ProfiledWorkload) -> tuple[tuple[IndicatorCase, ...], float]:
    """Return the cases of the parts that can be measured, the largest share first, and their share of the time.

    A part without parameters cannot be measured. Neither can an operation of the backward pass whose indicator measures
    the forward pass only.
    """
    parts = [part for part in workload.parts if part.share >= SMALLEST_SHARE and _is_measurable(part)]
    cases = [
        IndicatorCase(name=part.indicator, parameters=dict(part.parameters), dtype=part.dtype or "float32")
        for part in parts
    ]
    return tuple(cases), sum(part.share for part in parts)


def _is_measurable(part: WorkloadPart) -> bool:
    indicator = INDICATORS.get(part.indicator)
    if indicator is None or not part.parameters or indicator.complaints(dict(part.parameters)):
        return False
    if part.dtype and part.dtype not in indicator.dtypes:
        return False
    return part.direction != "backward" or "direction" in part.parameters
