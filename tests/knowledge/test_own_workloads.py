"""Profiled workloads and a project's own benchmark as the basis of predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from knowledge.estimate.amplitudes import with_own_scales
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import ModelCache, shipped_amplitudes
from knowledge.estimate.time_shares import time_shares
from knowledge.estimate.workloads import (
    MODELS,
    OPERATIONS,
    OWN,
    PROFILE,
    SIZES,
    find_workload,
    workload_of_benchmark,
    workload_of_profile,
)
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, block
from tests.knowledge.test_gains import HERE, contrast, side

NEW, OLD = side("2.9.0"), side("2.4.0")
MEASURED, OTHER = "matmul@1[k=8,m=8,n=8] float32 torch/cpu", "matmul@1[k=9,m=9,n=9] float32 torch/cpu"
BENCHMARK = "benchmark@1[identity=a] any program/cpu"


def profile(*parts: WorkloadPart) -> ProfiledWorkload:
    """Return a profile of PyTorch; what its parts leave belongs to no indicator."""
    return ProfiledWorkload(
        name="train", framework="torch", parts=parts, unattributed=1 - sum(part.share for part in parts)
    )


def test_a_part_that_was_measured_with_its_parameters_counts_as_measured() -> None:
    part = WorkloadPart(indicator="matmul", share=0.75, parameters={"n": 8, "m": 8, "k": 8}, dtype="float32")
    process = GaussianProcess([contrast(OLD, NEW, -math.log(2), 1e-4, label=MEASURED)])

    basis, shares, *_ = time_shares(
        process.contrasts, workload_of_profile(profile(part), backend="torch"), process.amplitudes, HERE
    )
    model = FrameworkModel(MeasuredFramework("torch", process, HERE), shares)

    assert basis == PROFILE
    assert shares[MEASURED, "matmul"] == 0.75
    assert sum(shares.values()) == pytest.approx(1)
    # Three quarters take twice as long; the rest is not known to change, and partly follows.
    gain = model.gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")})
    assert 1 / 2 < math.exp(gain.mean) < 1 / 1.7


def test_a_part_of_another_size_is_predicted_with_a_wider_interval() -> None:
    exact, other = (
        WorkloadPart(indicator="matmul", share=1.0, parameters={"n": n, "m": n, "k": n}, dtype="float32")
        for n in (8, 9)
    )
    process = GaussianProcess([contrast(OLD, NEW, -math.log(2), 1e-4, label=MEASURED)])
    gains = []
    for part in (exact, other):
        shares = time_shares(
            process.contrasts, workload_of_profile(profile(part), backend="torch"), process.amplitudes, HERE
        ).shares
        model = FrameworkModel(MeasuredFramework("torch", process, HERE), shares)
        gains.append(model.gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}))

    assert gains[1].mean < 0
    assert abs(gains[1].mean) < abs(gains[0].mean)
    assert gains[1].variance > 2 * gains[0].variance


def test_the_time_of_a_profile_is_divided_into_what_was_measured_and_what_was_not() -> None:
    exact, other = (
        WorkloadPart(indicator="matmul", share=share, parameters={"n": n, "m": n, "k": n}, dtype="float32")
        for n, share in ((8, 0.5), (9, 0.2))
    )
    never = WorkloadPart(indicator="sort", share=0.1, parameters={"n": 8}, dtype="float32")
    process = GaussianProcess([contrast(OLD, NEW, -0.1, 1e-3, label=MEASURED)])

    workload = workload_of_profile(profile(exact, other, never), backend="torch")
    times = time_shares(process.contrasts, workload, process.amplitudes, HERE)

    assert (times.exact, times.related) == (0.5, 0.2)
    assert sum(times.shares.values()) == pytest.approx(1)


def test_a_profile_of_another_framework_gives_no_shares() -> None:
    part = WorkloadPart(indicator="matmul", share=1.0)
    process = GaussianProcess([contrast(OLD, NEW, -1.0, 1e-4, label=MEASURED)])

    workload = workload_of_profile(profile(part), backend="jax")

    assert time_shares(process.contrasts, workload, process.amplitudes, HERE).shares == {}


def test_the_benchmark_of_a_project_comes_before_every_other_measurement() -> None:
    own = replace(contrast(OLD, NEW, 0.3, 1e-3, label=BENCHMARK), backend="program")
    process = GaussianProcess([contrast(OLD, NEW, -0.1, 1e-3, label=MEASURED), own])

    basis, shares, *_ = time_shares(
        process.contrasts, workload_of_benchmark(find_workload("bert-training")), process.amplitudes, HERE
    )
    gain = FrameworkModel(MeasuredFramework("torch", process, HERE), shares, basis=basis).gain(
        {"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}
    )

    assert (basis, shares) == (OWN, {(BENCHMARK, "benchmark"): 1.0})
    assert gain.mean == pytest.approx(0.3, abs=0.03)


def test_a_large_measured_ratio_of_a_benchmark_is_hardly_shrunk() -> None:
    own = replace(contrast(OLD, NEW, -math.log(3), 0.01, label=BENCHMARK), backend="program")
    others = [contrast(OLD, NEW, mean, 0.01, label=label) for label, mean in ((MEASURED, -0.05), (OTHER, 0.02))]
    amplitudes = with_own_scales(shipped_amplitudes("torch", "cpu"), [own])
    model = FrameworkModel(
        MeasuredFramework("torch", GaussianProcess([*others, own], amplitudes), HERE),
        {(BENCHMARK, "benchmark"): 1.0},
        basis=OWN,
    )

    gain = model.gain({"torch": Version("2.9.0")}, {"torch": Version("2.4.0")})

    assert math.exp(gain.mean) == pytest.approx(3, rel=0.01)


def test_numbers_that_are_not_of_the_benchmark_have_the_name_of_their_workload() -> None:
    workload = workload_of_benchmark(find_workload("bert-training"))

    assert workload.name_of(OWN) == "benchmark"
    assert workload.name_of("models") == "bert-training"
    assert find_workload("bert-training").name_of("models") == "bert-training"


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
        estimator = WorkloadEstimator(
            ModelCache(store),
            hardware=MACHINE,
            workload=EVERY_OPERATION,
            frameworks=("numpy", "torch"),
            benchmark="a",
        )
        old, new = ({name: Version(v) for name in ("numpy", "torch")} for v in ("1.26.4", "2.0.0"))
        prediction = estimator.predict(new, old)
        terms = estimator.terms({name: [Version("2.0.0")] for name in old}, old)

    assert prediction.speedup == pytest.approx(1.5, rel=0.02)
    assert prediction.workload == "benchmark"
    assert [change.package for change in prediction.changes] == [framework]
    assert [gains.framework for gains in terms.frameworks] == [framework]
    assert math.exp(terms.frameworks[0].alone[Version("2.0.0")].mean) == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize(("dtype", "exact"), [("float32", 0.0), ("", 0.5), ("float16", 0.5)])
def test_an_operation_without_element_type_is_one_of_a_measured_type(dtype: str, exact: float) -> None:
    part = WorkloadPart(indicator="matmul", share=0.5, parameters={"n": 8, "m": 8, "k": 8}, dtype=dtype)
    process = GaussianProcess([contrast(OLD, NEW, -0.1, 1e-3, label=MEASURED.replace("float32", "float16"))])

    workload = workload_of_profile(profile(part), backend="torch")

    assert time_shares(process.contrasts, workload, process.amplitudes, HERE).exact == exact


def test_the_shares_of_a_profile_hold_at_the_profiled_version() -> None:
    # From 2.4 to 2.9, one product becomes nine times as fast, the other stays.
    rows = [contrast(OLD, NEW, -math.log(9), 1e-4, label=MEASURED), contrast(OLD, NEW, 0.0, 1e-4, label=OTHER)]
    shares = {(MEASURED, "matmul"): 0.9, (OTHER, "matmul"): 0.1}
    old, new = ({"torch": Version(s.version)} for s in (OLD, NEW))
    process = GaussianProcess(rows)

    at_old, at_new = (
        FrameworkModel(MeasuredFramework("torch", process, HERE), shares, profiled=Version(s.version))
        .gain(new, old)
        .mean
        for s in (OLD, NEW)
    )

    # 0.9 / 9 + 0.1 of the old time; 0.9 x 9 + 0.1 of the new time.
    assert math.exp(at_old) == pytest.approx(5, rel=0.15)
    assert math.exp(at_new) == pytest.approx(8.2, rel=0.15)


def test_the_discrepancy_depends_on_what_was_measured() -> None:
    kind, model = find_workload("cnn-training"), find_workload("resnet50-training")
    similar = find_workload("ssd-training")

    assert similar.discrepancy(MODELS) == MODELS
    assert kind.discrepancy(MODELS) == MODELS
    assert model.discrepancy(MODELS) == SIZES
    assert model.discrepancy("steps") == MODELS
    assert {kind.discrepancy(basis) for basis in (OPERATIONS, PROFILE)} == {OPERATIONS}
    assert workload_of_benchmark(kind).discrepancy(OWN) == ""
