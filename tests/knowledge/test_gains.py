"""The optimiser and the reports use the same numbers; limits to how much one more block may change them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.ratio import NORMAL_QUANTILE, RISK, Ratio
from knowledge.estimate.cases import cases_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gains import mixture
from knowledge.estimate.model_cache import shipped_variances
from knowledge.estimate.programs import program_of_run
from knowledge.estimate.workloads import Workload, one_indicator
from knowledge.evidence.contrasts import LARGEST_ERROR, Contrast, Side, machine_of
from tests.examples import examples
from tests.knowledge.contrasts import ELSEWHERE, HERE, LABEL, OTHER_MACHINE, contrast, estimator, old, side
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE

OFFERED = {
    "torch": ("2.9.0", "2.8.0", "2.7.1", "2.4.0"),
    "jax": ("0.9.0", "0.7.0"),
    "numpy": ("2.2.0", "1.26.4", "2.0.1"),
    "triton": ("3.5.0", "3.4.0", "2.1.0"),
    "mkl": ("2024.0.0", "2021.4.0", "2022.1.0"),
    "openblas": ("0.3.28", "0.3.21"),
}
CANDIDATES = {name: [Version(v) for v in listed] for name, listed in OFFERED.items()}
OF_OPERATIONS = shipped_variances("torch", "cpu", of_operations=True)
PAIR = Side(version="2.4.0", companions={}, settings={}), Side(version="2.9.0", companions={}, settings={})
OLD_AND_NEW = {"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}
Stack = dict[str, str]


def model(
    contrasts: Sequence[Contrast],
    workload: Workload = EVERY_OPERATION,
    hardware: HardwareProfile = MACHINE,
    own: Collection[str] = (),
) -> FrameworkModel:
    """Return the model of PyTorch."""
    fitted = estimator(contrasts, workload=workload, hardware=hardware, own=own).model("torch")
    assert fitted is not None
    return fitted


def gain_model(contrasts: Sequence[Contrast]) -> GainModel:
    """Return the model of PyTorch on processors, for single operations."""
    return GainModel(contrasts, lambda c: program_of_run(c.label, c.family), OF_OPERATIONS)


def versions(stack: Mapping[str, str]) -> dict[str, Version]:
    return {name: Version(version) for name, version in stack.items()}


def gain_over(fitted: FrameworkModel, stack: Mapping[str, Version], other: Mapping[str, Version]) -> Ratio:
    return mixture(list(fitted.gain_by_case(stack, other).values()))


def gain_of(contrasts: Sequence[Contrast], hardware: HardwareProfile = MACHINE) -> Ratio:
    """Return the gain of 2.4.0 over 2.9.0."""
    return gain_over(model(contrasts, hardware=hardware), *OLD_AND_NEW)


stacks = st.fixed_dictionaries(
    {name: st.sampled_from(OFFERED[name]) for name in ("torch", "jax")},
    optional={name: st.sampled_from(v) for name, v in OFFERED.items() if name not in ("torch", "jax")},
)
effects = st.floats(-0.7, 0.7)
errors = st.floats(0.005, LARGEST_ERROR)


@given(
    measured=st.lists(
        st.tuples(
            st.sampled_from(("torch", "jax")), stacks, stacks, effects, errors, st.sampled_from(("sort", "matmul"))
        ),
        min_size=1,
        max_size=8,
    ),
    stack=stacks,
    baseline=stacks,
)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_score_of_every_stack_agrees_with_its_printed_interval(
    measured: list[tuple[str, Stack, Stack, float, float, str]], stack: Stack, baseline: Stack
) -> None:
    def whole(name: str, of: Stack) -> Side:
        return side(of[name], {n: v for n, v in of.items() if n not in ("torch", "jax")})

    rows = [
        contrast(
            whole(name, one),
            whole(name, other),
            mean,
            error,
            block=f"b{number}",
            label=f"{indicator}@1[n=8] float32 {name}/cpu",
        )
        for number, (name, one, other, mean, error, indicator) in enumerate(measured)
    ]
    fitted = estimator(rows)

    terms = fitted.terms(CANDIDATES, versions(baseline))
    printed, back = (
        fitted.predict(versions(one), versions(other)) for one, other in ((stack, baseline), (baseline, stack))
    )

    deviation = math.log(printed.high / printed.low) / (2 * NORMAL_QUANTILE)
    expected = math.log(printed.speedup) - RISK / 2 * deviation**2
    assert printed.score == pytest.approx(expected, abs=1e-7)
    for versions_of_stack, gain in ((versions(stack), expected), (versions(baseline), 0)):
        assert sum(gains.gain(versions_of_stack).cautious for gains in terms) == pytest.approx(gain, abs=1e-7)
    assert (back.speedup, back.low) == pytest.approx((1 / printed.speedup, 1 / printed.high))


TWO_FRAMEWORKS = [
    contrast(side("2.4.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"}), 0.1, 0.03, block="b1"),
    contrast(side("0.7.0"), side("0.9.0"), 0.2, 0.03, block="b2", label="sort@1[n=8] float32 jax/cpu"),
]


def test_two_frameworks_share_the_time_of_a_workload() -> None:
    newest = {name: listed[0] for name, listed in CANDIDATES.items()}
    fitted = estimator(TWO_FRAMEWORKS)

    whole = fitted.predict({**newest, "torch": Version("2.4.0"), "jax": Version("0.7.0")}, newest)

    changes = {change.package: change for change in whole.changes}
    assert set(changes) == {"torch", "jax"}
    assert math.log(whole.speedup) == pytest.approx(sum(math.log(c.speedup) for c in changes.values()) / 2)
    widths = [math.log(c.high / c.low) for c in changes.values()]
    assert math.log(whole.high / whole.low) == pytest.approx(math.hypot(*widths) / 2)
    # 2.4.0 of PyTorch, 2.0.1 of NumPy with PyTorch, and 0.7.0 of JAX: any of them could seem faster by chance.
    terms = fitted.terms(CANDIDATES, newest)
    assert {gains.framework: gains.comparisons for gains in terms} == {"torch": 3, "jax": 3}


@given(
    before=st.lists(st.tuples(effects, errors, st.sampled_from(OFFERED["torch"][1:])), min_size=1, max_size=4),
    mean=st.floats(-1.5, 1.5),
    error=errors,
    hardware=st.sampled_from((MACHINE, OTHER_MACHINE)),
)
@settings(max_examples=examples(80), deadline=None)
def test_a_block_shifts_a_prediction_according_to_its_error(
    before: list[tuple[float, float, str]], mean: float, error: float, hardware: HardwareProfile
) -> None:
    contrasts = [old(*row, block=f"b{number}") for number, row in enumerate(before)]
    added = replace(old(mean, error, block="added"), machine=machine_of(hardware, "cpu"))

    was, now = (gain_of(rows, hardware=hardware) for rows in (contrasts, [*contrasts, added]))

    # The prediction moves towards the block, and not further than its value.
    assert min(was.mean, mean) - 1e-9 <= now.mean <= max(was.mean, mean) + 1e-9
    # The information of a measurement with an error is 1 / error^2, the maximum that the block can add.
    assert 1 / was.variance * (1 - 1e-9) <= 1 / now.variance <= (1 / was.variance + 1 / error**2) * (1 + 1e-9)
    # A normal posterior moves by at most var / (var + error^2) of the distance.
    warranted = was.variance / (was.variance + error**2) * abs(mean - was.mean)
    assert abs(now.mean - was.mean) <= warranted * (1 + 1e-9) + 1e-12


def test_shipped_sizes_count_regardless_of_the_knowledge_base() -> None:
    shipped = [f"sort@1[n={n}] float32 torch/cpu" for n in (8, 16)]
    own = ["sort@1[n=32] float32 torch/cpu", "sort@2[n=8] float32 torch/cpu", "fft@1[n=8] float32 torch/cpu"]
    rows = [old(0.1, 0.03, block=f"b{label in own}", label=label) for label in (*shipped, *own)]

    (case,) = cases_of(EVERY_OPERATION, rows, HERE, {"bTrue"})

    assert {program.label: share for share, program in case.programs[0]} == pytest.approx(
        {shipped[0]: 0.25, shipped[1]: 0.25, own[2]: 0.5}
    )


def test_an_own_size_counts_for_predictions_of_the_sizes_that_ship() -> None:
    shipped = old(0.0, 0.03, "2.8.0", block="shipped")
    own = old(math.log(1.2), 0.01, block="own", label="sort@1[n=512] float32 torch/cpu")

    prediction = estimator([shipped, own], own={"own"}).predict(*OLD_AND_NEW)

    assert 1.02 < prediction.speedup < 1.2
    assert prediction.changes[0].measured


@given(
    rows=st.lists(
        st.tuples(effects, errors, st.sampled_from(OFFERED["torch"][1:]), st.integers(8, 10)), min_size=2, max_size=5
    )
)
@settings(max_examples=examples(40), deadline=None)
def test_names_and_order_of_blocks_do_not_change_a_prediction(
    rows: list[tuple[float, float, str, int]],
) -> None:
    def predicted(names: Sequence[int], order: Sequence[int]) -> Ratio:
        blocks = [
            old(mean, error, version, block=f"b{name}", label=f"sort@1[n={n}] float32 torch/cpu")
            for name, (mean, error, version, n) in zip(names, rows, strict=True)
        ]
        return gain_of([blocks[number] for number in order])

    numbers = range(len(rows))
    usual, renamed, reordered = (
        predicted(*given) for given in ((numbers, numbers), (numbers[::-1], numbers), (numbers, numbers[::-1]))
    )

    for other in (renamed, reordered):
        assert (other.mean, other.variance) == pytest.approx((usual.mean, usual.variance), abs=1e-9)


@pytest.mark.parametrize("label", ["sort@1[n=99]", "sort@2[n=8]", "matmul@1[n=8]"])
def test_a_noisy_block_of_something_else_hardly_changes_a_prediction(label: str) -> None:
    quiet = old(math.log(0.5), 0.03)
    noisy = old(0.0, LARGEST_ERROR, block="own", label=f"{label} float32 torch/cpu")

    before, after = (
        gain_over(model(rows, one_indicator("sort"), own={"own"}), *OLD_AND_NEW) for rows in ([quiet], [quiet, noisy])
    )

    # Each block has a deviation of its own, which the noise of its rounds does not include.
    lasting = OF_OPERATIONS.label + OF_OPERATIONS.arm
    warranted = (quiet.error**2 + lasting) / (quiet.error**2 + noisy.error**2 + 2 * lasting)
    assert before.mean <= after.mean <= before.mean + warranted * abs(before.mean)
    assert 1 / before.variance <= 1 / after.variance <= 1 / before.variance + 1 / noisy.error**2


def test_a_block_of_this_machine_counts_more_than_one_of_another_machine() -> None:
    here = old(0.3, 0.03, block="here")
    there = replace(old(-0.3, 0.03, block="there"), machine=ELSEWHERE)

    gains = [gain_of([here, there], hardware=hardware).mean for hardware in (MACHINE, OTHER_MACHINE)]

    assert gains[0] > 0.05
    assert gains[1] == pytest.approx(-gains[0])


def test_predictions_do_not_depend_on_earlier_predictions() -> None:
    rows = [
        contrast(side("2.4.0", {"mkl": "2021.4.0"}), side("2.9.0", {"mkl": "2024.0.0"}), 0.1, 0.02),
        contrast(side("2.8.0", {"mkl": "2022.1.0"}), side("2.9.0", {"mkl": "2024.0.0"}), 0.05, 0.02, arm=2),
    ]
    asked = versions({"torch": "2.4.0", "mkl": "2021.4.0"}), versions({"torch": "2.9.0", "mkl": "2024.0.0"})

    fresh, used = model(rows), model(rows)
    used.gain_by_case(versions({"torch": "1.0.0", "mkl": "2018.0.0"}), versions({"torch": "9.0", "mkl": "2030.0"}))

    assert used.gain_by_case(*asked) == fresh.gain_by_case(*asked)


def test_an_older_definition_of_an_indicator_shares_only_what_all_indicators_share() -> None:
    def predicted(label: str) -> float:
        fitted = gain_model([old(0.5, 0.01, label=f"{label}[n=4] float32 torch/cpu")])
        (gain,) = fitted.predict([PAIR], [((1.0, program_of_run("sort@2[n=8] float32 torch/cpu", "sort")),)], HERE)
        return float(gain.means[0])

    assert predicted("sort@1") == pytest.approx(predicted("fft@1"))
    assert predicted("sort@2") > predicted("sort@1")


WITH_NUMPY = [
    contrast(side("2.4.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.1, 0.02),
    contrast(side("2.8.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.05, 0.02, arm=2),
    contrast(side("2.8.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"}), 0.15, 0.03, arm=3),
]


def test_with_one_companion_a_gain_is_that_of_the_whole_stacks() -> None:
    gain = gain_over(
        model(WITH_NUMPY),
        versions({"torch": "2.4.0", "numpy": "2.0.1"}),
        versions({"torch": "2.9.0", "numpy": "2.2.0"}),
    )

    pair = side("2.4.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"})
    (whole,) = gain_model(WITH_NUMPY).predict([pair], [((1.0, program_of_run(LABEL, "sort")),)], HERE)
    assert (gain.mean, gain.variance) == pytest.approx((whole.means[0], whole.variances[0]))


@pytest.mark.parametrize("baseline", [{"torch": "2.9.0", "numpy": "2.2.0"}, {"torch": "2.9.0"}])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_gains_of_framework_and_companion_are_those_of_the_whole_stacks(baseline: Stack, share: float) -> None:
    fitted = model(WITH_NUMPY)

    gains = fitted.gains(CANDIDATES, versions(baseline), share=share)

    def over(stack: dict[str, Version], other: dict[str, Version]) -> tuple[object, object]:
        gain = gain_over(fitted, stack, other)
        return pytest.approx(share * gain.mean, abs=1e-9), pytest.approx(share**2 * gain.variance, abs=1e-9)

    anchor = Version(baseline["torch"])
    stayed = {"numpy": Version(baseline["numpy"])} if "numpy" in baseline else {}
    for (framework, name, companion), gain in gains.with_companion.items():
        other_packages = {} if companion is None else {name: companion}
        both = {"torch": framework, **other_packages}
        assert (gain.joint.mean, gain.joint.variance) == over(both, {"torch": anchor, **stayed})
        assert (gain.framework.mean, gain.framework.variance) == over(both, {"torch": anchor, **other_packages})
        assert (gain.own.mean, gain.own.variance) == over(both, {"torch": framework, **stayed})


def test_every_measured_candidate_version_counts_as_a_comparison() -> None:
    measured = [
        contrast(side("2.4.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.3.0"}), 0.0, 0.1),
        contrast(side("2.6.0", {"numpy": "2.0.0"}), side("2.9.0", {"numpy": "2.3.0"}), 0.0, 0.1, block="other"),
    ]
    offered = {
        "torch": [Version("2.9.0"), Version("2.4.0"), Version("2.5.0")],
        "numpy": [Version("2.3.0"), Version("2.2.0"), Version("1.26.4")],
    }

    gains = model(measured).gains(offered, versions({"torch": "2.9.0", "numpy": "2.3.0"}), share=1.0)

    # Two versions of the framework, and the only measured candidate version of NumPy that is not the baseline's.
    assert gains.comparisons == 3


@pytest.mark.parametrize("others", [0.1, -0.3])
def test_a_choice_counts_the_gain_of_the_case_in_which_it_gains_least(others: float) -> None:
    new, before = Version("2.9.0"), {"torch": Version("2.4.0")}
    fast = replace(side("2.9.0"), settings={"allocator": "tcmalloc"})
    rows = [
        contrast(arm, side("2.9.0"), gain, 0.01, label=f"model@1[mode=training,model={name}] float32 torch/cpu")
        for name, gain in (("resnet50", 0.5), ("bert_base", others))
        for arm in (fast, side("2.4.0"))
    ]
    fitted = estimator(rows, workload=None)

    (of_settings,) = fitted.setting_gains({"torch": [new]}, {"torch": new})
    (of_versions,) = fitted.terms({"torch": [*before.values()]}, {"torch": new})
    score = fitted.predict(before, {"torch": new}).score

    kinds = fitted.model("torch")
    assert kinds is not None
    (by_setting,) = kinds.gains_of_settings({"torch": new}, [(new, fast.settings, {})])
    least_of_setting, least_of_version = (
        min(gain.cautious for gain in gains.values())
        for gains in (by_setting, kinds.gain_by_case(before, {"torch": new}))
    )
    assert len({case.workload for case in by_setting}) > 1
    assert of_settings.alone[new]["allocator", "tcmalloc"].cautious == pytest.approx(least_of_setting)
    assert of_versions.alone[before["torch"]].cautious == pytest.approx(least_of_version)
    assert score == pytest.approx(least_of_version)
