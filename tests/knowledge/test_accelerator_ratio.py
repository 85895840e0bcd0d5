"""Ratios of accelerators: pairs of published rows, and predictions for pairs that nobody published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from knowledge.domain.observation import Observation
from knowledge.estimate.accelerator_pairs import accelerator_pairs
from knowledge.estimate.accelerator_ratio import accelerator_ratio, fit_ratios, predict_ratio
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


def test_training_compares_the_best_batch_of_each_accelerator_and_inference_equal_batches() -> None:
    small, large = row(3.0, gpu="A100-SXM4-40GB", batch=64), row(2.0, gpu="A100-SXM4-40GB", batch=256)
    slow = row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64)
    (pair,) = accelerator_pairs([small, large, slow])
    assert math.exp(abs(pair.mean)) == pytest.approx(2)
    rows = [
        replace(o, indicator=replace(o.indicator, parameters={**o.indicator.parameters, "mode": "inference"}))
        for o in (small, large, slow)
    ]
    (pair,) = accelerator_pairs(rows)
    assert math.exp(abs(pair.mean)) == pytest.approx(4 / 3)


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
