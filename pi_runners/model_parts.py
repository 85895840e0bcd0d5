"""The runs of single operations whose times add up to the time of a whole model."""

from __future__ import annotations

from knowledge.domain.observation import IndicatorRun
from pi_runners.indicators import INDICATORS
from pi_runners.models.catalogue import NETWORKS
from pi_runners.models.operations import operations


def operation_calls(run: IndicatorRun) -> list[tuple[IndicatorRun, int]]:
    """Return the single operations of a whole model on its backend and device, each with its calls in one of the model's.

    Args:
        run: A run of the indicator `model`.
    """
    parameters = dict(run.parameters)
    network, mode = NETWORKS[str(parameters.pop("model"))], str(parameters.pop("mode"))
    calls = []
    for operation in operations(network, parameters, mode):
        indicator = INDICATORS[operation.indicator]
        canonical = indicator.canonical(operation.parameters)
        single = IndicatorRun(
            name=indicator.name,
            version=indicator.version,
            backend=run.backend,
            device=run.device,
            dtype=run.dtype,
            parameters=indicator.parameters_for(canonical, run.backend),
        )
        calls.append((single, operation.calls))
    return calls
