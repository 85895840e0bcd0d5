"""Rows of published measurements, as the evidence reads them."""

from __future__ import annotations

from collections.abc import Iterable

from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.observation import PUBLISHED, IndicatorRun, Observation
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.evidence.accelerator_pairs import AcceleratorPair, accelerator_pairs
from knowledge.evidence.accelerator_rows import accelerator_rows
from knowledge.hardware.accelerators import find_accelerator


def row(
    seconds: float,
    *,
    gpu: str = "A100-SXM4-40GB",
    version: str = "1.13.0",
    task: str = "resnet50",
    mode: str = "training",
    index: str = "published",
    block: str = "published/someone/benchmarks",
    batch: int = 64,
    **settings: str,
) -> Observation:
    """Return a published row."""
    model = find_accelerator(gpu)
    assert model is not None
    return Observation(
        indicator=IndicatorRun(
            name=PUBLISHED,
            version=1,
            backend="torch",
            device="cuda",
            dtype="as-published",
            parameters={"task": task, "mode": mode, "batch": batch, "gpus": 1, "unit": "samples"},
        ),
        framework="torch",
        stack=Stack(
            packages=(PackageVersion(name="torch", version=version, index=index),) if version else (),
            python="",
            platform="",
        ),
        hardware=HardwareProfile(
            name=model.name, cpu=Cpu(architecture="x86_64", microarchitecture=""), accelerators=(model.accelerator(),)
        ),
        block=block,
        round=0,
        arm=0,
        reference=False,
        started_at="2023-05-01T00:00:00+00:00",
        status="ok",
        samples=(seconds,),
        loops=1,
        steady=True,
        settings=settings,
        schema=2,
        metrics={"value": 1 / seconds, "runs": 1.0},
    )


def pairs_of(observations: Iterable[Observation]) -> tuple[AcceleratorPair, ...]:
    """Return the pairs of accelerators of published observations."""
    return accelerator_pairs(accelerator_rows(observations))
