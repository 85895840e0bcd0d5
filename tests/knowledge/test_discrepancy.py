"""Residuals of whole models, and the discrepancy that widens predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.domain.model_part import PartOfModel
from knowledge.estimate.discrepancy import (
    ARCHITECTURES,
    Residual,
    discrepancy,
    misleads,
    over_releases,
    predictions_by_blocks,
    predictions_by_models,
    predictions_by_operations,
    predictions_by_sizes,
    predictions_by_sizes_elsewhere,
    relative_discrepancy,
)
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.stack_discrepancy import StackDiscrepancy
from pi_runners.models.catalogue import NETWORKS
from tests.knowledge.test_gains import ELSEWHERE, HERE, contrast, side

NEW, OLD = side("2.9.0"), side("2.4.0")
MATMUL, SORT = "matmul@1[n=4] float32 torch/cpu", "sort@1[n=8] float32 torch/cpu"


def whole(mean: float, *, model: str = "resnet50", mode: str = "training", batch: int = 1) -> Contrast:
    """Return the contrast of a whole model."""
    label = f"model@1[batch={batch},mode={mode},model={model}] float32 torch/cpu"
    return contrast(OLD, NEW, mean, 0.01, label=label)


def part(label: str, *, calls: int = 1, flops: float = 1.0) -> PartOfModel:
    """Return a single operation of a model."""
    return PartOfModel(indicator=label.partition("@")[0], label=label, calls=calls, flops=flops, bytes=1.0)


def test_a_model_is_predicted_by_the_sum_of_the_times_of_its_operations() -> None:
    contrasts = [
        whole(-0.5),
        contrast(OLD, NEW, 0.0, 0.01, label=MATMUL),
        contrast(OLD, NEW, -math.log(10), 0.01, label=SORT),
    ]
    seconds = {("b", MATMUL): 0.3, ("b", SORT): 0.1}
    parts = [part(MATMUL, calls=3), part(SORT)]

    (residual,) = predictions_by_operations(contrasts, seconds, lambda _: parts)

    # 0.9 s and 0.1 s become 0.9 s and 1 s.
    assert residual.predicted == pytest.approx(-math.log(1.9))
    assert residual.contrast is contrasts[0]


def test_a_model_is_predicted_by_its_blocks_of_any_size_in_other_campaigns() -> None:
    def block(mean: float, length: int, *, mode: str = "training") -> Contrast:
        label = f"block@1[batch=1,block=encoder_block,length={length},mode={mode}] float32 torch/cpu"
        return replace(contrast(OLD, NEW, mean, 0.01, label=label), block="another")

    blocks = [block(-0.2, 8), block(-0.2, 16), block(3.0, 8, mode="inference")]
    seconds = {("another", c.label): 1.0 for c in blocks}
    models = [whole(-0.5), whole(0.1, model="unet"), whole(0.4, model="gpt2", mode="decode")]

    residuals = predictions_by_blocks([*models, *blocks], seconds, lambda name: {"encoder_block": 12})

    assert [(r.contrast.mean, round(r.predicted, 9)) for r in residuals] == [(-0.5, -0.2), (0.1, -0.2)]


def test_a_model_of_which_few_operations_were_measured_is_not_predicted() -> None:
    contrasts = [whole(-0.5), contrast(OLD, NEW, 0.0, 0.01, label=MATMUL)]
    parts = [part(MATMUL), part(SORT, flops=2.0)]

    assert predictions_by_operations(contrasts, {("b", MATMUL): 0.3}, lambda _: parts) == []


def test_other_models_and_other_sizes_predict_a_model() -> None:
    contrasts = [
        whole(0.1),
        replace(whole(0.3, batch=8), block="another"),
        whole(0.5, model="mobilenet_v2"),
        whole(9.0, model="gpt2", mode="decode"),
        replace(whole(7.0, model="unet"), side=side("2.3.0")),
        whole(5.0, model="dlrm"),
    ]
    predicted = predictions_by_models(contrasts)
    by_models = [(r.contrast.mean, r.predicted) for r in predicted]
    by_sizes = [(r.contrast.mean, r.predicted) for r in predictions_by_sizes(contrasts)]

    assert by_models == [(0.1, 0.5), (0.3, 0.5), (0.5, pytest.approx(0.2))]
    assert by_sizes == [(0.1, 0.3), (0.3, 0.1)]


def test_other_sizes_on_another_machine_predict_a_model() -> None:
    elsewhere = replace(whole(0.4, batch=8), machine=ELSEWHERE)
    contrasts = [whole(0.1), elsewhere, whole(0.5, batch=16), whole(9.0, model="dlrm")]

    predicted = {r.contrast.mean: r.predicted for r in predictions_by_sizes_elsewhere(contrasts)}

    assert predicted == pytest.approx({0.1: 0.4, 0.4: 0.3, 0.5: 0.4})


def test_noise_is_no_discrepancy() -> None:
    noisy = Residual(contrast=whole(0.0), predicted=0.014, deviation=0.01)
    wrong = Residual(contrast=whole(0.0), predicted=0.5, deviation=0.01)

    assert discrepancy([noisy]) == 0.0
    assert discrepancy([wrong]) == pytest.approx(0.5, abs=0.001)


def test_predictions_mislead_if_they_explain_less_than_half_of_the_differences() -> None:
    worse, better, trifle = (
        Residual(contrast=whole(mean), predicted=predicted, deviation=0.01)
        for mean, predicted in ((0.1, 0.4), (0.4, 0.3), (0.01, 0.03))
    )

    assert misleads([worse])
    assert not misleads([better])
    assert not misleads([worse, better, better])
    assert not misleads([trifle])


def test_noise_of_the_measurements_is_no_error_of_the_predictions() -> None:
    noisy = replace(whole(0.3), error=0.15)
    # 0.75 of the squared difference, and 0.67 without the noise; 0.54 and 0.38.
    wrong = Residual(contrast=noisy, predicted=0.56, deviation=0.0)
    better = Residual(contrast=noisy, predicted=0.52, deviation=0.0)

    assert misleads([wrong])
    assert not misleads([better])


def test_a_setting_that_changes_all_models_alike_does_not_hide_that_releases_are_not_predicted() -> None:
    releases = [
        Residual(contrast=whole(mean), predicted=predicted, deviation=0.01)
        for mean, predicted in ((0.03, -0.1), (-0.02, 0.1))
    ]
    one_thread = replace(whole(-0.6), side=replace(NEW, settings={"threads": "1"}))
    setting = Residual(contrast=one_thread, predicted=-0.6, deviation=0.01)

    assert not misleads([*releases, setting, setting])
    assert over_releases([*releases, setting]) == releases
    assert misleads(over_releases([*releases, setting, setting]))
    assert over_releases([setting]) == [setting]


def test_the_discrepancy_of_two_stacks_is_that_of_the_models_measured_with_both() -> None:
    alike = [replace(whole(0.2, model=name), error=0.0) for name in ("resnet50", "mobilenet_v2", "unet")]
    apart = [replace(c, mean=mean, side=side("2.2.0")) for c, mean in zip(alike, (-0.3, 0.0, 0.3), strict=True)]
    discrepancies = StackDiscrepancy([*alike, *apart], usual=0.1)
    new, old, oldest, other = ((version, ()) for version in ("2.9.0", "2.4.0", "2.2.0", "2.7.0"))

    # Two degrees of freedom of the framework's 0.1, and two of the spread: 0, and 0.3.
    assert discrepancies.between(old, new) == discrepancies.between(new, old) == pytest.approx(math.sqrt(0.01 / 2))
    assert discrepancies.between(oldest, new) == pytest.approx(math.sqrt((0.01 + 0.09) / 2))
    assert discrepancies.between(oldest, old) == pytest.approx(math.sqrt((0.01 + 0.09) / 2))
    assert discrepancies.between(other, new) == pytest.approx(0.1)
    assert discrepancies.between(new, new) == 0.0


def test_the_architectures_are_those_of_the_models() -> None:
    assert {name: network.architecture for name, network in NETWORKS.items()} == ARCHITECTURES


def test_a_discrepancy_widens_the_gain_of_another_version_but_not_of_the_same_or_of_one_indicator() -> None:
    rows = [contrast(OLD, NEW, 0.2, 0.001, label=MATMUL)]
    exact, wide = (
        FrameworkModel(
            MeasuredFramework("torch", GaussianProcess(rows), HERE),
            {(MATMUL, "matmul"): 1.0},
            discrepancy=StackDiscrepancy((), value),
        )
        for value in (0.0, 0.3)
    )
    old, new = ({"torch": Version(s.version)} for s in (OLD, NEW))

    assert wide.gain(old, new).variance == pytest.approx(exact.gain(old, new).variance + 0.09)
    assert wide.gain(old, new).mean == exact.gain(old, new).mean
    assert wide.gain(old, old).variance == 0.0
    assert wide.gain(old, new, {(MATMUL, "matmul"): 1.0}).variance == exact.gain(old, new).variance


def test_the_discrepancy_of_a_setting_is_proportional_to_its_effects() -> None:
    changed = replace(NEW, settings={"allocator": "tcmalloc"})
    effects = [
        replace(whole(mean, model=model), error=0.0, side=changed)
        for model, mean in (("resnet50", 0.2), ("mobilenet_v2", 0.2))
    ]
    new, other = ("2.9.0", ()), ("2.9.0", (("allocator", "tcmalloc"),))

    # One degree of freedom of half of the effects' root mean square, and one of their spread, which is 0.
    half = StackDiscrepancy(effects, 0.0, 0.5).between(other, new)
    none = StackDiscrepancy(effects, 0.0, 0.0).between(other, new)

    assert half == pytest.approx(math.sqrt(0.1**2 / 2))
    assert none == 0.0


def test_the_relative_discrepancy_is_the_median_over_settings() -> None:
    def residuals(name: str, effect: float, error: float) -> list[Residual]:
        changed = replace(whole(effect), error=0.0, side=replace(NEW, settings={name: "on"}), reference=NEW)
        return [Residual(contrast=changed, predicted=effect + error, deviation=0.0)]

    shares = {"a": 0.1, "b": 0.3, "c": 2.0}
    every = [r for name, share in shares.items() for r in residuals(name, 0.5, share * 0.5)]

    assert relative_discrepancy(every) == pytest.approx(0.3)
    # A setting without an effect says nothing about shares.
    assert relative_discrepancy([*every, *residuals("d", 0.001, 0.2)]) == pytest.approx(0.3)
