"""Similarity of machines and of settings, as correlations of their effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from knowledge.estimate.evidence import Machine, Side
from knowledge.hardware.matrix_features import element_types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SHORT_PRECISIONS = frozenset({"amp", "amp_bf16", "fp16", "bf16"})
SIMILARITY_OF_SHORT = 0.8
"""Values of the setting `precision` that use the same cores, and their similarity. Sources name mixed precision in
different ways; in the pairs of `amp` and `fp16` of one source, the median ratio is 1. The similarity is a judgement."""

_SHORT_NAMES = {"bf16": "bfloat16", "amp_bf16": "bfloat16", "fp16": "float16", "amp": "bfloat16"}
"""Element types by other names that values of settings have. On processors, the one of mixed precision is bfloat16."""


_COMPUTES_IN = {("matmul_precision", "medium"): "bfloat16"}
"""Element types of values that do not name them: https://docs.pytorch.org/docs/stable/generated/
torch.set_float32_matmul_precision.html, "medium" multiplies in bfloat16 where the processor can."""


def side_on(side: Side, machine: Machine) -> Side:
    """Return a stack whose settings of a reduced precision also name what multiplies such matrices on a processor.

    Whether a reduced precision is fast or slow depends on this feature. So its effect is similar on processors with the
    same one, and says nothing about others. Where the features are unknown, it says nothing about other machines.

    Args:
        side: The stack.
        machine: The machine that it runs on; on an accelerator, the stack is returned as it is.
    """
    if not side.settings or not machine.is_processor:
        return side
    reduced = {name: kind for name, value in side.settings.items() if (kind := element_type_of(name, value))}
    if not reduced:
        return side
    features = machine.precision_features or (machine.identity,) * len(element_types())
    by_type = dict(zip(element_types(), features, strict=True))
    settings = {name: f"{side.settings[name]} by {by_type[kind] or 'no feature'}" for name, kind in reduced.items()}
    return replace(side, settings={**side.settings, **settings})


def element_type_of(name: str, value: str) -> str:
    """Return the element type that a value of a setting computes in; empty if it changes no precision.

    Args:
        name: Name of the setting.
        value: The value, such as ``bfloat16``, ``bf16`` or ``mixed_bfloat16``.
    """
    if (name, value) in _COMPUTES_IN:
        return _COMPUTES_IN[name, value]
    short = value.lower().removeprefix("mixed_")
    short = _SHORT_NAMES.get(short, short)
    return short if short in element_types() else ""


def similarity_of_machines(values: Sequence[object]) -> Array:
    """Return the similarity of machines (n, n), by the features of their accelerators.

    Args:
        values: Features of each machine, or its kind if they are unknown: such a machine is similar to its kind only.
    """
    import numpy as np

    similarity = np.array([[float(one == other) for other in values] for one in values])
    rows = [i for i, value in enumerate(values) if isinstance(value, tuple)]
    if not rows:
        return similarity
    features = np.array([values[i] for i in rows], dtype=float).reshape(len(rows), -1)
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    similarity[np.ix_(rows, rows)] = np.exp(-0.5 * distances)
    return similarity


def similarity_of(one: Machine, other: Machine) -> float:
    """Return the similarity of two machines: 1 for the same properties, decreasing with their difference."""
    return float(similarity_of_machines([machine.features or machine.kind for machine in (one, other)])[0, 1])
