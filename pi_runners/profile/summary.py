"""Makes a workload from the divided time of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from knowledge.domain.workload import LAYERS, KernelShare, ProfiledWorkload, WorkloadPart
from pi_runners.profile.timeline import Claim, Division

_MAX_PARTS = 200
_SMALLEST_SHARE = 0.0005
"""Parts with a smaller share are added to the time that no part stands for."""
_KERNELS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The content of a trace.

    Attributes:
        framework: Framework whose profiler wrote it, such as ``torch``.
        division: Its time, divided, in microseconds.
        steps: Steps in it; 0 if it does not mark them.
        device: ``cpu`` or ``cuda``.
        hardware: Name of the accelerator, if the trace names it.
        versions: Versions of packages that the trace names.
        warnings: What the user should know about it, as sentences.
    """

    framework: str
    division: Division
    steps: int = 0
    device: str = "cpu"
    hardware: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Duration of the trace, or of its steps."""
        return self.division.total / 1e6


def workload_of(
    summary: TraceSummary,
    *,
    name: str,
    source: str,
    command: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    framework: str = "",
    hardware: str = "",
) -> ProfiledWorkload:
    """Return the workload of a trace.

    Args:
        summary: Content of the trace.
        name: Name of the workload.
        source: Where it comes from.
        command: Command that was profiled.
        versions: Versions of packages, including the framework.
        framework: Distribution of the framework, if it is not the trace's name of it.
        hardware: Name of the processor, if the trace names no accelerator.
    """
    all_versions = {**summary.versions, **(versions or {})}
    framework = framework or summary.framework
    parts = _parts(summary.division, summary.steps)
    division = summary.division
    layers = dict.fromkeys(LAYERS, 0.0)
    for layer, time in division.layers.items():
        layers[layer if layer in layers else "other"] += time / division.total
    layers["Python"] += division.idle / division.total
    return ProfiledWorkload(
        name=name,
        framework=framework,
        framework_version=all_versions.pop(framework, ""),
        parts=parts,
        unattributed=max(0.0, 1.0 - sum(part.share for part in parts)),
        layers={layer: share for layer, share in layers.items() if share > 0},
        kernels=tuple(
            KernelShare(name=kernel[:300], share=time / division.total)
            for kernel, time in sorted(division.kernels.items(), key=lambda item: (-item[1], item[0]))[:_KERNELS]
        ),
        steps=summary.steps,
        seconds_per_step=summary.seconds / (summary.steps or 1),
        command=tuple(command),
        versions=all_versions,
        hardware=summary.hardware or hardware,
        device=summary.device,
        source=source,
    )


def _parts(division: Division, steps: int) -> tuple[WorkloadPart, ...]:
    def order(claim: Claim) -> tuple[float, str]:
        return -division.claims[claim], repr(claim)

    return tuple(
        WorkloadPart(
            indicator=claim.indicator,
            share=division.claims[claim] / division.total,
            calls=division.calls[claim] / (steps or 1),
            parameters=dict(claim.parameters),
            dtype=claim.dtype,
            direction=claim.direction,
        )
        for claim in sorted(division.claims, key=order)[:_MAX_PARTS]
        if division.claims[claim] / division.total >= _SMALLEST_SHARE
    )
