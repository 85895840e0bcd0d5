"""What a reduced precision does on a processor is learnt from processors with the same feature for its element type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from packaging.version import Version

from knowledge.estimate.evidence import Contrast, Machine, Side, machine_from, machine_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess, predict_held_out
from knowledge.estimate.interface import PredictedGain
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.similarity import element_type_of, side_on
from knowledge.hardware.profiles import find_profile
from tests.knowledge.test_gains import contrast
from tests.knowledge.test_hardware import recorded

LABELS = (
    "model[batch=8,mode=training,model=resnet] float32 torch/cpu",
    "model[batch=8,mode=training,model=bert] float32 torch/cpu",
)
STACK = {"torch": Version("2.9.0")}
PLAIN = Side(version="2.9.0", companions={}, settings={})
MEASURED = machine_of(recorded("amx-virtual-machine"), "cpu")
GAIN = math.log(2.1)


def with_setting(name: str, value: str) -> Side:
    return replace(PLAIN, settings={name: value})


def measured(name: str, value: str, machine: Machine = MEASURED) -> list[Contrast]:
    """Two indicators at which a setting doubles the speed, and a comparison of two versions."""
    changes = [
        contrast(with_setting(name, value), PLAIN, GAIN, 0.01, block=f"b{i}", label=label, machine=machine)
        for i, label in enumerate(LABELS)
    ]
    return [
        *changes,
        contrast(replace(PLAIN, version="2.8.0"), PLAIN, 0.0, 0.01, block="v", label=LABELS[0], machine=machine),
    ]


def model(contrasts: Sequence[Contrast], machine: Machine) -> FrameworkModel:
    process = GaussianProcess(contrasts, shipped_amplitudes("torch", "cpu"))
    return FrameworkModel(
        MeasuredFramework("torch", process, machine), {(label, "model"): 1 / len(LABELS) for label in LABELS}
    )


def gain(contrasts: Sequence[Contrast], machine: Machine, name: str, value: str) -> PredictedGain:
    return model(contrasts, machine).gain_of_setting(STACK, name, value)


@pytest.mark.parametrize("profile", ["cpu-sapphirerapids", "cpu-graniterapids"])
def test_bfloat16_with_amx_is_learnt_from_a_processor_of_another_name(profile: str) -> None:
    target = machine_of(find_profile(profile), "cpu")
    contrasts = measured("amp", "bfloat16")

    effect = model(contrasts, target).setting_effect(STACK, "amp", "bfloat16")

    assert target.kind != MEASURED.kind
    assert effect is not None
    assert effect.speedup > 1.3
    assert effect.low > 1


@pytest.mark.parametrize("profile", ["cpu-icelake", "cpu-zen4", "cpu-zen3", "c7g.xlarge", "a40"])
def test_bfloat16_with_amx_says_nothing_about_processors_without_it(profile: str) -> None:
    target = machine_of(find_profile(profile), "cpu")
    contrasts = measured("amp", "bfloat16")

    assert model(contrasts, target).setting_effect(STACK, "amp", "bfloat16") is None
    assert gain(contrasts, target, "amp", "bfloat16").mean == pytest.approx(0.0, abs=1e-12)


def test_an_ice_lake_and_a_machine_that_is_only_called_so_are_distinguished() -> None:
    target = machine_of(find_profile("cpu-icelake"), "cpu")

    assert target.kind == MEASURED.kind
    assert not model(measured("amp", "bfloat16"), target).measured.has_measured_setting("amp", "bfloat16")
    assert model(measured("amp", "bfloat16"), MEASURED).measured.has_measured_setting("amp", "bfloat16")


def test_a_slow_reduced_precision_does_not_hide_a_fast_one() -> None:
    slow = machine_of(find_profile("cpu-zen3"), "cpu")
    losses = [
        replace(c, mean=-GAIN, block=f"slow {c.block}") for c in measured("amp", "bfloat16", slow) if c.block != "v"
    ]
    contrasts = [*measured("amp", "bfloat16"), *losses]

    assert gain(contrasts, MEASURED, "amp", "bfloat16").mean == pytest.approx(
        gain(measured("amp", "bfloat16"), MEASURED, "amp", "bfloat16").mean
    )
    assert gain(contrasts, slow, "amp", "bfloat16").mean < -0.3


def test_avx512_with_bfloat16_is_the_same_feature_at_intel_and_at_amd() -> None:
    amd = machine_of(recorded("cpu-virtual-machine"), "cpu")

    effect = model(measured("amp", "bfloat16", amd), machine_of(find_profile("cpu-zen5"), "cpu")).setting_effect(
        STACK, "amp", "bfloat16"
    )

    assert effect is not None
    assert effect.low > 1


def test_other_settings_are_shared_by_processors_with_other_features() -> None:
    target = machine_of(find_profile("cpu-zen3"), "cpu")

    effect = model(measured("onednn", "off"), target).setting_effect(STACK, "onednn", "off")

    assert effect is not None
    assert effect.speedup > 1.3


def test_a_machine_with_unknown_features_learns_from_itself_only() -> None:
    generic = find_profile("a40")
    here, other = (machine_of(replace(generic, memory_bytes=size), "cpu") for size in (1, 2))
    contrasts = measured("amp", "bfloat16", here)

    assert here.precision_features == ()
    assert model(contrasts, here).measured.has_measured_setting("amp", "bfloat16")
    assert not model(contrasts, other).measured.has_measured_setting("amp", "bfloat16")


def test_held_out_contrasts_are_predicted_by_features_too() -> None:
    fitted = measured("amp", "bfloat16")
    same, other = (
        contrast(with_setting("amp", "bfloat16"), PLAIN, GAIN, 0.01, block="h", label=LABELS[0], machine=machine)
        for machine in (machine_of(find_profile(name), "cpu") for name in ("cpu-sapphirerapids", "cpu-icelake"))
    )

    means, _ = predict_held_out(fitted, [same, other], shipped_amplitudes("torch", "cpu"))

    assert means[0] > 0.3
    assert means[1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "element_type"),
    [
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
    assert element_type_of(value) == element_type


def test_a_stack_on_an_accelerator_or_without_such_a_setting_stays_as_it_is() -> None:
    gpu = machine_of(find_profile("a100"), "cuda")
    reduced, threads = with_setting("amp", "bfloat16"), with_setting("threads", "2")

    assert side_on(reduced, gpu) is reduced
    assert side_on(threads, MEASURED) is threads
    assert side_on(PLAIN, MEASURED) is PLAIN


def test_a_machine_is_the_same_after_a_round_trip_through_its_record() -> None:
    assert machine_from(asdict(MEASURED)) == MEASURED
    assert MEASURED.precision_features == ("amx_bf16", "avx512_fp16", "amx_int8")
