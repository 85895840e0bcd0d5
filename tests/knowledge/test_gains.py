"""The optimiser and the reports use the same numbers; limits to how much one more block may change them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from knowledge.estimate.evidence import LARGEST_ERROR, Contrast, Machine, Side
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.interface import NORMAL_QUANTILE, RISK, PredictedGain, ScoreTerms
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.time_shares import time_shares
from tests.examples import examples
from tests.knowledge.every_operation import EVERY_OPERATION

HERE = Machine(identity="here", name="zen4", kind="cpu zen4", family="cpu AuthenticAMD")
ELSEWHERE = Machine(identity="there", name="icelake", kind="cpu icelake", family="cpu GenuineIntel")
COMPANIONS = {
    "numpy": ("2.2.0", "1.26.4", "2.0.1"),
    "triton": ("3.5.0", "3.4.0", "2.1.0"),
    "mkl": ("2024.0.0", "2021.4.0", "2022.1.0"),
    "openblas": ("0.3.28", "0.3.21"),
}
FRAMEWORK = ("2.9.0", "2.8.0", "2.7.1", "2.4.0")
LABEL, OTHER_LABEL = "sort@1[n=8] float32 torch/cpu", "matmul@1[n=8] float32 torch/cpu"


def contrast(
    side: Side,
    reference: Side,
    mean: float,
    error: float,
    *,
    block: str = "b",
    label: str = LABEL,
    arm: int = 1,
    machine: Machine = HERE,
) -> Contrast:
    return Contrast(
        block=block,
        arm=arm,
        label=label,
        family=label.partition("@")[0],
        backend="torch",
        framework="torch",
        machine=machine,
        side=side,
        reference=reference,
        mean=mean,
        error=error,
        common=error / 2,
        low=mean - 2 * error,
        high=mean + 2 * error,
        rounds=6,
        is_control=False,
    )


def side(version: str, companions: Mapping[str, str] | None = None) -> Side:
    return Side(version=version, companions=dict(companions or {}), settings={})


def whole(stack: Mapping[str, str]) -> Side:
    return side(stack["torch"], {name: version for name, version in stack.items() if name != "torch"})


def model(contrasts: Sequence[Contrast], labels: Sequence[str] = (LABEL,), machine: Machine = HERE) -> FrameworkModel:
    process = GaussianProcess(contrasts, shipped_amplitudes("torch", "cpu"))
    return FrameworkModel(
        MeasuredFramework("torch", process, machine), {(la, la.partition("@")[0]): 1 / len(labels) for la in labels}
    )


stacks = st.builds(
    lambda framework, companions: {"torch": framework, **companions},
    st.sampled_from(FRAMEWORK),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(v) for name, v in COMPANIONS.items()}),
)


def versions(stack: Mapping[str, str]) -> dict[str, Version]:
    return {name: Version(version) for name, version in stack.items()}


@given(
    measured=st.lists(
        st.tuples(stacks, stacks, st.floats(-0.4, 0.4), st.floats(0.005, 0.2), st.sampled_from((LABEL, OTHER_LABEL))),
        min_size=1,
        max_size=8,
    ),
    stack=stacks,
    baseline=stacks,
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_score_of_every_stack_agrees_with_its_printed_interval(
    measured: list[tuple[dict[str, str], dict[str, str], float, float, str]],
    stack: dict[str, str],
    baseline: dict[str, str],
) -> None:
    contrasts = [
        contrast(whole(one), whole(other), mean, error, block=f"b{number}", label=label)
        for number, (one, other, mean, error, label) in enumerate(measured)
    ]
    fitted = model(contrasts, (LABEL, OTHER_LABEL))
    offered = {name: [Version(v) for v in listed] for name, listed in {"torch": FRAMEWORK, **COMPANIONS}.items()}

    terms = ScoreTerms(frameworks=(fitted.gains(offered, versions(baseline), share=1.0),))
    printed = fitted.change(versions(stack), versions(baseline), fitted.gain(versions(stack), versions(baseline)))

    deviation = math.log(printed.high / printed.low) / (2 * NORMAL_QUANTILE)
    assert terms.score(versions(stack)) == pytest.approx(math.log(printed.speedup) - RISK / 2 * deviation**2, abs=1e-7)


def gain_of(contrasts: Sequence[Contrast], machine: Machine) -> PredictedGain:
    return model(contrasts, machine=machine).gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")})


@given(
    before=st.lists(
        st.tuples(st.sampled_from(FRAMEWORK[1:]), st.floats(-0.7, 0.7), st.floats(0.01, LARGEST_ERROR)),
        min_size=1,
        max_size=4,
    ),
    mean=st.floats(-1.5, 1.5),
    error=st.floats(0.005, LARGEST_ERROR),
    machine=st.sampled_from((HERE, ELSEWHERE)),
)
@settings(max_examples=examples(80), deadline=None)
def test_a_block_shifts_a_prediction_according_to_its_error(
    before: list[tuple[str, float, float]], mean: float, error: float, machine: Machine
) -> None:
    contrasts = [
        contrast(side(version), side("2.9.0"), value, e, block=f"b{i}") for i, (version, value, e) in enumerate(before)
    ]
    added = contrast(side("2.4.0"), side("2.9.0"), mean, error, block="added", machine=machine)

    was, now = gain_of(contrasts, machine), gain_of([*contrasts, added], machine)

    # The prediction moves towards the block, and not further than its value.
    assert min(was.mean, mean) - 1e-9 <= now.mean <= max(was.mean, mean) + 1e-9
    # The information of a measurement with an error is 1 / error^2, the maximum that the block can add.
    assert 1 / now.variance <= (1 / was.variance + 1 / error**2) * (1 + 1e-9)
    # A normal posterior moves by at most var / (var + error^2) of the distance.
    warranted = was.variance / (was.variance + error**2) * abs(mean - was.mean)
    assert abs(now.mean - was.mean) <= warranted * (1 + 1e-9) + 1e-12


SIZES = [f"{name}[n={n}] float32 torch/cpu" for name in ("sort@1", "sort@2", "matmul@1") for n in (8, 16, 32)]
SORTS = [label for label in SIZES if label.startswith("sort")]
NOTHING_SHIPS = shipped_amplitudes("nothing", "cpu")


def test_a_framework_without_shipped_observations_has_no_scales() -> None:
    assert not NOTHING_SHIPS.scales


@given(
    earlier=st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    added=st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    shipped=st.sets(st.sampled_from(SIZES), min_size=1, max_size=4),
)
@settings(max_examples=examples(100), deadline=None)
def test_shipped_sizes_count_regardless_of_the_knowledge_base(
    earlier: list[str], added: list[str], shipped: set[str]
) -> None:
    amplitudes = replace(NOTHING_SHIPS, scales=dict.fromkeys(shipped, 1.0))
    stored = [contrast(side("2.4.0"), side("2.9.0"), 0.1, 0.03, block="b1", label=label) for label in earlier]
    more = [contrast(side("2.4.0"), side("2.9.0"), 0.1, 0.03, block="b2", label=label) for label in added]

    was, now = (time_shares(rows, EVERY_OPERATION, amplitudes, HERE).shares for rows in (stored, [*stored, *more]))

    for family in {family for _, family in was}:
        of_family = {label for label in shipped if label.startswith(f"{family}@")}
        for shares in (was, now):
            if of_family:
                assert {label for label, other in shares if other == family} == of_family
        before, after = (sum(v for (_, f), v in shares.items() if f == family) for shares in (was, now))
        for key in (key for key in was if key[1] == family and of_family):
            assert now[key] / after == pytest.approx(was[key] / before)
    assert sum(now.values()) == pytest.approx(1)


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
measured_sorts = st.tuples(
    names, st.sampled_from(SORTS), st.floats(-0.7, 0.7), st.floats(0.005, LARGEST_ERROR), st.sampled_from(FRAMEWORK[1:])
)


def as_contrast(row: tuple[str, str, float, float, str], block: str) -> Contrast:
    _, label, mean, error, version = row
    return contrast(side(version), side("2.9.0"), mean, error, block=block, label=label)


def gain_of_workload(contrasts: Sequence[Contrast]) -> PredictedGain:
    process = GaussianProcess(contrasts, NOTHING_SHIPS)
    fitted = FrameworkModel(
        MeasuredFramework("torch", process, HERE), time_shares(contrasts, EVERY_OPERATION, NOTHING_SHIPS, HERE).shares
    )
    return fitted.gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")})


@given(rows=st.lists(measured_sorts, min_size=2, max_size=5, unique_by=lambda row: row[0]))
@settings(max_examples=examples(40), deadline=None)
def test_names_of_blocks_do_not_change_a_prediction(rows: list[tuple[str, str, float, float, str]]) -> None:
    by_name = sorted(row[0] for row in rows)

    gains = [
        gain_of_workload([as_contrast(row, name) for row, name in zip(rows, order, strict=True)])
        for order in (by_name, by_name[::-1])
    ]

    assert gains[0].mean == pytest.approx(gains[1].mean, abs=1e-9)
    assert gains[0].variance == pytest.approx(gains[1].variance)


@given(
    before=st.lists(measured_sorts, min_size=1, max_size=4, unique_by=lambda row: row[0]),
    name=names,
    label=st.sampled_from(SORTS),
    mean=st.floats(-1.5, 1.5),
    error=st.floats(0.005, LARGEST_ERROR),
)
@settings(max_examples=examples(80), deadline=None)
def test_adding_a_block_never_lowers_precision(
    before: list[tuple[str, str, float, float, str]], name: str, label: str, mean: float, error: float
) -> None:
    contrasts = [as_contrast((*row[:4], "2.4.0"), row[0]) for row in before]
    added = contrast(side("2.4.0"), side("2.9.0"), mean, error, block=f"{name} ", label=label)

    for part in {(row.label, row.family) for row in contrasts}:
        was, now = (
            FrameworkModel(MeasuredFramework("torch", GaussianProcess(rows, NOTHING_SHIPS), HERE), {part: 1.0}).gain(
                {"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}
            )
            for rows in (contrasts, [*contrasts, added])
        )
        assert now.variance <= was.variance * (1 + 1e-9)
    # A part that becomes slower has a larger share of the time: if it is the less precise one, precision may fall.
    was, now = gain_of_workload(contrasts), gain_of_workload([*contrasts, added])
    assert now.variance <= was.variance * 1.5
    # A block adds its information; if all are noisy, a mix of sizes also varies less than one size.
    assert 1 / now.variance <= 2 / was.variance + 1 / error**2


@pytest.mark.parametrize("name", ["20260901", "20261230"])
@pytest.mark.parametrize("label", ["sort@1[n=99] float32 torch/cpu", "sort@2[n=8] float32 torch/cpu"])
def test_a_noisy_block_of_another_size_or_definition_hardly_changes_a_prediction(label: str, name: str) -> None:
    quiet = contrast(side("2.4.0"), side("2.9.0"), math.log(0.5), 0.03, block="20261201")
    noisy = contrast(side("2.4.0"), side("2.9.0"), 0.0, LARGEST_ERROR, block=name, label=label)

    was, now = gain_of_workload([quiet]), gain_of_workload([quiet, noisy])

    # Each block has a deviation of its own, which the noise of its rounds does not include.
    lasting = NOTHING_SHIPS.label + NOTHING_SHIPS.arm
    warranted = (quiet.error**2 + lasting) / (quiet.error**2 + noisy.error**2 + 2 * lasting)
    assert was.mean <= now.mean <= was.mean + warranted * abs(was.mean)
    # A mix of sizes varies slightly less from version to version than one size.
    assert 1 / was.variance <= 1 / now.variance <= 1 / was.variance + 2 / noisy.error**2


def test_many_imprecise_contrasts_do_not_outweigh_one_precise_contrast() -> None:
    quiet = contrast(side("2.4.0"), side("2.9.0"), math.log(0.5), 0.03, block="b1", label=SORTS[0])
    noisy = [
        contrast(side(f"2.{minor}.0"), side("2.9.0"), 0.0, LARGEST_ERROR, block="b2", label=SORTS[1], arm=minor)
        for minor in range(1, 9)
    ]

    shares = time_shares([quiet, *noisy], EVERY_OPERATION, NOTHING_SHIPS, HERE).shares

    assert shares[SORTS[1], "sort"] < 0.02


def test_blocks_of_this_machine_count_more_than_blocks_of_other_machines() -> None:
    rows = [
        contrast(side("2.4.0"), side("2.9.0"), 0.1, 0.03, block=machine.name, label=label, machine=machine)
        for label, machine in zip(SORTS[:2], (HERE, ELSEWHERE), strict=True)
    ]

    here, there = (time_shares(rows, EVERY_OPERATION, NOTHING_SHIPS, machine).shares for machine in (HERE, ELSEWHERE))

    assert here[SORTS[0], "sort"] > 0.7
    assert there[SORTS[0], "sort"] == pytest.approx(1 - here[SORTS[0], "sort"])


def test_a_noisy_block_of_other_indicators_hardly_changes_a_prediction() -> None:
    quiet = [contrast(side("2.4.0"), side("2.9.0"), math.log(0.5), 0.03)]
    busy = [
        contrast(
            side("2.4.0"), side("2.9.0"), value, LARGEST_ERROR, block="busy", label=f"matmul@1[n={n}] float32 torch/cpu"
        )
        for n, value in enumerate((1.2, -0.9, 0.8))
    ]

    was, now = gain_of(quiet, HERE), gain_of([*quiet, *busy], HERE)

    assert now.mean == pytest.approx(was.mean, abs=0.02)
    assert now.variance == pytest.approx(was.variance, rel=0.1)


def test_predictions_do_not_depend_on_earlier_predictions() -> None:
    rows = [
        contrast(side("2.4.0", {"mkl": "2021.4.0"}), side("2.9.0", {"mkl": "2024.0.0"}), 0.1, 0.02),
        contrast(side("2.8.0", {"mkl": "2022.1.0"}), side("2.9.0", {"mkl": "2024.0.0"}), 0.05, 0.02, arm=2),
    ]
    stacks = versions({"torch": "2.4.0", "mkl": "2021.4.0"}), versions({"torch": "2.9.0", "mkl": "2024.0.0"})

    fresh, used = model(rows), model(rows)
    used.gain(versions({"torch": "1.0.0", "mkl": "2018.0.0"}), versions({"torch": "9.0", "mkl": "2030.0"}))

    assert used.gain(*stacks) == fresh.gain(*stacks)


def test_an_older_definition_of_an_indicator_shares_only_what_all_indicators_share() -> None:
    old = replace(contrast(side("2.4.0"), side("2.9.0"), 0.5, 0.01), label="sort@1[n=4] float32 torch/cpu")
    same = replace(old, label="sort@2[n=4] float32 torch/cpu")
    label = "sort@2[n=8] float32 torch/cpu"

    def predicted(evidence: Contrast) -> float:
        return model([evidence], [label]).gain({"torch": Version("2.4.0")}, {"torch": Version("2.9.0")}).mean

    other = replace(old, label="fft@1[n=4] float32 torch/cpu", family="fft")
    assert predicted(old) == pytest.approx(predicted(other))
    assert predicted(same) > predicted(old)


def test_with_one_companion_a_gain_is_the_posterior_of_the_whole_stacks() -> None:
    rows = [
        contrast(side("2.4.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.1, 0.02),
        contrast(side("2.8.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.05, 0.02, arm=2),
        contrast(side("2.8.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"}), 0.15, 0.03, arm=3),
    ]
    fitted = model(rows)

    gain = fitted.gain(versions({"torch": "2.4.0", "numpy": "2.0.1"}), versions({"torch": "2.9.0", "numpy": "2.2.0"}))

    process = GaussianProcess(rows, shipped_amplitudes("torch", "cpu"))
    whole = [side("2.4.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"})]
    exact = process.posterior(whole, [(LABEL, "sort")], HERE).sums(np.ones((2, 1)), 1)
    assert gain.mean == pytest.approx(exact.mean[0])
    assert gain.variance == pytest.approx(process.amplitudes.widening**2 * exact.variances([0], [1])[0])


@pytest.mark.parametrize("baseline", [{"torch": "2.9.0", "numpy": "2.2.0"}, {"torch": "2.9.0"}])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_gains_of_framework_and_companion_are_those_of_the_whole_stacks(baseline: dict[str, str], share: float) -> None:
    rows = [
        contrast(side("2.4.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.1, 0.02),
        contrast(side("2.8.0", {"numpy": "1.26.4"}), side("2.9.0", {"numpy": "2.2.0"}), 0.05, 0.02, arm=2),
        contrast(side("2.8.0", {"numpy": "2.0.1"}), side("2.9.0", {"numpy": "2.2.0"}), 0.15, 0.03, arm=3),
    ]
    fitted = model(rows)
    offered = {name: [Version(v) for v in listed] for name, listed in {"torch": FRAMEWORK, **COMPANIONS}.items()}

    gains = fitted.gains(offered, versions(baseline), share=share)

    def over(stack: dict[str, Version], other: dict[str, Version]) -> tuple[object, object]:
        gain = fitted.gain(stack, other)
        return pytest.approx(share * gain.mean, abs=1e-9), pytest.approx(share**2 * gain.variance, abs=1e-9)

    anchor = Version(baseline["torch"])
    for (framework, name, companion), gain in gains.with_companion.items():
        other_packages = {} if companion is None else {name: companion}
        stayed = {"numpy": Version(baseline["numpy"])} if "numpy" in baseline else {}
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
    baseline = {"torch": Version("2.9.0"), "numpy": Version("2.3.0")}

    gains = model(measured).gains(offered, baseline, share=1.0)

    # Two versions of the framework, and the only measured candidate version of NumPy that is not the baseline's.
    assert gains.comparisons == 3
