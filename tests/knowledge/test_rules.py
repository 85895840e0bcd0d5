from __future__ import annotations

import dataclasses

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.catalogue.entries import read_entries
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import (
    CapabilityRule,
    ConflictRule,
    PublisherTestedRule,
    Rule,
    RuntimeRule,
    UndeclaredRequirementRule,
    runs_on,
    shipped_rules,
    undeclared_requirements,
)
from knowledge.domain.hardware import Accelerator, Cpu, Driver, HardwareProfile
from knowledge.hardware.profiles import find_profile


def machine(capability: str, driver: str | None = None) -> HardwareProfile:
    return HardwareProfile(
        name="made-up",
        cpu=Cpu(architecture="x86_64", microarchitecture="haswell"),
        accelerators=(Accelerator(vendor="nvidia", model="a GPU", compute_capability=capability),),
        driver=Driver(version=driver) if driver else None,
    )


def forbidden(hardware: HardwareProfile, name: str, version: str) -> bool:
    verdicts = RuleBook(shipped_rules(), hardware).judge(name, Version(version))
    return any(v.severity == "forbidden" for v in verdicts)


def test_every_rule_names_a_source_and_valid_specifiers() -> None:
    assert len(shipped_rules()) > 50
    for rule in shipped_rules():
        assert rule.source.startswith("https://"), rule.id
        if isinstance(rule, ConflictRule | CapabilityRule | PublisherTestedRule | UndeclaredRequirementRule):
            SpecifierSet(rule.versions)
        if isinstance(rule, ConflictRule):
            SpecifierSet(rule.other_versions)


@pytest.mark.parametrize(
    ("capability", "version", "runs"),
    [
        ("6.1", "2.7.1", True),
        ("6.1", "2.8.0", False),
        ("6.1", "2.13.0", False),
        ("7.0", "2.10.0", True),
        ("7.0", "2.11.0", False),
        ("7.0", "2.11.0+cu128", False),
        ("7.0", "2.11.0+cu126", True),
        ("9.0", "2.0.1", False),
        ("9.0", "2.0.1+cu118", True),
        ("9.0", "2.1.0", True),
        ("10.0", "2.6.0", False),
        ("10.0", "2.8.0", True),
        ("8.9", "2.8.0", True),
        ("12.1", "2.13.0", True),
        ("7.0", "2.15.0", False),
        ("12.1", "2.15.0", True),
        ("12.1", "2.15.0+cu132", True),
    ],
)
def test_a_gpu_gets_only_pytorch_builds_that_support_it(capability: str, version: str, runs: bool) -> None:
    assert forbidden(machine(capability), "torch", version) is not runs


@pytest.mark.parametrize(
    ("driver", "runtime", "runs"),
    [
        ("450.80.02", "11.8.89", True),
        ("440.33", "11.8.89", False),
        ("470.57.02", "12.1.105", False),
        ("525.60.13", "12.9.79", True),
        ("575.51.03", "13.0.96", False),
        ("580.65.06", "13.0.96", True),
    ],
)
def test_a_driver_gets_only_cuda_runtimes_that_it_supports(driver: str, runtime: str, runs: bool) -> None:
    name = "nvidia-cuda-runtime" if runtime.startswith("13") else f"nvidia-cuda-runtime-cu{runtime[:2]}"

    assert forbidden(machine("8.0", driver), name, runtime) is not runs


@pytest.mark.parametrize(
    ("versions", "driver"),
    [
        ({"torch": "2.15.0"}, "580"),
        ({"torch": "2.8.0+cu126"}, "525.60.13"),
        ({"nvidia-cuda-runtime-cu12": "12.8.90", "a": "13.0"}, "525.60.13"),
        ({"nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cuda-runtime": "13.0.48"}, "580"),
        ({"numpy": "2.0.2"}, None),
    ],
)
def test_the_needed_driver_is_that_of_the_newest_runtime(versions: dict[str, str], driver: str | None) -> None:
    h100 = find_profile("h100")
    stack = {name: Version(version) for name, version in versions.items()}

    needed = RuleBook(shipped_rules(), h100).runtime_without_driver(stack)
    known = RuleBook(shipped_rules(), dataclasses.replace(h100, driver=Driver(version="535.183.06")))

    assert (needed and needed.driver) == driver
    assert known.runtime_without_driver(stack) is None
    assert RuleBook(shipped_rules(), find_profile("cpu-zen4")).runtime_without_driver(stack) is None


def test_every_cuda_runtime_from_11_to_13_has_a_rule() -> None:
    versions = {rule.cuda for rule in shipped_rules() if isinstance(rule, RuntimeRule)}

    assert versions >= {*(f"11.{m}" for m in range(9)), *(f"12.{m}" for m in range(10)), "13.0", "13.1", "13.2"}


def test_a_gpu_older_than_turing_gets_no_cuda_13_build() -> None:
    assert forbidden(machine("7.0", "580.65.06"), "nvidia-cuda-runtime", "13.2.86")
    assert not forbidden(machine("7.5", "580.65.06"), "nvidia-cuda-runtime", "13.2.86")


def test_gpu_rules_do_not_apply_to_a_machine_without_a_gpu() -> None:
    assert RuleBook(shipped_rules(), find_profile("cpu-zen4")).judge("torch", Version("2.13.0")) == ()


def test_a_cpu_build_on_a_gpu_machine_is_discouraged() -> None:
    verdicts = RuleBook(shipped_rules(), machine("9.0")).judge("torch", Version("2.13.0+cpu"))

    assert [v.severity for v in verdicts] == ["discouraged"]


@pytest.mark.parametrize(
    ("name", "version", "runs"),
    [
        ("torch", "2.13.0", False),
        ("torch", "2.13.0+cu130", False),
        ("torch", "2.9.1+rocm6.4", True),
        ("torch", "2.13.0+cpu", True),
        ("nvidia-cuda-runtime-cu12", "12.9.79", False),
        ("nvidia-cudnn-cu13", "9.15.1", False),
        ("jax-cuda12-plugin", "0.8.0", False),
        ("jax-rocm7-plugin", "0.9.1", True),
        ("onnxruntime-gpu", "1.23.0", False),
        ("onnxruntime-migraphx", "1.23.0", True),
        ("onnxruntime", "1.23.0", True),
        ("cupy-cuda12x", "13.6.0", False),
        ("tensorflow", "2.20.0", True),
        ("numpy", "2.3.0", True),
    ],
)
def test_an_amd_gpu_gets_no_cuda_build(name: str, version: str, runs: bool) -> None:
    assert forbidden(find_profile("mi300x"), name, version) is not runs


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch", "2.9.1+rocm6.4"),
        ("tensorflow-rocm", "2.14.0"),
        ("jax-rocm7-pjrt", "0.9.1"),
        ("onnxruntime-rocm", "1.22.0"),
    ],
)
def test_an_nvidia_gpu_gets_no_rocm_build(name: str, version: str) -> None:
    assert forbidden(machine("9.0"), name, version)
    assert not forbidden(find_profile("cpu-zen4"), name, version)


def test_builds_for_other_platforms_are_not_mistaken_for_cuda_builds() -> None:
    amd = find_profile("mi300x")

    assert not forbidden(dataclasses.replace(amd, os="windows"), "torch", "2.13.0")
    assert forbidden(dataclasses.replace(amd, os="windows"), "torch", "2.13.0+cu130")


def test_a_machine_with_gpus_of_two_vendors_accepts_builds_for_either() -> None:
    amd = find_profile("mi300x")
    both = dataclasses.replace(amd, accelerators=(*amd.accelerators, *machine("9.0").accelerators))

    assert not forbidden(both, "torch", "2.9.1+rocm6.4")
    assert not forbidden(both, "torch", "2.13.0")


def test_numpy_2_conflicts_with_frameworks_built_before_it() -> None:
    pairs = {(c.package, c.versions) for c in RuleBook(shipped_rules(), machine("9.0")).conflicts}

    assert {("torch", "<2.3"), ("tensorflow", "<2.18"), ("tensorflow-cpu", "<2.18")} <= pairs


@pytest.mark.parametrize(
    ("version", "requirements"),
    [
        ("0.2.28", ["jaxlib<0.4.13"]),
        ("0.4.1", ["jaxlib<=0.4.1"]),
        ("0.4.14", ["jaxlib<=0.4.14,>=0.4.11"]),
        ("0.4.20", ["jaxlib<=0.4.20,>=0.4.14"]),
        ("0.4.29", ["jaxlib<=0.4.29,>=0.4.27"]),
        ("0.4.30", []),
        ("0.10.2", []),
    ],
)
def test_jax_requires_jaxlib_also_where_its_metadata_does_not(version: str, requirements: list[str]) -> None:
    found = (rule.requirement_of("jax", Version(version)) for rule in undeclared_requirements())

    assert [str(requirement) for requirement in found if requirement] == requirements


def test_a_requirement_that_metadata_does_not_state_is_reported_on_every_machine() -> None:
    for hardware in (machine("9.0"), find_profile("cpu-zen4")):
        (verdict,) = RuleBook(shipped_rules(), hardware).judge("jax", Version("0.4.20"))
        assert verdict.severity == "note"
        assert verdict.message == "`jax 0.4.20` requires `jaxlib<=0.4.20,>=0.4.14`, which its metadata does not state"


def test_machine_code_runs_within_its_major_version_and_ptx_on_anything_newer() -> None:
    assert runs_on((8, 6), machine_code=["8.0"], ptx=[])
    assert not runs_on((8, 0), machine_code=["8.6"], ptx=[])
    assert not runs_on((9, 0), machine_code=["8.0"], ptx=[])
    assert runs_on((9, 0), machine_code=[], ptx=["8.0"])


def test_every_rule_has_its_own_identity() -> None:
    names = [rule.id for rule in shipped_rules()]

    assert names == sorted(set(names))


def test_the_error_of_a_malformed_rule_names_entry_and_field() -> None:
    text = "- {kind: conflict, id: x, severity: forbidden, package: a, versions: '', message: m}"

    with pytest.raises(ValueError, match="entry `x`: field `conflict.other`"):
        list(read_entries(text, Rule))
