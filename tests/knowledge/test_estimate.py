from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from packaging.version import Version

from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compare import compare_block
from knowledge.estimate.fits import Fits
from knowledge.estimate.posterior import PosteriorEstimator
from knowledge.estimate.workloads import find_workload, workload_catalogue
from knowledge.store.engine import open_knowledge_base
from pi_runners.backends import BACKENDS
from pi_runners.indicators import INDICATORS
from tests.knowledge.samples import MACHINE, block, observation


def estimator(observations: Iterable[Observation], hardware: HardwareProfile = MACHINE) -> PosteriorEstimator:
    store = open_knowledge_base("sqlite://", shipped=False)
    store.add(observations)
    return PosteriorEstimator(
        Fits(store), hardware=hardware, workload=find_workload("equal"), frameworks=("numpy", "torch")
    )


def test_drift_of_the_machine_leaves_paired_ratios_alone() -> None:
    steady = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.2}))
    drifting = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.2}, drift=0.5))

    assert steady[0].mean == pytest.approx(math.log(1.2), abs=0.01)
    assert drifting[0].mean == pytest.approx(steady[0].mean, abs=0.01)
    assert drifting[0].significant


def test_a_stack_compared_with_itself_is_a_twin_and_not_significant() -> None:
    rows = [*block({"2.0.0": 1.0, "1.26.4": 1.2})]
    again = [replace(o, slot=2, reference=False) for o in rows if o.slot == 0]
    again = [replace(o, samples=tuple(s * (1.01 - 0.004 * o.round) for s in o.samples)) for o in again]

    twin = next(c for c in compare_block(rows + again) if c.slot == 2)

    assert twin.twin
    assert not twin.significant


def test_more_comparisons_widen_every_interval() -> None:
    few = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}))[0]
    many = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.0, "1.24.0": 1.0, "1.23.0": 1.0}))

    same = next(c for c in many if c.slot == 1)
    assert same.high - same.low > few.high - few.low


def test_failed_observations_are_not_compared() -> None:
    assert compare_block([observation(status="crashed"), observation(reference=True)]) == ()


def test_a_measured_gain_is_predicted_but_shrunk() -> None:
    found = estimator(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    prediction = found.predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})

    assert 1.02 < prediction.speedup < 1.2
    assert prediction.low < prediction.speedup < prediction.high
    assert prediction.changes[0].measured
    assert prediction.changes[0].evidence[0].reference == "2.0.0"


def test_an_unmeasured_version_is_uncertain_not_zero() -> None:
    found = estimator(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    near = found.predict({"numpy": Version("1.26.3")}, {"numpy": Version("2.0.0")}).changes[0]
    far = found.predict({"numpy": Version("1.10.0")}, {"numpy": Version("2.0.0")}).changes[0]

    assert not near.measured
    assert near.speedup > far.speedup
    assert far.high / far.low > near.high / near.low > 1


def test_a_faster_version_scores_higher_and_moving_into_the_unknown_costs() -> None:
    terms = estimator(block({"2.0.0": 1.0, "1.26.4": 1.3})).terms(
        {"numpy": [Version("2.0.0"), Version("1.26.4"), Version("1.5.0")], "other": [Version("1")]},
        {"numpy": Version("2.0.0")},
    )

    assert terms.unary["numpy", Version("2.0.0")] == 0


def test_an_unmeasured_newest_version_is_not_left_for_a_measured_one() -> None:
    found = estimator(block({"2.0.0": 1.0, "1.26.4": 0.9}))

    terms = found.terms({"numpy": [Version("2.5.0"), Version("2.0.0")]}, {"numpy": Version("2.5.0")})

    assert terms.unary["numpy", Version("2.0.0")] < 0.01


def test_scores_order_versions_by_their_gain() -> None:
    terms = estimator(block({"2.0.0": 1.0, "1.26.4": 1.3})).terms(
        {"numpy": [Version("2.0.0"), Version("1.26.4")], "other": [Version("1")]}, {"numpy": Version("2.0.0")}
    )

    assert terms.unary["numpy", Version("1.26.4")] > terms.unary["numpy", Version("2.0.0")]
    assert ("other", Version("1")) not in terms.unary


def test_a_twin_finds_out_an_unlucky_reference() -> None:
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.1}))
    twin = [replace(o, slot=9, samples=tuple(s / 1.1 for s in o.samples), reference=False) for o in rows if o.slot == 0]
    asked = {"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")}

    without, with_twin = estimator(rows).predict(*asked), estimator(rows + twin).predict(*asked)

    assert without.speedup > 1.05
    assert with_twin.speedup < 1 + (without.speedup - 1) / 2


def test_a_framework_with_one_measured_version_is_unmeasured() -> None:
    rows = list(block({"2.0.0": 1.0}))
    twin = [replace(o, slot=1, reference=False) for o in rows]

    assert estimator(rows + twin).predict({"numpy": Version("2.0.0")}, {}).unmeasured == ("numpy",)


def test_other_hardware_counts_less() -> None:
    elsewhere = replace(MACHINE, cpu=replace(MACHINE.cpu, microarchitecture="skylake_avx512", vendor="GenuineIntel"))
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    here = estimator(rows).predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})
    there = estimator(rows, elsewhere).predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})

    assert 1 <= there.speedup < here.speedup


def test_cpu_observations_say_nothing_of_a_gpu_framework() -> None:
    gpu = replace(MACHINE, accelerators=(Accelerator(vendor="nvidia", model="x", compute_capability="9.0"),))

    prediction = estimator([], gpu).predict({"torch": Version("2.8")}, {"torch": Version("2.9")})

    assert prediction.speedup == 1
    assert prediction.unmeasured == ("torch",)


def test_a_version_that_did_not_run_here_is_a_known_failure() -> None:
    found = estimator([observation("2.1.0", status="import-error")])

    assert "import-error" in found.failures("numpy")["2.1.0"]


def test_an_error_of_our_own_harness_is_no_known_failure_of_a_version() -> None:
    found = estimator([observation("2.1.0", status="harness-error")])

    assert found.failures("numpy") == {}


def test_one_failed_round_among_good_ones_is_no_known_failure() -> None:
    found = estimator([observation("2.1.0", round=0), observation("2.1.0", round=1, status="timed-out")])

    assert found.failures("numpy") == {}


def test_the_weights_of_every_workload_sum_to_one() -> None:
    for workload in workload_catalogue().values():
        assert sum(workload.weights.values()) == pytest.approx(1)
        assert set(workload.weights) <= set(INDICATORS)
        assert set(workload.backends) <= set(BACKENDS)
