"""Targets that cannot exist are refused with the valid range."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from advisor.domain.target import make_target
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.hardware.profiles import find_profile
from tests.conftest import Advisor

X86, ARM = find_profile("cpu-zen4"), find_profile("cpu-neoverse-v1")
MAC = HardwareProfile(name="mac", cpu=Cpu(architecture="arm64", microarchitecture="m1"), os="darwin")
WINDOWS_ON_ARM = dataclasses.replace(MAC, name="w", os="windows")


@pytest.mark.parametrize("python", ["3.99", "4.0", "4", "2.7", "3.12.1.5", "1!3.12", "3.12+local", "3.12.post1", "x"])
def test_a_python_version_that_cannot_exist_is_refused_with_the_range(python: str) -> None:
    with pytest.raises(InputError, match=r"is not a version of CPython 3\.0 to 3\.\d\d"):
        make_target(python=python, platform=None, hardware=X86)


@pytest.mark.parametrize("python", ["3.8", "3.12", "3.12.4", "3.15", "3.16.0a2", "3.13.0rc1"])
def test_a_released_or_future_python_version_is_accepted(python: str) -> None:
    assert str(make_target(python=python, platform=None, hardware=X86).python).startswith(python)


def test_the_running_interpreter_is_always_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 21, 0, "final", 0))

    assert make_target(python="3.21", platform=None, hardware=X86).python_minor == "3.21"


@pytest.mark.parametrize(
    ("hardware", "platform"),
    [
        (X86, "macosx_14_0_arm64"),
        (X86, "manylinux_2_28_aarch64"),
        (X86, "win_arm64"),
        (X86, "manylinux_2_28_riscv64"),
        (ARM, "manylinux_2_28_x86_64"),
        (ARM, "manylinux_2_28_i686"),
        (MAC, "manylinux_2_28_x86_64"),
        (MAC, "macosx_14_0_universal2"),
        (MAC, "macosx_10_15_arm64"),
    ],
)
def test_a_platform_that_the_processor_cannot_run_is_refused(hardware: HardwareProfile, platform: str) -> None:
    with pytest.raises(InputError, match=f"`{platform}`"):
        make_target(python="3.12", platform=platform, hardware=hardware)


@pytest.mark.parametrize(
    ("hardware", "platform"),
    [
        (X86, "manylinux_2_28_x86_64"),
        (X86, "musllinux_1_2_x86_64"),
        (X86, "manylinux_2_28_i686"),
        (X86, "win_amd64"),
        (X86, "win32"),
        (ARM, "manylinux_2_28_aarch64"),
        (ARM, "macosx_14_0_arm64"),
        (MAC, "macosx_14_0_arm64"),
        (MAC, "macosx_14_0_x86_64"),
        (WINDOWS_ON_ARM, "win_arm64"),
        (WINDOWS_ON_ARM, "win_amd64"),
    ],
)
def test_a_platform_that_the_processor_can_run_is_accepted(hardware: HardwareProfile, platform: str) -> None:
    assert make_target(python="3.12", platform=platform, hardware=hardware).tags


def test_the_command_line_refuses_an_impossible_target(advisor_here: Advisor) -> None:
    result = advisor_here("advise", "--hardware", "cpu-zen4", "--platform", "macosx_14_0_arm64", "--dry-run")

    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
