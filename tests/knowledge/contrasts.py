"""Contrasts of made-up blocks, and an estimator that knows only these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import BENCHMARK
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.workloads import Workload
from knowledge.evidence.block_evidence import RunOutcome
from knowledge.evidence.contrasts import Contrast, Machine, Side, machine_of
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE

OTHER_MACHINE = replace(MACHINE, cpu=replace(MACHINE.cpu, microarchitecture="icelake", vendor="GenuineIntel"))


HERE, ELSEWHERE = (machine_of(hardware, "cpu") for hardware in (MACHINE, OTHER_MACHINE))


LABEL = "sort@1[n=8] float32 torch/cpu"


def contrast(
    side: Side,
    reference: Side,
    mean: float,
    error: float,
    *,
    block: str = "b",
    label: str = LABEL,
    arm: int = 1,
    machine: Machine = HERE,
) -> Contrast:
    """Return an invented contrast of the framework that the label names."""
    framework = label.rpartition(" ")[2].partition("/")[0]
    return Contrast(
        block=block,
        arm=arm,
        label=label,
        family=label.partition("@")[0],
        backend=framework,
        framework=framework,
        machine=machine,
        side=side,
        reference=reference,
        mean=mean,
        error=error,
        common=error / 2,
        rounds=6,
        is_control=False,
    )


def side(version: str, companions: Mapping[str, str] | None = None) -> Side:
    return Side(version=version, companions=dict(companions or {}), settings={})


class Models(ModelCache):
    """Models of invented contrasts, with the shipped variances."""

    def __init__(self, contrasts: Sequence[Contrast], own: Collection[str]) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._contrasts = contrasts
        self._own = frozenset(own)

    def contrasts(self, framework: str, device: str) -> tuple[Contrast, ...]:
        return tuple(c for c in self._contrasts if c.framework == framework and c.label.endswith(f"/{device}"))

    @cached_property
    def own_blocks(self) -> frozenset[str]:
        return self._own

    def benchmark(self, identity: str) -> tuple[Contrast, ...]:
        return tuple(c for c in self._contrasts if c.family == BENCHMARK)

    def runs(self, framework: str, device: str) -> tuple[RunOutcome, ...]:
        return ()


def estimator(
    contrasts: Sequence[Contrast],
    *,
    workload: Workload | None = EVERY_OPERATION,
    hardware: HardwareProfile = MACHINE,
    own: Collection[str] = (),
) -> WorkloadEstimator:
    """Return the estimator with invented contrasts; blocks in `own` do not ship with the program."""
    has_benchmark = any(c.family == BENCHMARK for c in contrasts)
    return WorkloadEstimator(
        Models(contrasts, own),
        hardware=hardware,
        workload=workload,
        frameworks=("torch", "jax"),
        benchmark="identity" if has_benchmark else "",
    )


def old(mean: float, error: float, version: str = "2.4.0", *, block: str = "b", label: str = LABEL) -> Contrast:
    """Return a contrast of an old version with 2.9.0."""
    return contrast(side(version), side("2.9.0"), mean, error, block=block, label=label)
