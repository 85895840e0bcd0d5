"""Similarity of machines and of settings, as correlations of their effects."""

from __future__ import annotations

import math
from dataclasses import replace

from knowledge.evidence.contrasts import Machine, Side
from knowledge.hardware.matrix_features import element_types

SHORT_PRECISIONS = frozenset({"amp", "amp_bf16", "fp16", "bf16"})
"""Values of the setting `precision` that use the same cores. Sources name mixed precision in different ways; in the
pairs of `amp` and `fp16` of one source, the median ratio is 1."""
SIMILARITY_OF_VALUES = 0.8
"""Similarity of settings that have something in common (:func:`common_value`): a judgement."""

_MIXED = (("amp", "float16"), ("amp", "bfloat16"))
"""Mixed precision as this program sets it on accelerators; on processors, the value also names a feature."""
_THREADS = ("threads", "interop_threads")
"""Settings whose values are numbers of threads."""
_OF = " of "
"""What stands between a number of threads and the number of cores."""
_SHORT_NAMES = {"bf16": "bfloat16", "amp_bf16": "bfloat16", "fp16": "float16", "amp": "bfloat16"}
"""Element types by other names that values of settings have. On processors, the one of mixed precision is bfloat16."""


_COMPUTES_IN = {("matmul_precision", "medium"): "bfloat16"}
"""Element types of values that do not name them: https://docs.pytorch.org/docs/stable/generated/
torch.set_float32_matmul_precision.html, "medium" multiplies in bfloat16 where the processor can."""


def side_on(side: Side, machine: Machine) -> Side:
    """Return a stack whose settings also name what they depend on in a processor, without those that change nothing.

    Whether a reduced precision is fast or slow depends on the feature that multiplies such matrices. So its effect is
    similar on processors with the same one, and says nothing about others. Where the features are unknown, it says
    nothing about other machines. A number of threads has similar effects with other numbers of cores, and none if it is
    one thread for one core.

    Args:
        side: The stack.
        machine: The machine that it runs on; on an accelerator, the stack is returned as it is.
    """
    if not side.settings or not machine.is_processor:
        return side
    settings = {name: _value_on(name, value, machine) for name, value in side.settings.items()}
    return replace(side, settings={name: value for name, value in settings.items() if value})


def _value_on(name: str, value: str, machine: Machine) -> str:
    """Return a value of a setting with what it depends on in a processor; empty if it is what happens anyway."""
    if kind := element_type_of(name, value):
        return f"{value} by {precision_feature(kind, machine) or 'no feature'}"
    if name in _THREADS and machine.cores:
        return "" if (value, machine.cores) == ("1", 1) else f"{value}{_OF}{machine.cores}"
    return value


def precision_feature(element_type: str, machine: Machine) -> str:
    """Return the feature of a processor that multiplies matrices of an element type; empty if it has none.

    Args:
        element_type: The element type.
        machine: The processor; if its features are unknown, its identity is returned.
    """
    features = machine.precision_features or (machine.identity,) * len(element_types())
    return dict(zip(element_types(), features, strict=True))[element_type]


def common_value(setting: tuple[str, str]) -> tuple[str, str]:
    """Return what a setting has in common with similar ones, and else the setting.

    All short precisions have a name in common, and a number of threads is one whatever the number of cores. What they
    have in common has a scale of its own, and so has what distinguishes each of them.
    """
    name, value = setting
    if (name == "precision" and value in SHORT_PRECISIONS) or setting in _MIXED:
        return "precision", "short"
    return (name, value.partition(_OF)[0]) if name in _THREADS else setting


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


def similarity_of(one: Machine, other: Machine) -> float:
    """Return the similarity of two machines: 1 for the same properties, decreasing with their difference."""
    if one.features and other.features:
        return math.exp(-0.5 * math.dist(one.features, other.features) ** 2)
    return float((one.features or one.kind) == (other.features or other.kind))
