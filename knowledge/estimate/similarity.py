"""Similarity of machines and of settings, as correlations of their effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from knowledge.estimate.evidence import Machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SHORT_PRECISIONS = frozenset({"amp", "fp16", "bf16"})
SIMILARITY_OF_SHORT = 0.8
"""Values of the setting `precision` that use the same cores, and their similarity. Sources name mixed precision in
different ways; in the pairs of `amp` and `fp16` of one source, the median ratio is 1. The similarity is a judgement."""


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


def similarity_of_settings(settings: Sequence[tuple[tuple[str, str], ...]]) -> Array:
    """Return the similarity of sets of settings (n, n): the number of settings that they share, or of similar ones.

    Default settings have no effect.
    """
    import numpy as np

    return np.array([[sum(_alike(x, y) for x in a for y in b) for b in settings] for a in settings], dtype=float)


def _alike(one: tuple[str, str], other: tuple[str, str]) -> float:
    """Return the similarity of two settings with their values."""
    if one == other:
        return 1.0
    is_short = one[0] == other[0] == "precision" and {one[1], other[1]} <= SHORT_PRECISIONS
    return SIMILARITY_OF_SHORT if is_short else 0.0
