"""Effects of settings on kinds of machines where they were not measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.estimate.discrepancy import over_settings, predictions_by_machines
from knowledge.estimate.evidence import Contrast, Machine
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.machine_discrepancy import MachineDiscrepancy
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.hardware.matrix_features import element_types
from tests.knowledge.test_gains import HERE, contrast, side

PLAIN = side("2.9.0")
PLAIN_PROGRAM, WITH_ALLOCATOR = ("2.9.0", ()), ("2.9.0", (("allocator", "tcmalloc"),))
INTEL, AMD, ARM = (replace(HERE, kind=f"cpu {name}", identity=name) for name in ("icelake", "zen2", "neoverse"))
MODEL = "model@1[batch=1,mode=training,model={}] float32 torch/cpu"


def effect(mean: float, *, model: str = "resnet50", machine: Machine = INTEL, **settings: str) -> Contrast:
    """Return the effect of settings on a whole model, without noise."""
    row = contrast(PLAIN, PLAIN, mean, 0.0, label=MODEL.format(model), block=f"on {machine.kind}")
    arm = replace(PLAIN, settings=settings or {"allocator": "tcmalloc"})
    return replace(row, side=arm, machine=machine, family="model")


def test_a_setting_is_uncertain_by_a_share_of_its_effect_where_it_was_measured_on_one_other_kind() -> None:
    rows = [effect(0.3), effect(0.4, model="gpt2")]
    here, elsewhere = (MachineDiscrepancy(rows, kind, 0.5) for kind in (INTEL.kind, AMD.kind))
    unmeasured = ("2.9.0", (("threads", "1"),))

    assert here.between(WITH_ALLOCATOR, PLAIN_PROGRAM, 0.3) == 0.0
    usual = 0.5 * math.sqrt((0.09 + 0.16) / 2)
    assert elsewhere.between(WITH_ALLOCATOR, PLAIN_PROGRAM, 0.0) == pytest.approx(usual)
    assert elsewhere.between(PLAIN_PROGRAM, WITH_ALLOCATOR, -0.1) == pytest.approx(usual)
    assert elsewhere.between(WITH_ALLOCATOR, PLAIN_PROGRAM, 0.8) == pytest.approx(0.4)
    assert elsewhere.between(PLAIN_PROGRAM, ("2.4.0", ()), 0.3) == 0.0
    assert elsewhere.between(unmeasured, PLAIN_PROGRAM, 0.3) == 0.0


def test_on_a_third_kind_counts_how_much_two_kinds_differ() -> None:
    rows = [effect(0.3), effect(0.3, machine=AMD), effect(0.5, model="gpt2"), effect(0.5, model="gpt2", machine=AMD)]
    apart = [effect(0.1), effect(0.5, machine=AMD)]

    equal = MachineDiscrepancy(rows, ARM.kind, 0.5).between(WITH_ALLOCATOR, PLAIN_PROGRAM, 0.0)
    different = MachineDiscrepancy(apart, ARM.kind, 0.5).between(WITH_ALLOCATOR, PLAIN_PROGRAM, 0.0)

    # One degree of freedom of the share of the effect, and one of the variance between two kinds: 0, and 0.08.
    assert equal == pytest.approx(math.sqrt(0.25 * (0.09 + 0.25) / 2 / 2))
    assert different == pytest.approx(math.sqrt((0.25 * (0.01 + 0.25) / 2 + 0.08) / 2))


def test_predictions_by_machines_are_for_the_same_run_with_the_same_stacks() -> None:
    rows = [effect(0.3), effect(0.1, machine=AMD), effect(0.9, model="gpt2"), effect(0.8, machine=AMD, threads="1")]

    residuals = over_settings(predictions_by_machines(rows))

    assert [(r.contrast.mean, r.predicted) for r in residuals] == [(0.3, 0.1), (0.1, 0.3)]


def test_a_precision_that_one_machine_emulates_is_not_the_same_setting() -> None:
    able, unable = (
        replace(machine, precision_features=(feature,) * len(element_types()))
        for machine, feature in ((INTEL, "amx_bf16"), (AMD, ""))
    )
    rows = [effect(0.7, machine=able, amp="bfloat16"), effect(-2.0, machine=unable, amp="bfloat16")]

    assert predictions_by_machines(rows) == []


def test_a_gain_is_less_certain_on_another_kind_of_machine() -> None:
    rows = [effect(0.5), effect(0.5, model="gpt2")]
    label = MODEL.format("resnet50"), "model"
    process = GaussianProcess(rows)
    process.amplitudes = replace(process.amplitudes, discrepancies={"settings of machines": 0.5})
    stack = {"torch": Version("2.9.0")}
    here, elsewhere = (
        FrameworkModel(MeasuredFramework("torch", process, machine), {label: 1.0}).gain_of_setting(
            stack, "allocator", "tcmalloc"
        )
        for machine in (INTEL, AMD)
    )

    assert elsewhere.variance >= here.variance + 0.25**2
