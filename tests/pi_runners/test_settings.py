"""Settings of arms: their environment variables, what they need, and whether they have an effect in the process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.observation import Scalar
from knowledge.domain.stack import PackageVersion, Stack, make_stack
from pi_runners.execution.campaign import run_block
from pi_runners.execution.environment import BuiltEnvironment, StackLock, locked_stack
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessEnd, ProcessRequest
from pi_runners.harness.contract import Unsupported
from pi_runners.harness.settings import allocator, apply_settings, huge_pages, loaded_files
from pi_runners.plan import arm_settings
from pi_runners.plan.arm_settings import obstacle, unknown_flag, variables_of
from pi_runners.plan.matrix import fitting, plan_arms
from tests.pi_runners.campaigns import NoProcesses, Sink, block_of, cases, lock

XLA_REFUSAL = (
    "F1125 13:42:49.112891   12928 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_cpu_nonsense=1\n"
)


def stack_of(name: str, version: str) -> Stack:
    return make_stack([PackageVersion(name=name, version=version)], python="3.11.7", platform="manylinux_2_28_x86_64")


def test_the_value_of_another_device_does_not_fit() -> None:
    settings: dict[str, Scalar] = {"sdpa": "efficient", "compile": "on", "xla": "on"}

    assert fitting(settings, "torch", "cpu") == {"compile": "on"}
    assert fitting(settings, "torch", "cuda") == {"compile": "on", "sdpa": "efficient"}


def test_settings_that_contradict_each_other_are_refused_when_they_are_planned() -> None:
    stacks: list[tuple[StackLock, dict[str, Scalar]]] = [
        (lock("tensorflow-cpu==2.21.0"), {"isa": "avx2", "onednn": "off"})
    ]

    with pytest.raises(InputError, match="contradict each other in tensorflow-cpu"):
        plan_arms(stacks, cases("matmul"), device="cpu", control=False)


def test_the_path_of_an_allocator_is_added_to_the_libraries_that_are_loaded_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arm_settings, "installed_libraries", lambda names: {name: Path("/lib", name) for name in names})
    monkeypatch.setenv("LD_PRELOAD", "/lib/libother.so")

    variables = variables_of({"allocator": "jemalloc", "threads": 2}, ("numpy", "torch"))

    assert variables["LD_PRELOAD"] == "/lib/libother.so:/lib/libjemalloc.so.2"
    assert (variables["OMP_NUM_THREADS"], variables["OPENBLAS_NUM_THREADS"]) == ("2", "2")


@pytest.mark.parametrize(
    ("name", "value", "stack", "reason"),
    [
        ("compile", "on", stack_of("torch", "1.13.1"), "`compile=on` needs torch>=2.0, not 1.13.1"),
        ("compile", "on", stack_of("torch", "2.13.0+cpu"), ""),
        ("compile", "off", stack_of("torch", "1.13.1"), ""),
        ("threads", 2, stack_of("torch", "1.13.1"), ""),
    ],
)
def test_a_value_needs_a_version_of_the_framework(name: str, value: Scalar, stack: Stack, reason: str) -> None:
    assert obstacle({name: value}, ("torch",), stack) == reason


def test_a_missing_library_is_an_observation_and_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arm_settings, "installed_libraries", lambda names: {})
    arms = plan_arms([(lock("numpy==2.0.0"), {"allocator": "jemalloc"})], cases("matmul"), device="cpu", control=False)
    built = BuiltEnvironment(python=Path("python"), stack=locked_stack(arms[0].lock, "3.11.7"))
    monkeypatch.setattr("pi_runners.execution.campaign.build_environment", lambda *_: built)
    sink = Sink()

    run_block(block_of(arms), sink=sink.add, runner=NoProcesses(), environments=tmp_path)

    [observed] = sink.observations
    assert observed.status == "unsupported"
    assert observed.failure == "`allocator=jemalloc` needs `libjemalloc.so.2`, which is not installed"
    assert dict(observed.settings) == {"allocator": "jemalloc"}


def test_a_flag_that_xla_does_not_know_is_unsupported_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def run(self, job: ProcessRequest) -> ProcessEnd:
            assert "--xla_cpu_enable_fast_math=true" in job.environment["XLA_FLAGS"]
            return ProcessEnd(results=(), exit_status=-6, error_tail=XLA_REFUSAL)

    arms = plan_arms([(lock("jax==0.9.0"), {"fast_math": "on"})], cases("matmul"), device="cpu", control=False)
    built = BuiltEnvironment(python=Path("python"), stack=locked_stack(arms[0].lock, "3.11.7"))
    monkeypatch.setattr("pi_runners.execution.campaign.build_environment", lambda *_: built)
    sink = Sink()

    run_block(block_of(arms), sink=sink.add, runner=Refusing(), environments=tmp_path)

    assert [(o.status, o.failure) for o in sink.observations] == [
        ("unsupported", "Unknown flag in XLA_FLAGS: --xla_cpu_nonsense=1")
    ]
    assert unknown_flag("segmentation fault") == ""


def test_an_allocator_that_was_not_loaded_is_unsupported(tmp_path: Path) -> None:
    """The dynamic linker only warns about a library that does not exist, and the program runs without it."""
    request = ProcessRequest(
        python=Path(sys.executable),
        program=write_program(tmp_path),
        content={
            "backend": "numpy",
            "settings": {"allocator": "jemalloc"},
            "indicators": [{"name": "matmul", "parameters": {}, "device": "cpu", "dtype": "float32"}],
        },
        timeout_seconds=60,
        environment={"LD_PRELOAD": str(tmp_path / "libjemalloc.so.2")},
    )

    [result] = FreshProcesses().run(request).results

    assert result["status"] == "unsupported"
    assert result["failure"] == "`allocator=jemalloc`: this process uses glibc"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what a process has loaded")
def test_the_process_tells_what_it_has_loaded() -> None:
    assert any(Path(path).is_file() for path in loaded_files("libc.so", "libc-2"))
    assert loaded_files("libnowhere") == []
    assert allocator() == "glibc" or "LD_PRELOAD" in os.environ


@pytest.mark.skipif(huge_pages() == "", reason="the kernel does not tell when it uses huge pages")
def test_huge_pages_that_the_kernel_does_not_use_are_unsupported() -> None:
    state = {"always": "off", "never": "on", "madvise": "on"}[huge_pages()]

    with pytest.raises(Unsupported, match=f"`huge_pages={state}`: .* is `{huge_pages()}`, which only root can change"):
        apply_settings({"huge_pages": state})


def test_a_setting_may_say_how_many_processors_a_program_may_use() -> None:
    assert arm_settings.processors_of({"threads": 3}, ("jax",)) == 3
    assert arm_settings.processors_of({"threads": 3}, ("torch", "program")) is None
    assert arm_settings.processors_of({"numa": 0}, ("jax",)) is None
