"""Features of processors for matrix arithmetic: what is shown of them, and whether the kernel permits AMX."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.report.hardware import machine_lines, machine_record
from knowledge.domain.hardware import Cpu
from knowledge.hardware.detect import UNUSABLE, detect
from knowledge.hardware.matrix_features import (
    AmxPermission,
    ask_amx_permission,
    feature_meanings,
    matrix_features,
    matrix_units,
    name_gap,
    read_amx_answer,
)
from knowledge.hardware.nvml import NvmlReading
from knowledge.hardware.profiles import find_profile, read_profile
from knowledge.hardware.shipped_machines import cloud_instances, shipped_machines
from tests.conftest import MACHINES
from tests.knowledge.samples import recorded

AMX = ("amx_tile", "amx_bf16", "amx_int8")
REFUSED = AmxPermission(granted=False, reason="the kernel refuses")
# Filters `arch_prctl(ARCH_REQ_XCOMP_PERM)`, which then fails with EPERM, like the seccomp filter of a container. The
# instructions are: load the system call; if it is arch_prctl (158), load its first argument; if that is 0x1023, refuse.
REFUSE_AMX = """
import ctypes, json, struct
from dataclasses import asdict
libc = ctypes.CDLL(None, use_errno=True)
code = [
    (0x20, 0, 0, 0), (0x15, 0, 3, 158), (0x20, 0, 0, 16), (0x15, 0, 1, 0x1023), (0x06, 0, 0, 0x00050001),
    (0x06, 0, 0, 0x7FFF0000),
]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    raise SystemExit(77)
from knowledge.hardware.detect import detect
print(json.dumps(asdict(detect())))
"""


def has_amx() -> bool:
    path = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and path.exists() and "amx_tile" in path.read_text()


@pytest.mark.parametrize(
    ("machine", "features", "units"),
    [
        (
            "amx-virtual-machine",
            (*AMX, "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni"),
            ("amx_bf16", "avx512_fp16", "amx_int8"),
        ),
        # Its hypervisor masks `avx512_bf16`.
        ("h200-virtual-machine", (*AMX, "avx512_fp16", "avx512_vnni"), ("amx_bf16", "avx512_fp16", "amx_int8")),
        ("cpu-virtual-machine", ("avx512_bf16", "avx512_vnni", "avx_vnni"), ("avx512_bf16", "", "avx512_vnni")),
        ("dgx-a100", (), ("", "", "")),
        ("arm-graviton2", ("asimdhp", "asimddp"), ("", "asimdhp", "asimddp")),
    ],
)
def test_the_features_of_recorded_machines_are_those_of_the_kernel(
    machine: str, features: tuple[str, ...], units: tuple[str, ...]
) -> None:
    cpu = recorded(machine).cpu

    assert matrix_features(cpu) == features
    assert matrix_units(cpu) == units


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("cpu-icelake", ("", "", "avx512_vnni")),
        ("cpu-sapphirerapids", ("amx_bf16", "avx512_fp16", "amx_int8")),
        ("cpu-graniterapids", ("amx_bf16", "amx_fp16", "amx_int8")),
        ("cpu-zen3", ("", "", "")),
        ("cpu-zen4", ("avx512_bf16", "", "avx512_vnni")),
        ("cpu-zen5", ("avx512_bf16", "", "avx512_vnni")),
        ("c6g.xlarge", ("", "asimdhp", "asimddp")),
        ("c7g.xlarge", ("svebf16", "asimdhp", "svei8mm")),
        ("c8g.xlarge", ("svebf16", "asimdhp", "svei8mm")),
        ("cpu-neoverse-v2", ("svebf16", "asimdhp", "svei8mm")),
        # Any processor with AVX2.
        ("a40", ()),
    ],
)
def test_a_profile_has_the_features_of_its_microarchitecture(name: str, units: tuple[str, ...]) -> None:
    assert matrix_units(find_profile(name).cpu) == units


@pytest.mark.parametrize("name", [*shipped_machines(), *cloud_instances()])
def test_a_profile_lacks_no_feature_that_archspec_lists(name: str) -> None:
    import archspec.cpu

    cpu = find_profile(name).cpu
    target = archspec.cpu.TARGETS[cpu.microarchitecture]
    features = matrix_features(cpu)

    assert (features is None) == (target.vendor == "generic")
    assert features is None or set(target.features) & set(feature_meanings()) <= set(features)


def test_the_name_that_a_hidden_feature_causes_is_explained() -> None:
    cpu = recorded("amx-virtual-machine").cpu

    gap = name_gap(cpu)

    assert cpu.microarchitecture == "icelake"
    assert gap is not None
    assert gap.beyond == (*AMX, "avx512_bf16", "avx512_fp16", "avx_vnni")
    assert (gap.nearest, gap.missing) == ("sapphirerapids", ("waitpkg",))


def test_a_processor_with_the_hidden_feature_has_the_newer_name_and_no_gap() -> None:
    import archspec.cpu

    cpu = recorded("amx-virtual-machine").cpu
    own = archspec.cpu.Microarchitecture("", [], cpu.vendor, {*cpu.features, "waitpkg"}, {})

    assert all(feature in own for feature in archspec.cpu.TARGETS["sapphirerapids"].features)
    assert name_gap(replace(cpu, microarchitecture="sapphirerapids")) is None


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx1-v100", "desktop-gtx-1080-ti", "arm-graviton2", "thin-container"])
def test_a_name_that_says_everything_is_not_explained(machine: str) -> None:
    assert name_gap(recorded(machine).cpu) is None


def test_the_report_of_a_machine_shows_features_and_what_its_name_leaves_out() -> None:
    lines = list(machine_lines(recorded("amx-virtual-machine"), None, None))

    assert "matrix units    bfloat16: amx_bf16, float16: avx512_fp16, int8: amx_int8" in lines
    assert "nearest name    sapphirerapids without waitpkg, which the system does not list" in lines
    assert [line for line in lines if line.startswith("beyond the name amx_tile amx_bf16 amx_int8 avx512_bf16")]


def test_the_report_of_a_generic_processor_says_that_its_features_are_not_known() -> None:
    lines = list(machine_lines(find_profile("a40"), None, None))

    assert "matrix features not known" in lines


@pytest.mark.parametrize("machine", ["amx-virtual-machine", "dgx-a100"])
def test_a_printed_machine_with_its_matrix_features_can_be_read_back(machine: str) -> None:
    profile = recorded(machine)

    record = machine_record(profile, None)

    assert record["matrix"]["features"] == list(matrix_features(profile.cpu) or ())
    assert read_profile(json.dumps(record), where="x.json", name="x").identity == profile.identity


@pytest.mark.parametrize(
    ("answer", "granted", "reason"),
    [
        ("0 1 0\n", True, ""),
        ("0 1 1\n", False, "refuses `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)` (EPERM"),
        ("0 0 95\n", False, "does not have the state of the tiles"),
        # A kernel before 5.16, and a sandbox that does not know the request.
        ("22 0 22\n", False, "does not answer `arch_prctl(ARCH_GET_XCOMP_SUPP)` (EINVAL"),
    ],
)
def test_the_answer_of_the_kernel_is_read(answer: str, granted: bool, reason: str) -> None:
    permission = read_amx_answer(answer)

    assert permission.granted is granted
    assert reason in permission.reason


def test_amx_that_programs_may_not_use_is_no_feature_of_the_machine() -> None:
    folder = MACHINES / "amx-virtual-machine"
    permitted = detect(folder, nvml=NvmlReading(), machine="x86_64")

    profile = detect(folder, nvml=NvmlReading(), machine="x86_64", amx=REFUSED)

    assert set(permitted.cpu.features) - set(profile.cpu.features) == set(AMX)
    assert matrix_units(profile.cpu) == ("avx512_bf16", "avx512_fp16", "avx512_vnni")
    (reason,) = profile.unknown
    assert reason.startswith(
        f"{UNUSABLE}: amx_bf16 amx_int8 amx_tile: `/proc/cpuinfo` lists them, but the kernel refuses"
    )
    assert "https://docs.kernel.org/arch/x86/xstate.html" in reason
    assert [line for line in machine_lines(profile, None, None) if line.startswith("not usable      amx_bf16")]


def test_amx_stays_a_feature_if_the_kernel_could_not_be_asked() -> None:
    folder = MACHINES / "amx-virtual-machine"

    profile = detect(
        folder, nvml=NvmlReading(), machine="x86_64", amx=AmxPermission(granted=None, reason="no interpreter")
    )

    assert set(AMX) <= set(profile.cpu.features)
    assert "no interpreter" in profile.unknown[0]


def test_a_machine_without_amx_is_not_affected() -> None:
    folder = MACHINES / "cpu-virtual-machine"

    assert detect(folder, nvml=NvmlReading(), machine="x86_64", amx=REFUSED).identity == recorded(folder.name).identity


@pytest.mark.skipif(not has_amx(), reason="this processor has no AMX")
def test_to_ask_for_permission_changes_nothing_in_this_process() -> None:
    before = permitted_states()

    answer = ask_amx_permission()

    assert answer.granted is not None
    assert permitted_states() == before


def permitted_states() -> int:
    """The states that this process may use: `arch_prctl(ARCH_GET_XCOMP_PERM)`."""
    import ctypes

    states = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(states))
    return states.value


@pytest.mark.skipif(not has_amx(), reason="this processor has no AMX")
def test_a_real_refusal_of_the_kernel_is_detected() -> None:
    run = subprocess.run([sys.executable, "-c", REFUSE_AMX], capture_output=True, text=True, check=False)
    if run.returncode == 77:
        pytest.skip("filters of system calls are not available")

    profile = json.loads(run.stdout)

    assert not set(AMX) & set(profile["cpu"]["features"])
    assert [reason for reason in profile["unknown"] if reason.startswith(UNUSABLE)]


def test_a_processor_of_an_unknown_name_has_unknown_features() -> None:
    cpu = Cpu(architecture="x86_64", microarchitecture="")

    assert matrix_features(cpu) is None
    assert matrix_units(cpu) == ()
    assert name_gap(cpu) is None
