"""The parts of whole models: runs of single operations, and blocks."""

from __future__ import annotations

from collections.abc import Mapping

from knowledge.domain.model_part import PartOfModel
from knowledge.domain.observation import IndicatorRun
from pi_runners.indicators import INDICATORS
from pi_runners.models.catalogue import NETWORKS
from pi_runners.models.operations import operations


def blocks_of_model(name: str) -> Mapping[str, int]:
    """Return the number of each block of a whole model; none if no block stands for its parts."""
    return NETWORKS[name].blocks


def parts_of_run(run: IndicatorRun) -> list[PartOfModel]:
    """Return the single operations of a whole model, as runs on the same backend and device.

    Args:
        run: A run of the indicator `model`.
    """
    parameters = dict(run.parameters)
    network, mode = NETWORKS[str(parameters.pop("model"))], str(parameters.pop("mode"))
    parts = []
    for operation in operations(network, parameters, mode):
        indicator = INDICATORS[operation.indicator]
        single = IndicatorRun(
            name=indicator.name,
            version=indicator.version,
            backend=run.backend,
            device=run.device,
            dtype=run.dtype,
            parameters=indicator.parameters_for(indicator.canonical(operation.parameters), run.backend),
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
