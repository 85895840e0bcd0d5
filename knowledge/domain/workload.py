"""Profiled workloads: where the time of one step of a user's own program goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from knowledge.domain.errors import InputError

WORKLOAD_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Pattern of the names of profiled workloads."""
SHARE_TOLERANCE = 0.01
"""Accepted difference from 1 of a sum of shares, which are rounded in files."""

Direction = Literal["", "forward", "backward"]
"""Pass that an operation belongs to; empty if the trace does not say it."""

LAYERS = (
    "Python",
    "framework",
    "BLAS",
    "DNN library",
    "communication",
    "memory copies",
    "input pipeline",
    "other",
)
"""Layers of software that the time of a step is divided among."""


class WorkloadError(InputError):
    """Raised when a workload contradicts itself, such as shares that do not add up."""

    code = "invalid-workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPart:
    """Operations of one kind and shape, with their share of the time of a step.

    Attributes:
        indicator: Performance indicator that stands for the operation, such as ``conv2d``.
        share: Share of the time of a step, 0 to 1.
        calls: Calls per step.
        parameters: Parameters of the indicator; empty if the trace holds no shapes, or if no parameters of the
            indicator describe the operation.
        dtype: Element type, such as ``float32``; empty if the trace does not name it.
        direction: Pass that the operation belongs to.
    """

    indicator: str
    share: float
    calls: float = 0.0
    parameters: Mapping[str, int | str] = field(default_factory=dict)
    dtype: str = ""
    direction: Direction = ""

    @property
    def label(self) -> str:
        """The part in words: ``conv2d [batch=8,...] float32 backward``."""
        values = ",".join(f"{name}={value}" for name, value in sorted(self.parameters.items()) if name != "direction")
        backward = self.direction if self.direction == "backward" else ""
        return " ".join(
            word for word in (self.indicator, f"[{values}]" if values else "", self.dtype, backward) if word
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """A kernel or operation as the trace names it, with its share, 0 to 1, of the time of a step."""

    name: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledWorkload:
    """Time shares of one step of a program, from a trace of its framework's profiler.

    Attributes:
        name: Name of the workload in its project.
        framework: Distribution that was profiled, such as ``torch``.
        framework_version: Its version; empty if unknown.
        parts: Parts, the largest share first.
        unattributed: Share of the time that no part stands for. It and the shares of the parts sum to 1.
        layers: Share of each layer; they sum to 1. Empty if unknown.
        kernels: Dominating kernels, the largest share first.
        steps: Steps in the trace; 0 if the trace does not mark them.
        seconds_per_step: Mean duration of a step, or of the whole trace without steps.
        command: Command that was profiled; empty for an imported trace.
        versions: Versions of other packages and of Python.
        hardware: Name of the processor or accelerator; empty if unknown.
        device: ``cpu`` or ``cuda``.
        source: Where the shares come from, such as the name of a trace file.
    """

    name: str
    framework: str
    framework_version: str = ""
    parts: tuple[WorkloadPart, ...]
    unattributed: float
    layers: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[KernelShare, ...] = ()
    steps: int = 0
    seconds_per_step: float = 0.0
    command: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: str = ""
    device: str = "cpu"
    source: str = ""

    def __post_init__(self) -> None:
        where = f"workload `{self.name}`"
        shares = [part.share for part in self.parts]
        _check_shares(where, "the parts and `unattributed`", [*shares, self.unattributed])
        if self.layers:
            _check_shares(where, "`layers`", self.layers.values())
        _check_range(where, [kernel.share for kernel in self.kernels])


def _check_shares(where: str, what: str, shares: Iterable[float]) -> None:
    shares = list(shares)
    _check_range(where, shares)
    total = math.fsum(shares)
    if abs(total - 1) > SHARE_TOLERANCE:
        raise WorkloadError(
            f"the shares of {what} of {where} add up to {total:.4g} instead of 1", hint="profile the program again"
        )


def _check_range(where: str, shares: Iterable[float]) -> None:
    for share in shares:
        # NaN fails every comparison.
        if not 0 <= share <= 1 + SHARE_TOLERANCE:
            raise WorkloadError(f"{where} has the share {share:.4g}, which is not between 0 and 1")
