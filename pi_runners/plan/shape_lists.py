"""Lists of shapes to measure single operations with: DeepBench's, and the shapes of the whole models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.count import operations

SMALLEST_SHARE = 0.03
"""An operation is in the list of a model if it has this share of the model's operations (FLOP) or bytes."""

_ShapeLists = dict[str, dict[str, list[dict[str, Any]]]]


def shapes_of(name: str, indicator: str) -> Sequence[Mapping[str, Any]]:
    """Return the shapes of a list for an indicator, each once.

    Args:
        name: Name of the list. ``deepbench`` combines DeepBench's training and server lists, ``models-small`` the
            training and inference lists of the small whole models; so do ``models-medium`` and ``models-large``.
        indicator: Name of the indicator.

    Raises:
        InputError: If there is no such list, or it has no shape for the indicator.
    """
    lists = {**published_shapes(), **model_shapes()}
    keys = [key for key in lists if key == name or (key.startswith(f"{name}-") and not key.endswith("-device"))]
    if not keys:
        groups = dict.fromkeys(key.rsplit("-", 1)[0] for key in lists if not key.endswith(("-server", "-device")))
        raise InputError(f"there are no shapes `{name}`", hint=f"use one of {', '.join([*groups, *lists])}")
    shapes = {tuple(sorted(shape.items())): shape for key in keys for shape in lists[key].get(indicator, ())}
    if not shapes:
        indicators = sorted({other for key in keys for other in lists[key]})
        raise InputError(
            f"the shapes `{name}` have none for indicator `{indicator}`", hint=f"they have {', '.join(indicators)}"
        )
    return list(shapes.values())


@cache
def published_shapes() -> _ShapeLists:
    """Return the lists of DeepBench, by name of the list and of the indicator."""
    text = (Path(__file__).parent / "shapes" / "deepbench.json").read_text(encoding="utf-8")
    lists: _ShapeLists = json.loads(text)["lists"]
    return lists


@cache
def model_shapes() -> _ShapeLists:
    """Return the main operations of the whole models, by size and mode, and by indicator."""
    lists: _ShapeLists = {}
    for network in NETWORKS.values():
        for size, modes in network.sets.items():
            for mode, parameters in modes.items():
                shapes = lists.setdefault(f"models-{size}-{'training' if mode == 'training' else 'inference'}", {})
                counted = []
                for operation in operations(network, parameters, mode):
                    indicator = INDICATORS[operation.indicator]
                    complete = indicator.complete(operation.parameters)
                    amounts = indicator.flops(complete), indicator.bytes_moved(complete, "float32")
                    counted.append((operation, [operation.calls * amount for amount in amounts]))
                totals = [sum(column) for column in zip(*(amounts for _, amounts in counted), strict=True)]
                for operation, own in counted:
                    if any(amount >= SMALLEST_SHARE * total for amount, total in zip(own, totals, strict=True)):
                        shapes.setdefault(operation.indicator, []).append(operation.parameters)
    return lists
