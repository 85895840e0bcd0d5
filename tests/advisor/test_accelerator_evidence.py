"""What commands say about accelerators, from the published measurements that ship."""

from __future__ import annotations

import json
import math
import re

import pytest

from advisor.report.advice.settings import setting_lines
from knowledge.estimate.setting_effect import MeasurementSource, SettingEffect
from tests.advisor.factories import ratio_of
from tests.advisor.inputs import is_error
from tests.conftest import Advisor


def effect(
    speedup: float, low: float, high: float, *, workload: str = "cnn-training", same: bool = True
) -> SettingEffect:
    """Return the effect of mixed precision."""
    return SettingEffect(
        package="torch",
        setting="amp=float16",
        measured_as="precision=amp",
        over="precision=tf32",
        workload=workload,
        ratio=ratio_of(speedup, low, high),
        sources=(
            MeasurementSource(name="someone/benchmarks", pairs=2, first_year=2020, last_year=2023),
            MeasurementSource(name="others/tables", pairs=1, first_year=2021, last_year=2021),
        ),
        same_tasks=True,
        accelerator_pairs=3 if same else 0,
    )


def test_a_report_names_clear_effects_with_their_sources_and_the_largest_kinds_first() -> None:
    kinds = {"a": 1.2, "b": 2.2, "c": 3.2, "d": 4.2}
    effects = [effect(speedup, speedup / 1.05, speedup * 1.05, workload=name) for name, speedup in kinds.items()]

    line, note = setting_lines(effects)

    assert line.startswith(
        "depends on the workload: `amp=float16` (measured as `precision=amp`) over `tf32` in torch, times as fast: "
        "4.20 [4.00, 4.41] for `d` (3 pairs), "
    )
    assert "`a`" not in line
    assert "1 other kind" in line
    assert line.endswith(
        "; someone/benchmarks (published until 2023), others/tables (published until 2021); reduced precision"
    )
    assert "without TF32 unless it is allowed" in note


def test_a_report_says_where_there_is_no_clear_effect_and_where_the_accelerator_was_not_measured() -> None:
    unclear, elsewhere = effect(1.2, 0.8, 1.7), effect(1.5, 1.2, 1.9, same=False)

    assert next(setting_lines([unclear])) == "no clear effect: `amp=float16` in torch"
    assert "(3 pairs, none on such hardware)" in next(setting_lines([elsewhere]))
    assert list(setting_lines([])) == []


@pytest.mark.shipped
def test_two_accelerators_are_compared_with_the_published_pairs(advisor_here: Advisor) -> None:
    arguments = ("hardware", "compare", "h100", "a100", "--workload", "resnet50-training")
    text = advisor_here(*arguments).stdout
    document = json.loads(advisor_here(*arguments, "--format", "json").stdout)

    ratios = {ratio["regime"]: ratio for ratio in document["ratios"]}
    for words, regime in (("the default precision", "default"), ("a short precision", "short")):
        match = re.search(rf"^speed +(\S+) times as fast \[(\S+), (\S+)\] in {words} ", text, re.MULTILINE)
        assert match is not None
        speedup, low, high = map(float, match.groups())
        assert 0.8 < low < speedup < high < 8
        assert 1.5 < speedup < 4
        assert ratios[regime]["ratio"] == pytest.approx(speedup, abs=0.006)
        assert ratios[regime]["pairs"]
        assert {pair["regime"] for pair in ratios[regime]["pairs"]} == {regime}
        assert all("h100" in p["accelerator"] and "a100" in p["reference"] for p in ratios[regime]["pairs"])
    assert "lambdal/deeplearning-benchmark" in text


@pytest.mark.shipped
def test_without_a_chain_of_published_pairs_there_is_only_a_bound_from_peak_rates(advisor_here: Advisor) -> None:
    arguments = ("hardware", "compare", "mi300x", "h100-sxm5-80gb", "--workload", "transformer-training")
    text = " ".join(advisor_here(*arguments).stdout.split())
    document = json.loads(advisor_here(*arguments, "--format", "json").stdout)

    assert "speed not known: no published measurement connects the two" in text
    assert document["ratios"] == []
    low, high = document["bound_from_peak_rates"]
    # 163.4 and 66.9 TFLOPS in float32, 1307 and 989 in 16-bit floats, 5.3 and 3.35 TB/s.
    assert low == pytest.approx(1.32, abs=0.03)
    assert high == pytest.approx(2.44, abs=0.05)
    assert f"between {low:.2f} and {high:.2f} times as fast, if only peak rates decide" in text


@pytest.mark.shipped
def test_batch_sizes_are_shown_and_different_ones_are_marked(advisor_here: Advisor) -> None:
    arguments = ("hardware", "compare", "a100", "v100", "--workload", "resnet50-training")
    text = advisor_here(*arguments).stdout
    document = json.loads(advisor_here(*arguments, "--format", "json").stdout)

    (pairs,) = (ratio["pairs"] for ratio in document["ratios"] if ratio["regime"] == "short")
    rows = [line for line in text.partition("in a short precision")[2].splitlines() if " x " in line]
    different = [p["batch"] != p["reference_batch"] for p in pairs]
    assert sorted(different) == different
    assert {True, False} == set(different)
    for pair, row in zip(pairs[:6], rows, strict=False):
        sizes = dict.fromkeys((pair["batch"] or "not stated", pair["reference_batch"] or "not stated"))
        assert row.endswith(f", batch {' against '.join(sizes)}")
    assert "pairs with different batch sizes were published without a common one" in text


@pytest.mark.shipped
@pytest.mark.parametrize("workload", ["resnet50-training", "transformer-training"])
def test_an_accelerator_with_more_bandwidth_only_is_not_much_faster(advisor_here: Advisor, workload: str) -> None:
    result = advisor_here("hardware", "compare", "h200", "h100", "--workload", workload, "--format", "json")
    document = json.loads(result.stdout)

    # 4.8 and 3.35 TB/s, with the same peak rates.
    assert document["ratios"]
    for ratio in document["ratios"]:
        assert 1 < ratio["ratio"] < 1.6
        assert all(math.exp(pair["mean"]) < 2 * 4.8 / 3.35 for pair in ratio["pairs"])


@pytest.mark.shipped
@pytest.mark.parametrize(
    ("arguments", "reason", "hint"),
    [
        (("h100", "a1000000", "--workload", "resnet50-training"), "there is no accelerator `a1000000`", "`a"),
        (("h100", "a100", "--workload", "numeric"), "nothing was published for workload `numeric`", "workload"),
        (("h100", "a100", "--workload", "juggling"), "juggling", ""),
        (("h100", "apple-m2", "--workload", "resnet50-training"), "Apple M2", ""),
        (
            ("A100 MIG 1g.5gb", "t4", "--workload", "resnet50-training"),
            "`A100 MIG 1g.5gb` is a part of a GPU",
            "compare the whole GPU, `a100`",
        ),
        (("t4", "A10-24A", "--workload", "resnet50-training"), "`A10-24A` is a part of a GPU", "`a10`"),
        (
            ("Standard_NV6ads_A10_v5", "t4", "--workload", "resnet50-training"),
            "`Standard_NV6ads_A10_v5` is a part of a GPU",
            "`a10`",
        ),
    ],
)
def test_a_comparison_of_unknown_things_is_one_message(
    advisor_here: Advisor, arguments: tuple[str, ...], reason: str, hint: str
) -> None:
    result = advisor_here("hardware", "compare", *arguments)

    assert result.returncode == 2
    assert reason in result.stderr
    assert hint in result.stderr
    assert is_error(result.stderr)


@pytest.mark.shipped
def test_versions_on_an_accelerator_are_estimated_from_published_pairs(advisor_here: Advisor) -> None:
    stacks = ("--stack", "torch==2.3.0", "--against", "torch==1.13.0")
    result = advisor_here("knowledge", "estimate", *stacks, "--hardware", "h100", "--workload", "resnet50-training")

    assert "torch==2.3.0 against torch==1.13.0, on NVIDIA H100" in result.stdout
    assert "both measured" in result.stdout
    assert "published/lambdal/deeplearning-benchmark" in result.stdout
