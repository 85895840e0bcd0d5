"""What a reduced precision does on a processor is learnt from processors with the same feature for its element type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.similarity import element_type_of, side_on
from knowledge.estimate.workloads import find_workload
from knowledge.evidence.contrasts import Contrast, Side, machine_from, machine_of
from knowledge.hardware.profiles import find_profile
from tests.knowledge.contrasts import contrast, estimator
from tests.knowledge.samples import recorded

STACK = {"torch": Version("2.9.0")}
PLAIN = Side(version="2.9.0", companions={}, settings={})
AMX = recorded("amx-virtual-machine")
GAIN = math.log(2.1)


def with_setting(name: str, value: str) -> Side:
    return replace(PLAIN, settings={name: value})


def measured(name: str, value: str, hardware: HardwareProfile = AMX, gain: float = GAIN) -> list[Contrast]:
    """Two models that a setting makes faster at every size, and a comparison of two versions."""
    machine = machine_of(hardware, "cpu")
    labels = {
        f"model@1[batch={batch},mode=training,model={model}] float32 torch/cpu": batch * 1e10
        for model in ("resnet50", "mobilenet_v2")
        for batch in (1, 8, 64)
    }
    changed = with_setting(name, value)
    rows = [
        contrast(changed, PLAIN, gain, 0.01, block=f"b{i}", label=label, machine=machine)
        for i, label in enumerate(labels)
    ]
    old = replace(PLAIN, version="2.8.0")
    rows.append(contrast(old, PLAIN, 0.0, 0.01, block="v", label=rows[0].label, machine=machine))
    return [replace(row, flops=labels[row.label]) for row in rows]


def model(contrasts: Sequence[Contrast], hardware: HardwareProfile) -> FrameworkModel:
    fitted = estimator(contrasts, workload=find_workload("cnn-training"), hardware=hardware).model("torch")
    assert fitted is not None
    return fitted


def listed(contrasts: Sequence[Contrast], hardware: HardwareProfile) -> list[tuple[str, str]]:
    """Return the settings that are listed for a machine."""
    return [setting.value for setting in model(contrasts, hardware).measured.settings]


@pytest.mark.parametrize("profile", ["cpu-sapphirerapids", "cpu-graniterapids"])
def test_bfloat16_with_amx_is_learnt_from_a_processor_of_another_name(profile: str) -> None:
    target = find_profile(profile)

    effect = model(measured("amp", "bfloat16"), target).setting_effect(STACK, "amp", "bfloat16")

    assert machine_of(target, "cpu").kind != machine_of(AMX, "cpu").kind
    assert listed(measured("amp", "bfloat16"), target) == [("amp", "bfloat16")]
    assert effect.speedup > 1.3
    assert effect.low > 1


@pytest.mark.parametrize("profile", ["cpu-icelake", "cpu-zen4", "cpu-zen3", "c7g.xlarge"])
def test_bfloat16_with_amx_says_nothing_about_processors_without_it(profile: str) -> None:
    target = find_profile(profile)

    effect = model(measured("amp", "bfloat16"), target).setting_effect(STACK, "amp", "bfloat16")

    assert listed(measured("amp", "bfloat16"), target) == []
    assert effect.speedup == pytest.approx(1.0, abs=1e-9)


def test_an_ice_lake_and_a_machine_that_is_only_called_so_are_distinguished() -> None:
    assert machine_of(find_profile("cpu-icelake"), "cpu").kind == machine_of(AMX, "cpu").kind
    assert listed(measured("amp", "bfloat16"), AMX) == [("amp", "bfloat16")]


def test_a_slow_reduced_precision_does_not_hide_a_fast_one() -> None:
    slow = find_profile("cpu-zen3")
    losses = [replace(c, block=f"slow {c.block}") for c in measured("amp", "bfloat16", slow, -GAIN) if c.block != "v"]
    contrasts = [*measured("amp", "bfloat16"), *losses]

    def speedup(rows: Sequence[Contrast], hardware: HardwareProfile) -> float:
        return model(rows, hardware).setting_effect(STACK, "amp", "bfloat16").speedup

    assert speedup(contrasts, AMX) == pytest.approx(speedup(measured("amp", "bfloat16"), AMX))
    assert speedup(contrasts, slow) < 0.75


@pytest.mark.parametrize(
    ("setting", "measured_on", "target"),
    [
        # AVX-512 with bfloat16 is the same feature at Intel and at AMD.
        (("amp", "bfloat16"), recorded("cpu-virtual-machine"), find_profile("cpu-zen5")),
        # Other settings do not depend on such features.
        (("allocator", "tcmalloc"), AMX, find_profile("cpu-zen3")),
    ],
)
def test_processors_share_what_depends_on_no_feature_or_on_a_common_one(
    setting: tuple[str, str], measured_on: HardwareProfile, target: HardwareProfile
) -> None:
    effect = model(measured(*setting, measured_on), target).setting_effect(STACK, *setting)

    assert listed(measured(*setting, measured_on), target) == [setting]
    assert effect.speedup > 1.3
    assert effect.low > 1


def test_a_machine_with_unknown_features_learns_from_itself_only() -> None:
    unknown = replace(find_profile("a40"), accelerators=())
    here, other = (replace(unknown, memory_bytes=size) for size in (1, 2))
    contrasts = measured("amp", "bfloat16", here)

    assert machine_of(here, "cpu").precision_features == ()
    assert listed(contrasts, here) == [("amp", "bfloat16")]
    assert listed(contrasts, other) == []


@pytest.mark.parametrize(
    ("value", "element_type"),
    [
        ("medium", ""),
        ("bfloat16", "bfloat16"),
        ("BF16", "bfloat16"),
        ("mixed_bfloat16", "bfloat16"),
        ("amp", "bfloat16"),
        ("float16", "float16"),
        ("fp16", "float16"),
        ("int8", "int8"),
        ("off", ""),
        ("fp32", ""),
        ("tf32", ""),
        ("2", ""),
        ("channels_last", ""),
    ],
)
def test_the_element_type_of_a_setting_is_recognised(value: str, element_type: str) -> None:
    assert element_type_of("precision", value) == element_type
    assert element_type_of("matmul_precision", "medium") == "bfloat16"


def test_a_stack_on_an_accelerator_or_without_such_a_setting_stays_as_it_is() -> None:
    gpu = machine_of(find_profile("a100"), "cuda")
    reduced, allocator = with_setting("amp", "bfloat16"), with_setting("allocator", "tcmalloc")

    here = machine_of(AMX, "cpu")
    assert side_on(reduced, gpu) is reduced
    assert side_on(allocator, here) == allocator
    assert side_on(PLAIN, here) is PLAIN


def test_a_machine_is_the_same_after_a_round_trip_through_its_record() -> None:
    machine = machine_of(AMX, "cpu")

    assert machine_from(asdict(machine)) == machine
    assert machine.precision_features == ("amx_bf16", "avx512_fp16", "amx_int8")
