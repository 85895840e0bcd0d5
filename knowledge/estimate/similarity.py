"""Similarity of machines and of settings, as correlations of their effects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from knowledge.estimate.evidence import Machine, Side
from knowledge.hardware.matrix_features import element_types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SHORT_PRECISIONS = frozenset({"amp", "fp16", "bf16"})
SIMILARITY_OF_SHORT = 0.8
"""Values of the setting `precision` that use the same cores, and their similarity. Sources name mixed precision in
different ways; in the pairs of `amp` and `fp16` of one source, the median ratio is 1. The similarity is a judgement."""

_SHORT_NAMES = {"bf16": "bfloat16", "fp16": "float16", "amp": "bfloat16"}
"""Element types by other names that values of settings have. On processors, the one of mixed precision is bfloat16."""


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
    reduced = {name: kind for name, value in side.settings.items() if (kind := element_type_of(value))}
    if not reduced:
        return side
    features = machine.precision_features or (machine.identity,) * len(element_types())
    by_type = dict(zip(element_types(), features, strict=True))
    settings = {name: f"{side.settings[name]} by {by_type[kind] or 'no feature'}" for name, kind in reduced.items()}
    return replace(side, settings={**side.settings, **settings})


def element_type_of(value: str) -> str:
    """Return the element type that a value of a setting reduces the precision to; empty if it is another setting.

    Args:
        value: The value, such as ``bfloat16``, ``bf16`` or ``mixed_bfloat16``.
    """
    name = value.lower().removeprefix("mixed_")
    name = _SHORT_NAMES.get(name, name)
    return name if name in element_types() else ""


def similarity_of_machines(values: Sequence[object]) -> Array:
    """Return the similarity of machines (n, n), by the features of their accelerators.

    Args:
        values: Features of each machine, or its kind if they are unknown: such a machine is similar to its kind only.
    """
    import numpy as np

    similarity = np.eye(len(values))
    rows = [i for i, value in enumerate(values) if isinstance(value, tuple)]
    if not rows:
        return similarity
    features = np.array([values[i] for i in rows], dtype=float).reshape(len(rows), -1)
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    similarity[np.ix_(rows, rows)] = np.exp(-0.5 * distances)
    return similarity


def similarity_of(one: Machine, other: Machine) -> float:
    """Return the similarity of two machines: 1 for the same properties, decreasing with their difference."""
    values = [machine.features or machine.kind for machine in (one, other)]
    return float(similarity_of_machines(values)[0, 1]) if values[0] != values[1] else 1.0


Settings = tuple[tuple[str, str], ...]
"""Names and values of settings, sorted."""


def similarity_of_settings(every: Sequence[Settings], scales: Mapping[str, float]) -> Array:
    """Return the similarity of sets of settings (n, n): the number of settings that they share, or of similar ones.

    Default settings have no effect.

    Args:
        every: The sets.
        scales: Scale of the effects of each setting, by ``name=value``; 1 for others.
    """
    import numpy as np

    return np.array([[sum(_alike(x, y, scales) for x in a for y in b) for b in every] for a in every], dtype=float)


def similarity_of_setting_pairs(every: Sequence[Settings], scales: Mapping[str, float]) -> Array:
    """Return the similarity of sets of settings (n, n): the number of pairs of settings that they share, or similar.

    Args:
        every: The sets.
        scales: Scale of the effects of each setting; that of a pair is the geometric mean.
    """
    import numpy as np

    pairs = [tuple(combinations(own, 2)) for own in every]
    rows = [[sum(_alike_pairs(x, y, scales) for x in a for y in b) for b in pairs] for a in pairs]
    return np.array(rows, dtype=float)


def _alike_pairs(one: Settings, other: Settings, scales: Mapping[str, float]) -> float:
    return math.sqrt(math.prod(_alike(x, y, scales) for x, y in zip(one, other, strict=True)))


def _alike(one: tuple[str, str], other: tuple[str, str], scales: Mapping[str, float]) -> float:
    """Return the similarity of two settings with their values, times the scales of their effects."""
    if one == other:
        similarity = 1.0
    elif one[0] == other[0] == "precision" and {one[1], other[1]} <= SHORT_PRECISIONS:
        similarity = SIMILARITY_OF_SHORT
    else:
        return 0.0
    return similarity * scales.get("=".join(one), 1.0) * scales.get("=".join(other), 1.0)
