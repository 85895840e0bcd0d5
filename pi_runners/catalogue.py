"""What this program's indicators are, for whoever checks observations of others."""

from __future__ import annotations

from knowledge.domain.observation import IndicatorRun
from pi_runners.indicators import INDICATORS


class Indicators:
    """The indicators of this program."""

    def version_of(self, name: str) -> int | None:
        """Return the newest version of an indicator's definition, or none where there is no such indicator."""
        return INDICATORS[name].version if name in INDICATORS else None

    def amounts(self, run: IndicatorRun) -> tuple[float, float] | None:
        """Return floating-point operations and bytes of a call, by the formulae; none where they do not apply."""
        indicator = INDICATORS[run.name]
        # What a backend says about itself is no parameter.
        given = {name: value for name, value in run.parameters.items() if name != "algorithm"}
        if indicator.complaints(given) or run.dtype not in indicator.dtypes:
            return None
        parameters = indicator.complete(given)
        return indicator.flops(parameters), indicator.bytes_moved(parameters, run.dtype)
