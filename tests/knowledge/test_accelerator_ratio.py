"""Ratios of accelerators: pairs of published rows, and predictions for pairs that nobody published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from knowledge.domain.observation import Observation
from knowledge.estimate.accelerator_ratio import (
    CONFIGURATION,
    MOST_PAIRS,
    AcceleratorRatio,
    RatioModel,
    accelerator_ratios,
    direct_pairs,
    fit_ratios,
    selected,
)
from knowledge.estimate.model_cache import shipped_ratio_variances
from knowledge.evidence.accelerator_pairs import AcceleratorPair, load_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, REQUESTS, SHORT
from knowledge.hardware.accelerators import find_accelerator
from knowledge.hardware.peaks import largest_ratio
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.published_rows import pairs_of, row

GPUS = {
    "Tesla V100-SXM2-16GB": 1.0,
    "Tesla T4": 0.4,
    "A100-SXM4-40GB": 2.0,
    "A40": 1.4,
    "GeForce RTX 3090": 1.5,
    "H100 PCIe": 3.0,
}
TASKS = ("resnet50", "bert_large", "vgg16", "gnmt", "ssd300")


@pytest.fixture
def shipped_pairs(knowledge_file: Path) -> tuple[AcceleratorPair, ...]:
    """The pairs of the shipped observations, in tests that are marked with `shipped`."""
    with open_knowledge_base(str(knowledge_file)) as store:
        return load_pairs(store)


def world() -> list[Observation]:
    """Return rows of accelerators with these speeds at every task."""
    return [
        row((1.0 + number) / speed * (1 + 0.02 * ((number + place) % 3)), gpu=gpu, task=task)
        for place, (gpu, speed) in enumerate(GPUS.items())
        for number, task in enumerate(TASKS)
    ]


def test_accelerators_are_compared_within_one_configuration_only() -> None:
    rows = [row(2.0, gpu="A100-SXM4-40GB"), row(4.0, gpu="Tesla V100-SXM2-16GB")]
    (pair,) = pairs_of(rows)
    assert {pair.accelerator, pair.reference} == {"a100-sxm4-40gb", "v100-sxm2-16gb"}
    sign = 1 if pair.accelerator.startswith("a100") else -1
    assert math.exp(sign * pair.mean) == pytest.approx(2)
    assert (pair.task, pair.mode, pair.source) == ("resnet50", "training", "someone/benchmarks")
    assert pairs_of([rows[0], row(4.0, gpu="Tesla V100-SXM2-16GB", version="2.3.0")]) == ()
    assert pairs_of([rows[0], row(4.0, gpu="Tesla V100-SXM2-16GB", precision="amp")]) == ()


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
        (pair,) = pairs_of(listed)

        assert (pair.batch, pair.reference_batch, pair.has_one_batch) == ("64", "64", True)
        assert math.exp(abs(pair.mean)) == pytest.approx(4 / 3)


def test_training_without_a_common_batch_size_compares_the_best_of_each_and_inference_nothing() -> None:
    rows = [
        row(3.0, gpu="A100-SXM4-40GB", batch=128),
        row(2.0, gpu="A100-SXM4-40GB", batch=256),
        row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64),
    ]
    (pair,) = pairs_of(rows)

    assert {pair.batch, pair.reference_batch} == {"64", "256"}
    assert not pair.has_one_batch
    assert math.exp(abs(pair.mean)) == pytest.approx(2)
    assert pairs_of(inference(*rows)) == ()


def test_a_third_accelerator_is_joined_by_its_common_batch_size_only() -> None:
    rows = [
        row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64),
        row(3.0, gpu="A100-SXM4-40GB", batch=64),
        row(2.0, gpu="A100-SXM4-40GB", batch=256),
        row(2.5, gpu="A40", batch=256),
    ]
    pairs = pairs_of(rows)

    assert [pair.batch for pair in pairs if pair.has_one_batch] == ["256", "64"]
    assert len(pairs) == 2


def test_direct_pairs_of_one_batch_size_hide_those_of_different_ones() -> None:
    rows = [row(4.0, gpu="Tesla V100-SXM2-16GB", batch=64, precision=precision) for precision in ("amp", "fp32")] + [
        row(3.0, batch=64, precision="amp"),
        row(2.0, batch=256, precision="fp32"),
    ]
    pairs = direct_pairs(pairs_of(rows), "a100", "v100")

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
    assert len(pairs_of([slow, row(4.0 / 2.8, gpu="H200 SXM")])) == 1
    assert pairs_of([slow, row(4.0 / 2.9, gpu="H200 SXM")]) == ()
    assert pairs_of([mig, row(4.0 / 2, gpu="H200 SXM")]) == ()


def test_one_impossible_row_does_not_hide_the_pairs_of_the_others() -> None:
    speeds = {"A100-SXM4-40GB": 200.0, "H100 PCIe": 3.0, "Tesla V100-SXM2-16GB": 1.0, "A40": 1.4}
    rows = [row(4.0 / speed, gpu=gpu) for gpu, speed in speeds.items()]

    pairs = pairs_of(rows)

    assert {name for pair in pairs for name in (pair.accelerator, pair.reference)} == {
        "a40", "h100-pcie-80gb", "v100-sxm2-16gb"
    }  # fmt: skip
    assert len(pairs) == 2


def test_a_row_between_two_that_exclude_each_other_does_not_make_both_possible() -> None:
    """The bandwidths of an A40, an A100 and an H100 are 0.7, 1.6 and 2.0 TB/s."""
    gpus = {"A40": 1.0, "A100-SXM4-40GB": 4.0, "H100 PCIe": 16.0, "Tesla V100-SXM2-16GB": 3.0}
    rows = {gpu: row(16.0 / speed, gpu=gpu) for gpu, speed in gpus.items()}
    assert len(pairs_of([rows["A40"], rows["A100-SXM4-40GB"]])) == 1
    assert len(pairs_of([rows["A100-SXM4-40GB"], rows["H100 PCIe"]])) == 1
    assert pairs_of([rows["A40"], rows["H100 PCIe"]]) == ()

    pairs = pairs_of(rows.values())

    names = {name for pair in pairs for name in (pair.accelerator, pair.reference)}
    assert not {"a40", "h100-pcie-80gb"} <= names


def test_the_regime_of_a_pair_is_its_precision_or_that_it_measures_latencies() -> None:
    def regimes(*rows: Observation) -> set[str]:
        return {pair.regime for pair in pairs_of(rows)}

    def two(batch: int = 64, **settings: str) -> list[Observation]:
        gpus = {"A100-SXM4-40GB": 2.0, "Tesla V100-SXM2-16GB": 4.0}
        return [row(seconds, gpu=gpu, batch=batch, **settings) for gpu, seconds in gpus.items()]

    assert regimes(*two()) == regimes(*two(precision="fp32")) == {DEFAULT}
    assert regimes(*two(precision="amp")) == regimes(*two(precision="fp8")) == {SHORT}
    assert regimes(*inference(*two(batch=1))) == regimes(*inference(*two(batch=1, precision="amp"))) == {REQUESTS}
    assert regimes(*inference(*two(precision="amp"))) == {SHORT}


def test_each_precision_has_its_own_ratio_which_contains_its_own_pairs() -> None:
    """TF32 makes an A100 much faster in the default precision; in a short one, both have tensor cores."""
    gains = {"fp32": {"A100-SXM4-40GB": 5.0, "A40": 2.0}, "amp": {"A100-SXM4-40GB": 2.5, "A40": 1.2}}
    rows = [
        row((1.0 + number) / gains[precision].get(gpu, 1.0), gpu=gpu, task=task, precision=precision)
        for precision in gains
        for gpu in ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "A100-SXM4-40GB", "A40")
        for number, task in enumerate(TASKS)
    ]
    pairs = pairs_of(rows)

    ratios = accelerator_ratios(
        pairs, fit_ratios(pairs), accelerator="a100", reference="v100", tasks=[(task, "training") for task in TASKS]
    )

    assert [ratio.regime for ratio in ratios] == [DEFAULT, SHORT]
    for ratio, gain in zip(ratios, (5.0, 2.5), strict=True):
        assert ratio.speedup == pytest.approx(gain, rel=0.1)
        assert {pair.regime for pair in ratio.pairs} == {ratio.regime}
        assert all(ratio.low < math.exp(pair.mean) < ratio.high for pair in ratio.pairs)
    assert ratios[1].high < ratios[0].low


@pytest.mark.shipped
def test_the_shipped_ratio_of_an_a100_and_a_v100_contains_the_pairs_of_each_precision(
    shipped_pairs: tuple[AcceleratorPair, ...],
) -> None:
    """Mixed precision was published with 2.5 to 2.7, and the default precision, which is TF32, with 5.33."""
    tasks = [(task, "training") for task in ("bert_base", "bert_large", "bert", "transformer")]

    ratios = accelerator_ratios(
        shipped_pairs, shipped_ratio_variances(), accelerator="a100", reference="v100", tasks=tasks
    )

    assert [ratio.regime for ratio in ratios] == [DEFAULT, SHORT, MLPERF]
    assert ratios[0].low < 5.33 < ratios[0].high
    assert ratios[1].low < 2.5 < 2.7 < ratios[1].high
    assert ratios[1].speedup < 3 < ratios[0].speedup
    for ratio in ratios:
        assert sum(ratio.low < math.exp(pair.mean) < ratio.high for pair in ratio.pairs) >= 0.85 * len(ratio.pairs)


def test_a_larger_batch_explains_a_part_of_a_pair() -> None:
    """Each accelerator is twice as fast with eight times the batch: the pairs of one batch size say so."""
    rows = [
        row((1.0 + number) / speed * (batch / 512) ** (-1 / 3), gpu=gpu, task=task, batch=batch)
        for number, task in enumerate(TASKS)
        for gpu, speed in GPUS.items()
        for batch in [64 if gpu == "Tesla T4" or number % 2 else 512]
    ]
    pairs = pairs_of(rows)
    assert {pair.has_one_batch for pair in pairs} == {True, False}
    target = replace(pairs[0], accelerator="t4", reference="v100-sxm2-16gb", batch="64", reference_batch="64")

    means, _ = RatioModel(pairs, fit_ratios(pairs)).predict([target, replace(target, reference_batch="512")])

    assert math.exp(means[0]) == pytest.approx(0.4, rel=0.2)
    assert means[1] < means[0] - 0.2


def test_a_published_pair_is_predicted_and_listed() -> None:
    pairs = pairs_of(world())

    (ratio,) = compared(pairs, fit_ratios(pairs), "h100-pcie-80gb", "v100-sxm2-16gb", "resnet50")

    # The rows differ by up to 4 % from the ratio of speeds.
    assert 2.8 < ratio.speedup < 3.1
    assert 1 < ratio.high / ratio.low < 1.5
    assert len(ratio.pairs) == 1


def compared(
    pairs: Sequence[AcceleratorPair], variances: Mapping[str, float], one: str, other: str, task: str
) -> tuple[AcceleratorRatio, ...]:
    """Return the ratios of two accelerators in training."""
    return accelerator_ratios(pairs, variances, accelerator=one, reference=other, tasks=[(task, "training")])


def test_the_reverse_comparison_is_the_inverse() -> None:
    pairs = pairs_of(world())
    variances = fit_ratios(pairs)
    names = ("a40", "rtx3090")
    ((one,), (other,)) = (compared(pairs, variances, a, b, "vgg16") for a, b in (names, names[::-1]))
    assert one.speedup * other.speedup == pytest.approx(1)
    assert one.low * other.high == pytest.approx(1)


def test_the_order_of_pairs_changes_nothing() -> None:
    pairs = pairs_of(world())
    variances = fit_ratios(pairs)
    one, other = (compared(listed, variances, "a40", "rtx3090", "vgg16") for listed in (pairs, pairs[::-1]))
    assert [r.speedup for r in one] == pytest.approx([r.speedup for r in other])
    assert [r.low for r in one] == pytest.approx([r.low for r in other])


def test_an_accelerator_that_nobody_measured_is_less_certain_than_one_that_was() -> None:
    pairs = pairs_of(world())
    targets = [replace(pairs[0], accelerator=name, reference="v100-sxm2-16gb") for name in ("a100-sxm4-40gb", "a10")]
    means, covariances = RatioModel(pairs, fit_ratios(pairs)).predict(targets)
    assert np.isfinite(means).all()
    assert covariances[1, 1] > 2 * covariances[0, 0]


@pytest.mark.shipped
def test_an_unknown_publisher_counts_as_little_as_the_least_trusted_known_one(
    shipped_pairs: tuple[AcceleratorPair, ...],
) -> None:
    variances = shipped_ratio_variances()
    known = {name.removeprefix(f"{CONFIGURATION} "): v for name, v in variances.items() if CONFIGURATION in name}
    pair = replace(shipped_pairs[0], mean=0.5)

    def deviation(source: str) -> float:
        return float(RatioModel([replace(pair, source=source)], variances).predict([pair])[1][0, 0])

    least = max(known, key=lambda name: known[name])
    assert deviation("a/stranger") == pytest.approx(deviation(least))
    assert all(deviation("a/stranger") >= deviation(name) for name in known)


def test_a_row_far_from_the_others_counts_less() -> None:
    pairs = list(pairs_of(world()))
    variances = fit_ratios(pairs)
    wrong = replace(pairs[0], mean=pairs[0].mean + 2.0)
    (before,), (after,) = (
        RatioModel(listed, variances).predict([pairs[0]])[0] for listed in (pairs, [wrong, *pairs[1:]])
    )
    assert abs(after - before) < 0.2


def test_a_model_is_conditioned_on_a_limited_number_of_pairs_with_those_of_the_accelerators_first() -> None:
    pairs = [*pairs_of(world())] * 400
    wanted = [pair for pair in pairs if "a40" in (pair.accelerator, pair.reference)]

    chosen = selected(pairs, ["a40"])

    assert len(chosen) == MOST_PAIRS < len(pairs)
    assert chosen[: min(len(wanted), MOST_PAIRS)] == wanted[:MOST_PAIRS]
