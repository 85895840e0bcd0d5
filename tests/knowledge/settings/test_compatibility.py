"""What a value of a setting lacks on a machine, and settings that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.catalogue.fit import Misfit, contradictions, misfit_of
from knowledge.catalogue.settings import SettingChoice, shipped_settings
from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.hardware.profiles import find_profile

V100, A100 = (
    Accelerator(vendor="nvidia", model=model, compute_capability=capability)
    for model, capability in (("Tesla V100", "7.0"), ("A100", "8.0"))
)


def choice_of(setting: str, value: str, backend: str = "torch") -> SettingChoice:
    framework = shipped_settings()[setting].framework(backend)
    choice = framework.choice(value) if framework else None
    assert choice is not None
    return choice


def machine(*features: str, gpu: Accelerator | None = None, os: str = "linux") -> HardwareProfile:
    profile = find_profile("cpu-zen4")
    return replace(
        profile, os=os, cpu=replace(profile.cpu, features=features), accelerators=(gpu,) if gpu is not None else ()
    )


def reason(choice: SettingChoice, hardware: HardwareProfile, version: Version, **more: str) -> str:
    """Return why a value does not fit; empty if it fits."""
    misfit = misfit_of(choice, version=version, hardware=hardware, **more)  # type: ignore[arg-type]
    return misfit.reason if misfit is not None else ""


def test_a_version_that_is_too_old_or_too_new_does_not_know_a_value() -> None:
    compiled, legacy = choice_of("compile", "on"), choice_of("cpu_runtime", "legacy", "jax")

    old = reason(compiled, machine(), Version("1.13.1"), framework="PyTorch")
    assert old == "PyTorch 1.13.1 does not know it"
    assert reason(compiled, machine(), Version("2.0.0+cpu")) == ""
    assert reason(legacy, machine(), Version("0.6.2")) == ""
    assert reason(legacy, machine(), Version("0.7.0")) == "version 0.7.0 does not know it"


def test_a_processor_needs_one_of_the_features() -> None:
    bfloat16 = choice_of("amp", "bfloat16")
    version = Version("2.6.0")

    assert reason(bfloat16, machine("avx2", "avx512f"), version) == "it needs one of amx_bf16, avx512_bf16, bf16"
    assert reason(bfloat16, machine("avx2", "avx512_bf16"), version) == ""
    assert reason(bfloat16, machine("asimd", "bf16"), version) == ""
    assert reason(choice_of("isa", "avx2"), machine("sse4_2"), version) == "it needs avx2"


def test_a_value_may_fit_a_processor_whose_features_are_not_known() -> None:
    profile = machine()
    unknown = replace(profile, cpu=replace(profile.cpu, microarchitecture="x86_64_v3"))

    assert misfit_of(choice_of("isa", "avx2"), hardware=unknown) == Misfit(
        subject="features", reason="it needs avx2, and the features of the processor are not known", is_unknown=True
    )


def test_what_is_not_stated_is_not_asked_for() -> None:
    allocator = choice_of("allocator", "jemalloc")

    assert misfit_of(allocator) is None
    assert misfit_of(allocator, system="linux", libraries=lambda names: names) is None
    without = misfit_of(allocator, system="linux", libraries=lambda names: ())
    assert without is not None
    assert (without.subject, without.reason) == ("library", "libjemalloc.so.2 is not installed")


def test_a_named_profile_has_the_features_of_its_microarchitecture() -> None:
    assert reason(choice_of("amp", "bfloat16"), machine(), Version("2.6.0")) == ""
    assert reason(choice_of("amp", "bfloat16"), find_profile("cpu-icelake"), Version("2.6.0")) == (
        "it needs one of amx_bf16, avx512_bf16, bf16"
    )


def test_a_gpu_needs_the_compute_capability_and_no_feature_of_the_processor() -> None:
    bfloat16 = choice_of("amp", "bfloat16")
    unknown = replace(A100, compute_capability=None)

    assert reason(bfloat16, machine(gpu=A100), Version("2.6.0")) == ""
    assert reason(bfloat16, machine(gpu=V100), Version("2.6.0")) == "compute capability 7.0 is below 8.0"
    assert reason(choice_of("amp", "float16"), machine(gpu=V100), Version("2.6.0")) == ""
    assert "that of the GPU is not known" in reason(bfloat16, machine(gpu=unknown), Version("2.6.0"))


def test_a_machine_with_a_gpu_can_be_asked_about_its_processor() -> None:
    machine_of_both = machine("avx2", gpu=A100)

    assert reason(choice_of("amp", "bfloat16"), machine_of_both, Version("2.6.0"), device="cpu") == (
        "it needs one of amx_bf16, avx512_bf16, bf16"
    )


def test_a_value_can_belong_to_one_device_or_one_system() -> None:
    assert reason(choice_of("sdpa", "cudnn"), machine(), Version("2.6.0")) == "it has an effect on cuda only"
    assert reason(choice_of("allocator", "jemalloc"), machine(os="darwin"), Version("2.6.0")) == ("only linux has it")


def test_settings_that_exclude_each_other_are_one_sentence() -> None:
    assert contradictions({"tf32": "on", "matmul_precision": "high"}) == [
        "`matmul_precision=high` and `tf32=on` contradict each other"
    ]
    assert contradictions({"binding": "close", "openmp": "intel"}, backend="torch") == [
        "`openmp=intel` and `binding=close` contradict each other"
    ]


@pytest.mark.parametrize(
    ("settings", "backend", "number"),
    [
        ({"interop_threads": 2, "execution_mode": "sequential"}, "onnxruntime", 1),
        ({"interop_threads": 2, "execution_mode": "parallel"}, "onnxruntime", 0),
        ({"fpmath": "bfloat16", "onednn": "off"}, "torch", 1),
        ({"fpmath": "off", "onednn": "off"}, "torch", 0),
        ({"isa": "avx2", "onednn": "off"}, "tensorflow", 1),
        ({"isa": "avx2", "onednn": "off"}, "torch", 0),
        ({"tf32": "on", "matmul_precision": "high"}, "tensorflow", 0),
        ({"binding": "close", "openmp": "gnu"}, "torch", 0),
    ],
)
def test_a_contradiction_depends_on_the_values_and_the_framework(
    settings: dict[str, str | int], backend: str, number: int
) -> None:
    assert len(contradictions(settings, backend=backend)) == number
