"""Interpreters that exist, measured as they are."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.stack import PackageVersion, Stack, make_stack
from pi_runners.environment import BuiltEnvironment, EnvironmentBuildError
from pi_runners.installed_stack import (
    ArmSpec,
    cases_that_fit,
    device_of,
    installed_environment,
    installed_frameworks,
    missing_rounds,
    plan_installed_arms,
)
from pi_runners.matrix import Arm, choose_cases
from tests.knowledge.samples import MACHINE

WITH_GPU = replace(
    MACHINE,
    memory_bytes=128 * 2**30,
    accelerators=(
        Accelerator(vendor="nvidia", model="NVIDIA H100", compute_capability="9.0", memory_bytes=80 * 2**30),
    ),
)


def stack_of(**versions: str) -> Stack:
    packages = [PackageVersion(name=name.replace("_", "-"), version=version) for name, version in versions.items()]
    return make_stack(packages, python="3.12.3", platform="manylinux_2_39_x86_64")


def arms_of(stack: Stack, framework: str, *specs: ArmSpec, device: str = "cpu") -> tuple[Arm, ...]:
    environment = BuiltEnvironment(python=Path("python"), stack=stack)
    return plan_installed_arms(environment, framework, specs, choose_cases(["matmul", "sort"]), device=device)


def test_the_packages_of_this_interpreter_are_read() -> None:
    import numpy

    environment, unreadable = installed_environment(Path(sys.executable))

    assert environment.python == Path(sys.executable)
    assert environment.stack.version_of("numpy") == numpy.__version__
    assert environment.stack.python == ".".join(map(str, sys.version_info[:3]))
    assert unreadable == ()


def test_the_first_of_two_distributions_counts_and_invalid_versions_are_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name, version in (
        (first, "torch", "2.11.0"),
        (second, "torch", "2.0.0"),
        (first, "nvidia-cuda-runtime", "13.0.48"),
        (first, "nvidia-cudnn-cu13", "9.15.1.9"),
        (first, "odd", "not-a-version!"),
    ):
        place = folder / f"{name}-{version}.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (first / "nameless.dist-info").mkdir()
    python = tmp_path / "python"
    paths = f"import sys; sys.path[:0] = [{str(first)!r}, {str(second)!r}]"
    python.write_text(
        f'#!/bin/sh\n# Called as: python -I -c PROGRAM\nexec {sys.executable} -I -c "{paths}\n$3"\n', encoding="utf-8"
    )
    python.chmod(0o755)

    environment, unreadable = installed_environment(python)

    assert environment.stack.version_of("torch") == "2.11.0"
    # PyTorch's metadata do not name its CUDA version; the libraries beside it do.
    assert (environment.stack.cuda, environment.stack.cudnn) == ("13.0", "9.15.1.9")
    assert unreadable == ("odd not-a-version!",)


def test_an_interpreter_that_does_not_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match="cannot be run"):
        installed_environment(tmp_path / "python")


def test_each_backend_is_measured_through_one_distribution() -> None:
    assert installed_frameworks(stack_of(torch="2.11.0", numpy="2.5.2", jax="0.11.2", six="1.0")) == (
        "numpy",
        "torch",
        "jax",
    )
    assert installed_frameworks(stack_of(onnxruntime="1.30.0")) == ("onnxruntime",)
    assert installed_frameworks(stack_of(tensorflow_cpu="2.21.0", tensorflow="2.21.0")) == ("tensorflow",)
    assert installed_frameworks(stack_of(onnxruntime="1.30.0", onnxruntime_gpu="1.30.0")) == ("onnxruntime-gpu",)


@pytest.mark.parametrize(
    ("framework", "device"),
    [
        *(("torch", "cuda"), ("jax", "cuda"), ("onnxruntime-gpu", "cuda"), ("tensorflow", "cuda")),
        *(("onnxruntime", "cpu"), ("tensorflow-cpu", "cpu"), ("numpy", "cpu")),
    ],
)
def test_a_framework_computes_on_the_gpu_if_its_distribution_can(framework: str, device: str) -> None:
    assert device_of(framework, WITH_GPU) == device
    assert device_of(framework, MACHINE) == "cpu"


def test_an_arm_whose_settings_have_no_effect_on_the_device_is_omitted() -> None:
    specs = (ArmSpec(), ArmSpec(settings={"tf32": "on"}, indicators=("matmul",)), ArmSpec())
    on_cpu = arms_of(stack_of(torch="2.11.0"), "torch", *specs)
    on_gpu = arms_of(stack_of(torch="2.11.0"), "torch", *specs, device="cuda")

    assert [(s.number, s.reference, dict(s.settings)) for s in on_cpu] == [(0, True, {}), (1, False, {})]
    assert [(s.number, s.reference, dict(s.settings)) for s in on_gpu] == [
        (0, True, {}),
        (1, False, {"tf32": "on"}),
        (2, False, {}),
    ]
    assert {run.name for run in on_gpu[1].indicators} == {"matmul"}
    assert on_gpu[0].label == "torch==2.11.0"


def small_machine(gigabytes: float) -> HardwareProfile:
    return replace(MACHINE, memory_bytes=int(gigabytes * 1e9))


def test_a_case_that_does_not_fit_is_replaced_by_a_smaller_one_and_reported() -> None:
    plenty, refused_nothing = cases_that_fit(["matmul"], "large", ("float32",), small_machine(1000), device="cpu")
    some, refused = cases_that_fit(["matmul"], "large", ("float32",), small_machine(0.8), device="cpu")
    none, _ = cases_that_fit(["matmul"], "large", ("float32",), small_machine(0.001), device="cpu")

    assert plenty == choose_cases(["matmul"], size="large")
    assert refused_nothing == ()
    assert some == choose_cases(["matmul"], size="medium")
    assert len(refused) == 3
    assert "GB" in refused[0]
    assert none == ()


def test_transfers_are_measured_on_a_gpu_only() -> None:
    assert cases_that_fit(["transfer"], "small", ("float32",), MACHINE, device="cpu") == ((), ())
    assert len(cases_that_fit(["transfer"], "small", ("float32",), WITH_GPU, device="cuda")[0]) == 2


def keys(arms: tuple[Arm, ...], number: int, session: str) -> dict[tuple[int, int, str], str]:
    return {(number, arm.number, run.label): session for arm in arms for run in arm.indicators}


def test_stored_runs_are_not_measured_again() -> None:
    arms = arms_of(stack_of(numpy="2.0.0"), "numpy", ArmSpec(), ArmSpec())
    measured = keys(arms, 0, "here")
    last = measured.popitem()[0]

    todo = list(missing_rounds(arms, 2, measured, session="here"))

    assert [number for number, _ in todo] == [0, 1]
    assert [(s.number, r.label) for s in todo[0][1] for r in s.indicators] == [last[1:]]
    assert todo[1][1] == arms
    assert list(missing_rounds(arms, 1, keys(arms, 0, "elsewhere"), session="here")) == []


def test_a_round_that_another_session_left_incomplete_is_replaced_by_one_more_but_only_once() -> None:
    arms = arms_of(stack_of(numpy="2.0.0"), "numpy", ArmSpec(), ArmSpec())
    cut = dict([keys(arms, 1, "elsewhere").popitem()])
    measured = {**keys(arms, 0, "elsewhere"), **cut}

    once = [number for number, _ in missing_rounds(arms, 3, measured, session="here")]
    twice = [
        number
        for number, _ in missing_rounds(
            arms, 3, {**measured, **dict([keys(arms, 2, "elsewhere").popitem()])}, session="here"
        )
    ]

    assert once == [2, 3]
    assert twice == [2, 3]
