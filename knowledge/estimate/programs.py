"""Programs, by what decides how much a version or a setting gains there: size, operations and architecture."""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from knowledge.domain.observation import words_of
from knowledge.estimate.discrepancy import architecture_of, program_of_label

OPERATIONS = ("convolution", "depthwise", "matmul", "attention", "recurrent", "memory")
"""Kinds of operations that the time of a program is divided into; ``memory`` moves more bytes than it computes."""
_OF_INDICATORS = {
    "conv1d": "convolution",
    "conv2d": "convolution",
    "conv3d": "convolution",
    "matmul": "matmul",
    "attention": "attention",
    "recurrent": "recurrent",
}
"""Kind of the indicators of single operations; of others ``memory``."""
_UNITS = {"flops": 4.5, "intensity": 1.5, "training": 1.0, "launches": 5.0, "share": 0.4}
"""Differences over which programs become unlike: of logarithms, of the mode, and of a share of the time. Those of
`flops`, `launches` and `share` have the least errors of eight choices in `python -m benchmarks.gain_held_out`; the
others are judgements."""
_USUAL_FLOPS, _USUAL_INTENSITY = 1e9, 10.0
"""What counts where the size of a program is not known."""


@dataclass(frozen=True, kw_only=True)
class Program:  # Not slotted: its place is cached.
    """A program at one size.

    Attributes:
        label: Label of the run; equal labels are one program at one size.
        model: What the same program at several sizes has in common.
        architecture: What programs of one architecture and mode have in common.
        flops: Floating-point operations of a step; 0 if unknown.
        bytes: Least bytes that a step moves; 0 if unknown.
        launches: Number of operations of a step.
        training: Whether it trains.
        shares: Share of the time of each of :data:`OPERATIONS`; they sum to 1.
    """

    label: str
    model: tuple[str, ...]
    architecture: tuple[str, ...]
    flops: float = 0.0
    bytes: float = 0.0
    launches: float = 1.0
    training: bool = False
    shares: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)

    @cached_property
    def place(self) -> tuple[float, ...]:
        """Coordinates of the program: programs at a distance of 1 gain similarly."""
        flops = self.flops if self.flops > 0 else _USUAL_FLOPS
        intensity = flops / self.bytes if self.bytes > 0 and self.flops > 0 else _USUAL_INTENSITY
        return (
            math.log(flops / _USUAL_FLOPS) / _UNITS["flops"],
            math.log(intensity / _USUAL_INTENSITY) / _UNITS["intensity"],
            float(self.training) / _UNITS["training"],
            math.log(max(1.0, self.launches)) / _UNITS["launches"],
            *(share / _UNITS["share"] for share in self.shares),
        )


def program_of_run(label: str, family: str, *, flops: float, bytes: float) -> Program:
    """Return the program of an indicator run.

    Args:
        label: Label of the run.
        family: Name of the indicator.
        flops: Floating-point operations of a call; 0 if unknown.
        bytes: Least bytes that a call moves; 0 if unknown.
    """
    words = words_of(label)
    model = program_of_label(label, family)
    launches, shares = _compositions().get(" ".join(model[1:]), (0.0, ()))
    if not shares:
        kind = kind_of_operation(family, groups=words.get("groups", "1"))
        launches, shares = 1.0, tuple(float(kind == name) for name in OPERATIONS)
    return Program(
        label=label,
        model=model,
        architecture=architecture_of(label, family),
        flops=flops,
        bytes=bytes,
        launches=launches,
        training="training" in words.values() or "backward" in words.values(),
        shares=tuple(shares),
    )


def kind_of_operation(indicator: str, *, groups: object = 1) -> str:
    """Return which of :data:`OPERATIONS` an indicator measures.

    Args:
        indicator: Name of the indicator.
        groups: Groups of channels of a convolution.
    """
    kind = _OF_INDICATORS.get(indicator, "memory")
    return "depthwise" if kind == "convolution" and str(groups) != "1" else kind


@cache
def _compositions() -> Mapping[str, tuple[float, Sequence[float]]]:
    """Return the number of operations of each model and block, and the shares of their kinds, by name and mode."""
    path = importlib.resources.files("knowledge.data") / "programs.json"
    return {name: (entry[0], tuple(entry[1:])) for name, entry in json.loads(path.read_text(encoding="utf-8")).items()}
