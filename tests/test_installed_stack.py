"""Measurement of existing interpreters with their installed packages."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.installed_stack import (
    ArmSpec,
    RunKey,
    cases_that_fit,
    device_of,
    installed_environment,
    installed_frameworks,
    missing_rounds,
    plan_installed_arms,
)
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.stack import Stack
from pi_runners.execution.environment import BuiltEnvironment, EnvironmentBuildError
from pi_runners.plan.matrix import Arm, IndicatorCase, choose_cases
from tests.knowledge.samples import MACHINE
from tests.pi_runners.machines import WITH_GPU, stack_of


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


def test_the_first_distribution_of_a_name_wins_and_versions_that_are_not_valid_are_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name, version in (
        (first, "torch", "2.11.0"),
        (second, "torch", "2.0.0"),
        (first, "nvidia-cuda-runtime", "13.0.48"),
        (first, "nvidia-cudnn-cu13", "9.15.1.9"),
        (first, "odd", "not-a-version!"),
    ):
        dist_info = folder / f"{name}-{version}.dist-info"
        dist_info.mkdir(parents=True)
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (first / "nameless.dist-info").mkdir()
    python = tmp_path / "python"
    paths = f"import sys; sys.path[:0] = [{str(first)!r}, {str(second)!r}]"
    python.write_text(
        f'#!/bin/sh\n# Called as: python -I -c PROGRAM\nexec {sys.executable} -I -c "{paths}\n$3"\n', encoding="utf-8"
    )
    python.chmod(0o755)

    environment, unreadable = installed_environment(python)

    assert environment.stack.version_of("torch") == "2.11.0"
    # PyTorch's metadata do not contain its CUDA version; those of NVIDIA's packages do.
    assert (environment.stack.cuda, environment.stack.cudnn) == ("13.0", "9.15.1.9")
    assert unreadable == ("odd not-a-version!",)


def test_an_interpreter_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match="cannot be run"):
        installed_environment(tmp_path / "python")


def test_one_distribution_is_measured_per_backend() -> None:
    assert installed_frameworks(stack_of(torch="2.11.0", numpy="2.5.2", jax="0.11.2", six="1.0")) == (
        "torch",
        "jax",
        "numpy",
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
def test_a_framework_runs_on_the_gpu_if_its_distribution_supports_it(framework: str, device: str) -> None:
    assert device_of(framework, WITH_GPU) == device
    assert device_of(framework, MACHINE) == "cpu"


def test_an_arm_with_settings_that_the_device_does_not_support_is_omitted() -> None:
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


def machine_with(gigabytes: float) -> HardwareProfile:
    return replace(MACHINE, memory_bytes=int(gigabytes * 1e9))


def test_a_case_that_does_not_fit_is_replaced_by_a_smaller_one_and_reported() -> None:
    def fit(gigabytes: float) -> tuple[tuple[IndicatorCase, ...], tuple[str, ...]]:
        return cases_that_fit(["matmul"], "large", ("float32",), machine_with(gigabytes), device="cpu")

    assert fit(1000) == (choose_cases(["matmul"], size="large"), ())
    cases, reports = fit(0.8)
    assert cases == choose_cases(["matmul"], size="medium")
    assert len(reports) == 3
    assert "GB" in reports[0]
    assert fit(0.001)[0] == ()


def test_transfers_are_measured_on_a_gpu_only() -> None:
    assert cases_that_fit(["transfer"], "small", ("float32",), MACHINE, device="cpu") == ((), ())
    assert len(cases_that_fit(["transfer"], "small", ("float32",), WITH_GPU, device="cuda")[0]) == 2


def sessions_by_run(arms: tuple[Arm, ...], number: int, session: str) -> dict[RunKey, str]:
    """Return the session of every run of a round."""
    return {(number, arm.number, run.label): session for arm in arms for run in arm.indicators}


def test_only_missing_runs_of_a_round_are_planned() -> None:
    arms = arms_of(stack_of(numpy="2.0.0"), "numpy", ArmSpec(), ArmSpec())
    measured = sessions_by_run(arms, 0, "here")
    last = measured.popitem()[0]

    rounds = list(missing_rounds(arms, 2, measured, session="here"))

    assert [number for number, _ in rounds] == [0, 1]
    assert [(s.number, r.label) for s in rounds[0][1] for r in s.indicators] == [last[1:]]
    assert rounds[1][1] == arms
    assert list(missing_rounds(arms, 1, sessions_by_run(arms, 0, "elsewhere"), session="here")) == []


def test_an_incomplete_round_of_another_session_is_replaced_by_one_additional_round() -> None:
    arms = arms_of(stack_of(numpy="2.0.0"), "numpy", ArmSpec(), ArmSpec())
    incomplete = dict([sessions_by_run(arms, 1, "elsewhere").popitem()])
    measured = {**sessions_by_run(arms, 0, "elsewhere"), **incomplete}

    once = [number for number, _ in missing_rounds(arms, 3, measured, session="here")]
    twice = [
        number
        for number, _ in missing_rounds(
            arms, 3, {**measured, **dict([sessions_by_run(arms, 2, "elsewhere").popitem()])}, session="here"
        )
    ]

    assert once == [2, 3]
    assert twice == [2, 3]
