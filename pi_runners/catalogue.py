"""Definitions of the indicators, for checks of observations that others deliver."""

from __future__ import annotations

from knowledge.domain.observation import BENCHMARK, IndicatorRun
from pi_runners.execution.benchmark import VERSION
from pi_runners.indicators import INDICATORS


class Indicators:
    """The indicators of this program."""

    def version_of(self, name: str) -> int | None:
        """Return the current version of an indicator's definition, or none if there is no such indicator."""
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
        # `algorithm` describes the backend; it is not a parameter of the indicator.
        parameters = {name: value for name, value in run.parameters.items() if name != "algorithm"}
        if indicator.complaints(parameters) or run.dtype not in indicator.dtypes:
            return None
        parameters = indicator.complete(parameters)
        return indicator.flops(parameters), indicator.bytes_moved(parameters, run.dtype)
