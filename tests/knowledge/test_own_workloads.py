"""Profiled workloads and a project's own benchmark as the basis of predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from knowledge.estimate.cases import Case, cases_of
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.programs import OPERATIONS
from knowledge.estimate.workloads import OWN, PROFILE, find_workload, workload_of_profile
from knowledge.evidence.contrasts import Contrast
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.contrasts import HERE, estimator, old
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, block

PRODUCT = "matmul@1[k=8,m=8,n=8] float32 torch/cpu"
ENCODER = "model@1[batch=8,mode=training,model=bert_base] float32 torch/cpu"
BENCHMARK = "benchmark@1[identity=a] any program/cpu"
PARTS = (
    WorkloadPart(indicator="matmul", share=0.5, parameters={"n": 8, "m": 8, "k": 8}, direction="backward", calls=30),
    WorkloadPart(indicator="conv2d", share=0.2, parameters={"groups": 8}, calls=20),
    WorkloadPart(indicator="softmax", share=0.1, calls=50),
)


def cases(
    contrasts: Sequence[Contrast], *parts: WorkloadPart, backend: str = "torch", flops: float = 0.0
) -> list[Case]:
    """Return the cases of a profile of PyTorch; what its parts leave belongs to no indicator."""
    profile = ProfiledWorkload(
        name="mine", framework="torch", parts=parts, unattributed=1 - sum(part.share for part in parts)
    )
    return cases_of(workload_of_profile(profile, backend=backend, flops=flops), contrasts, HERE, ())


def test_a_profile_is_a_program_of_its_operations() -> None:
    (case,) = cases([old(0.1, 0.01, label=ENCODER)], *PARTS, flops=3e9)

    (((share, program),),) = case.programs
    assert (case.workload, case.basis, share) == ("mine", PROFILE, 1.0)
    assert (program.flops, program.launches, program.training) == (3e9, 100, True)
    assert program.architecture == ("transformer", "training")
    assert dict(zip(OPERATIONS, program.shares, strict=True)) == pytest.approx(
        {"matmul": 0.625, "depthwise": 0.25, "memory": 0.125, "convolution": 0, "attention": 0, "recurrent": 0}
    )


def test_a_profile_without_the_size_of_a_step_has_the_sizes_that_programs_have() -> None:
    listed = cases([old(0.1, 0.01, label=ENCODER)], *PARTS)

    assert [case.size for case in listed] == ["small", "medium", "large"]
    assert [case.flops for case in listed] == sorted(case.flops for case in listed)


def test_without_measured_programs_the_measured_operations_of_a_profile_count() -> None:
    rows = [old(0.1, 0.01, label=label) for label in (PRODUCT, PRODUCT.replace("8", "9"))]

    (case,) = cases(rows, *PARTS)

    shares = {program.label: share for share, program in case.programs[0]}
    assert shares[PRODUCT] == 0.5
    assert sum(shares.values()) == pytest.approx(1.0)
    assert len(shares) == len(PARTS) + 1
    assert cases(rows, *PARTS[1:]) == []


def test_a_profile_of_another_framework_has_no_cases() -> None:
    assert cases([old(0.1, 0.01, label=ENCODER)], *PARTS, backend="jax") == []


@pytest.mark.parametrize("ratio", [1 / 3, 1.35])
@pytest.mark.parametrize("version", ["2.4.0", pytest.param("2.9.1")])
def test_the_benchmark_of_a_project_comes_before_every_other_measurement(version: str, ratio: float) -> None:
    rows = [
        old(-0.1, 1e-3, label=ENCODER),
        replace(old(math.log(ratio), 0.003, version, block="own", label=BENCHMARK), framework="torch"),
    ]

    prediction = estimator(rows, workload=find_workload("bert-training"), own={"own"}).predict(
        {"torch": Version(version)}, {"torch": Version("2.9.0")}
    )

    assert prediction.workload == OWN
    assert prediction.speedup == pytest.approx(ratio, rel=0.04)
    assert prediction.low < ratio < prediction.high
    assert prediction.high / prediction.low < 1.12


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_framework_that_was_compared_with_the_own_benchmark_counts_alone(framework: str) -> None:
    def invented(name: str, indicator: str, ratio: float) -> list[Observation]:
        """Return a block in which version 2.0.0 of a framework has a ratio of speed to 1.26.4."""
        observations = []
        for o in block({"1.26.4": 1.0, "2.0.0": ratio}, name=f"{name}-{indicator}"):
            run = replace(o.indicator, name=indicator, parameters={"identity": "a"})
            package = PackageVersion(name=name, version=o.stack.packages[0].version)
            stack = make_stack([package], python="3.11.7", platform="manylinux_2_28_x86_64")
            observations.append(replace(o, indicator=run, framework=name, stack=stack))
        return observations

    with open_knowledge_base("sqlite://", shipped=False) as store:
        for name in ("numpy", "torch"):
            store.add(invented(name, "conv1d", 0.8))
        store.add(invented(framework, "benchmark", 1.5))
        fitted = WorkloadEstimator(
            ModelCache(store),
            hardware=MACHINE,
            workload=EVERY_OPERATION,
            frameworks=("numpy", "torch"),
            benchmark="a",
        )
        before, after = ({name: Version(v) for name in ("numpy", "torch")} for v in ("1.26.4", "2.0.0"))
        prediction = fitted.predict(after, before)
        terms = fitted.terms({name: [Version("2.0.0")] for name in before}, before)

    assert prediction.speedup == pytest.approx(1.5, rel=0.02)
    assert [change.package for change in prediction.changes] == [framework]
    assert [gains.framework for gains in terms] == [framework]
    assert math.exp(terms[0].alone[Version("2.0.0")].mean) == pytest.approx(1.5, rel=0.02)
