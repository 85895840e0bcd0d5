"""Ratios of accelerators: pairs of published rows, and predictions for pairs that nobody published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from knowledge.domain.observation import Observation
from knowledge.estimate.accelerator_pairs import accelerator_pairs
from knowledge.estimate.accelerator_ratio import BATCH, accelerator_ratio, direct_pairs, fit_ratios, predict_ratio
from knowledge.hardware.accelerators import find_accelerator
from knowledge.hardware.peaks import largest_ratio
from tests.knowledge.test_published_contrasts import row

GPUS = {
    "Tesla V100-SXM2-16GB": 1.0,
    "Tesla T4": 0.4,
    "A100-SXM4-40GB": 2.0,
    "A40": 1.4,
    "GeForce RTX 3090": 1.5,
    "H100 PCIe": 3.0,
}
TASKS = ("resnet50", "bert_large", "vgg16", "gnmt", "ssd300")


def world() -> list[Observation]:
    """Return rows of accelerators with these speeds at every task."""
    return [
        row((1.0 + number) / speed * (1 + 0.02 * ((number + place) % 3)), gpu=gpu, task=task)
        for place, (gpu, speed) in enumerate(GPUS.items())
        for number, task in enumerate(TASKS)
    ]


def test_accelerators_are_compared_within_one_configuration_only() -> None:
    rows = [row(2.0, gpu="A100-SXM4-40GB"), row(4.0, gpu="Tesla V100-SXM2-16GB")]
    (pair,) = accelerator_pairs(rows)
    assert {pair.accelerator, pair.reference} == {"a100-sxm4-40gb", "v100-sxm2-16gb"}
    sign = 1 if pair.accelerator.startswith("a100") else -1
    assert math.exp(sign * pair.mean) == pytest.approx(2)
    assert (pair.task, pair.mode, pair.source) == ("resnet50", "training", "someone/benchmarks")
    assert accelerator_pairs([rows[0], row(4.0, gpu="Tesla V100-SXM2-16GB", version="2.3.0")]) == ()
    assert accelerator_pairs([rows[0], row(4.0, gpu="Tesla V100-SXM2-16GB", precision="amp")]) == ()


def inference(*rows: Observation) -> list[Observation]:
    """Return rows of inference."""
    return [
        replace(o, indicator=replace(o.indicator, parameters={**o.indicator.parameters, "mode": "inference"}))
        for o in rows
    ]


def test_pairs_have_one_batch_size_where_a_common_one_was_published() -> None:
    rows = [
        row(3.0, gpu="A100-SXM4-40GB", batch=64),
        row(2.0, gpu="A100-SXM4-40GB", batch=256),
        row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64),
    ]
    for listed in (rows, inference(*rows)):
        (pair,) = accelerator_pairs(listed)

        assert (pair.batch, pair.reference_batch, pair.has_one_batch) == ("64", "64", True)
        assert math.exp(abs(pair.mean)) == pytest.approx(4 / 3)


def test_training_without_a_common_batch_size_compares_the_best_of_each_and_inference_nothing() -> None:
    rows = [
        row(3.0, gpu="A100-SXM4-40GB", batch=128),
        row(2.0, gpu="A100-SXM4-40GB", batch=256),
        row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64),
    ]
    (pair,) = accelerator_pairs(rows)

    assert {pair.batch, pair.reference_batch} == {"64", "256"}
    assert not pair.has_one_batch
    assert math.exp(abs(pair.mean)) == pytest.approx(2)
    assert accelerator_pairs(inference(*rows)) == ()


def test_a_third_accelerator_is_joined_by_its_common_batch_size_only() -> None:
    rows = [
        row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64),
        row(3.0, gpu="A100-SXM4-40GB", batch=64),
        row(2.0, gpu="A100-SXM4-40GB", batch=256),
        row(2.5, gpu="A40", batch=256),
    ]
    pairs = accelerator_pairs(rows)

    assert [pair.batch for pair in pairs if pair.has_one_batch] == ["256", "64"]
    assert len(pairs) == 2


def test_direct_pairs_of_one_batch_size_hide_those_of_different_ones() -> None:
    rows = [row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64, precision=precision) for precision in ("amp", "fp32")] + [
        row(3.0, batch=64, precision="amp"),
        row(2.0, batch=256, precision="fp32"),
    ]
    pairs = direct_pairs(accelerator_pairs(rows), "a100", "v100")

    # Different settings are different configurations: each has the best that it offers.
    assert sorted((pair.batch, pair.reference_batch) for pair in pairs) == [("256", "64"), ("64", "64")]
    assert all(pair.accelerator == "a100-sxm4-40gb" for pair in pairs)


def test_a_ratio_beyond_bandwidth_and_peak_rates_and_a_part_of_a_gpu_are_no_pairs() -> None:
    bound = largest_ratio(
        *(model for name in ("h200-sxm5-141gb", "h100-sxm5-80gb") if (model := find_accelerator(name)))
    )
    slow = row(4.0, gpu="H100 SXM5")
    mig = replace(
        slow, hardware=replace(slow.hardware, accelerators=(replace(slow.hardware.accelerators[0], partition="mig"),))
    )

    assert bound == pytest.approx(4.8 / 3.35)
    assert len(accelerator_pairs([slow, row(4.0 / 2.8, gpu="H200 SXM")])) == 1
    assert accelerator_pairs([slow, row(4.0 / 2.9, gpu="H200 SXM")]) == ()
    assert accelerator_pairs([mig, row(4.0 / 2, gpu="H200 SXM")]) == ()


def test_one_impossible_row_does_not_hide_the_pairs_of_the_others() -> None:
    speeds = {"A100-SXM4-40GB": 200.0, "H100 PCIe": 3.0, "Tesla V100-SXM2-16GB": 1.0, "A40": 1.4}
    rows = [row(4.0 / speed, gpu=gpu) for gpu, speed in speeds.items()]

    pairs = accelerator_pairs(rows)

    assert {name for pair in pairs for name in (pair.accelerator, pair.reference)} == {
        "a40", "h100-pcie-80gb", "v100-sxm2-16gb"
    }  # fmt: skip
    assert len(pairs) == 2


def test_a_row_between_two_that_exclude_each_other_does_not_make_both_possible() -> None:
    """The bandwidths of an A40, an A100 and an H100 are 0.7, 1.6 and 2.0 TB/s."""
    gpus = {"A40": 1.0, "A100-SXM4-40GB": 4.0, "H100 PCIe": 16.0, "Tesla V100-SXM2-16GB": 3.0}
    rows = {gpu: row(16.0 / speed, gpu=gpu) for gpu, speed in gpus.items()}
    assert len(accelerator_pairs([rows["A40"], rows["A100-SXM4-40GB"]])) == 1
    assert len(accelerator_pairs([rows["A100-SXM4-40GB"], rows["H100 PCIe"]])) == 1
    assert accelerator_pairs([rows["A40"], rows["H100 PCIe"]]) == ()

    pairs = accelerator_pairs(rows.values())

    names = {name for pair in pairs for name in (pair.accelerator, pair.reference)}
    assert not {"a40", "h100-pcie-80gb"} <= names


def test_pairs_of_different_batch_sizes_count_less() -> None:
    """Their variance is larger by what the batch size adds, which is estimated from such pairs."""
    speeds = dict(zip(GPUS, (1.0, 0.6, 1.5, 0.8, 1.2, 0.7), strict=True))
    rows = [
        replace(o, samples=(o.samples[0] * (speeds[gpu] if number % 2 else 1 / speeds[gpu]),))
        for number, task in enumerate(TASKS)
        for place, gpu in enumerate(GPUS)
        for o in [row((1.0 + number) / GPUS[gpu], gpu=gpu, task=task, batch=32 * (place + 1))]
    ]
    varied, equal = accelerator_pairs(rows), accelerator_pairs(world())
    known = replace(equal[0], source="another")
    variances = {**fit_ratios(equal), BATCH: fit_ratios([*equal, *varied])[BATCH]}

    assert not any(pair.has_one_batch for pair in varied)
    assert variances[BATCH] > 0.05
    certain, uncertain = (
        predict_ratio([replace(known, batch=batch)], variances, [known])[1][0, 0] for batch in (known.batch, "1")
    )
    assert uncertain > certain


def test_a_published_pair_is_predicted_and_listed() -> None:
    pairs = accelerator_pairs(world())
    ratio = accelerator_ratio(
        pairs,
        fit_ratios(pairs),
        accelerator="h100-pcie-80gb",
        reference="v100-sxm2-16gb",
        tasks=[("resnet50", "training")],
    )
    # The rows differ by up to 4 % from the ratio of speeds.
    assert 2.8 < ratio.speedup < 3.1
    assert 1 < ratio.high / ratio.low < 1.5


def test_the_reverse_comparison_is_the_inverse() -> None:
    pairs = accelerator_pairs(world())
    variances = fit_ratios(pairs)
    names = ("a40", "rtx3090")
    one, other = (
        accelerator_ratio(pairs, variances, accelerator=a, reference=b, tasks=[("vgg16", "training")])
        for a, b in (names, names[::-1])
    )
    assert one.speedup * other.speedup == pytest.approx(1)
    assert one.low * other.high == pytest.approx(1)


def test_an_accelerator_that_nobody_measured_is_less_certain_than_one_that_was() -> None:
    pairs = accelerator_pairs(world())
    variances = fit_ratios(pairs)
    targets = [replace(pairs[0], accelerator=name, reference="v100-sxm2-16gb") for name in ("a100-sxm4-40gb", "a10")]
    means, covariances = predict_ratio(pairs, variances, targets)
    assert np.isfinite(means).all()
    assert covariances[1, 1] > 2 * covariances[0, 0]
