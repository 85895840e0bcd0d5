"""What the definitions of indicators and models say of observations and profiles: amounts of work, and parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from knowledge.domain.frameworks import frameworks
from knowledge.domain.observation import BENCHMARK, IndicatorRun
from knowledge.domain.workload import ProfiledWorkload
from pi_runners.execution.benchmark import VERSION
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.operations import operations


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
        # `algorithm` describes the backend; it is not a parameter of the indicator.
        parameters = {name: value for name, value in run.parameters.items() if name != "algorithm"}
        if indicator.complaints(parameters) or run.dtype not in indicator.dtypes:
            return None
        parameters = indicator.complete(parameters)
        return indicator.flops(parameters), indicator.bytes_moved(parameters, run.dtype)


LEAST_KNOWN = 0.5
"""Least share of the attributed time of a profile whose operations must be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfModel:
    """A single operation of a whole model.

    Attributes:
        indicator: Name of its indicator.
        label: Label of its run.
        calls: Calls in one call of the model.
        flops: Floating-point operations of one call.
        bytes: Least bytes moved by one call.
    """

    indicator: str
    label: str
    calls: int
    flops: float
    bytes: float


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


def blocks_of_model(name: str) -> Mapping[str, int]:
    """Return the number of each block of a whole model; empty if no block stands for its parts."""
    return NETWORKS[name].blocks


def parts_of_run(run: IndicatorRun) -> list[PartOfModel]:
    """Return the single operations of a whole model, as runs on the same backend and device.

    Args:
        run: A run of the indicator `model`.

    Returns:
        The operations; empty if there is no such backend.
    """
    parameters = dict(run.parameters)
    network, mode = NETWORKS[str(parameters.pop("model"))], str(parameters.pop("mode"))
    if (framework := frameworks().get(run.backend)) is None:
        return []
    parts = []
    for operation in operations(network, parameters, mode):
        indicator = INDICATORS[operation.indicator]
        single = IndicatorRun(
            name=indicator.name,
            version=indicator.version,
            backend=run.backend,
            device=run.device,
            dtype=run.dtype,
            parameters=indicator.parameters_for(indicator.canonical(operation.parameters), framework),
        )
        complete = indicator.complete(operation.parameters)
        parts.append(
            PartOfModel(
                indicator=single.name,
                label=single.label,
                calls=operation.calls,
                flops=indicator.flops(complete),
                bytes=indicator.bytes_moved(complete, run.dtype),
            )
        )
    return parts
