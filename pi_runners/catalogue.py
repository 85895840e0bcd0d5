"""What the definitions of indicators say of observations and profiles: versions, and amounts of work."""

from __future__ import annotations

import math
from typing import Any

from knowledge.domain.observation import BENCHMARK, IndicatorRun
from knowledge.domain.workload import ProfiledWorkload
from pi_runners.execution.benchmark import VERSION
from pi_runners.indicators import INDICATORS


def parameters_of(run: IndicatorRun) -> dict[str, Any]:
    """Return the parameters of an indicator; `algorithm` describes the backend, and is none of them."""
    return {name: value for name, value in run.parameters.items() if name != "algorithm"}


class Indicators:
    """The indicators of this program."""

    def version_of(self, name: str) -> int | None:
        """Return the current version of an indicator's definition, or ``None`` if there is no such indicator."""
        if name == BENCHMARK:
            return VERSION
        return INDICATORS[name].version if name in INDICATORS else None

    def amounts(self, run: IndicatorRun) -> tuple[float, float] | None:
        """Return floating-point operations and bytes of one call by the indicator's formulae.

        Returns:
            None if the parameters or the element type are not valid for the indicator, or it is a project's own
            benchmark, which has no formulae.
        """
        if run.name == BENCHMARK:
            return None
        indicator = INDICATORS[run.name]
        parameters = parameters_of(run)
        if indicator.complaints(parameters) or run.dtype not in indicator.dtypes:
            return None
        parameters = indicator.complete(parameters)
        return indicator.flops(parameters), indicator.bytes_moved(parameters, run.dtype)


LEAST_KNOWN = 0.5
"""Least share of the attributed time of a profile whose operations must be known."""


def amounts_of_profile(profile: ProfiledWorkload) -> tuple[float, float]:
    """Return the floating-point operations and the least bytes of a step of a profiled program; zeros if unknown.

    They are unknown if the trace marks no steps, or holds no shapes of most of its operations.
    """
    flops = moved = known = 0.0
    for part in profile.parts:
        indicator = INDICATORS.get(part.indicator)
        if indicator is None or not part.parameters or not part.calls > 0:
            continue
        try:
            complete = indicator.complete(indicator.canonical(dict(part.parameters)))
            amounts = indicator.flops(complete), indicator.bytes_moved(complete, part.dtype or "float32")
        except (ArithmeticError, KeyError, TypeError, ValueError):
            # A file may contain any parameters; such an operation counts as unknown.
            continue
        flops, moved = flops + part.calls * amounts[0], moved + part.calls * amounts[1]
        known += part.share
    is_known = profile.steps > 0 and known >= LEAST_KNOWN * sum(part.share for part in profile.parts)
    return (flops, moved) if is_known and math.isfinite(flops) and math.isfinite(moved) else (0.0, 0.0)
