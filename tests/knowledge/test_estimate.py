from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from packaging.version import Version
from scipy.special import stdtrit

from knowledge.domain.frameworks import frameworks
from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.domain.ratio import Ratio
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.estimate.workloads import workload_catalogue
from knowledge.evidence.block_evidence import evidence_of
from knowledge.evidence.compare import compare_block
from knowledge.evidence.contrasts import machine_of
from knowledge.store.engine import open_knowledge_base
from pi_runners.indicators import INDICATORS
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, block, observation


def estimator(observations: Iterable[Observation], hardware: HardwareProfile = MACHINE) -> WorkloadEstimator:
    store = open_knowledge_base("sqlite://", shipped=False)
    store.add(observations)
    return WorkloadEstimator(
        ModelCache(store), hardware=hardware, workload=EVERY_OPERATION, frameworks=("numpy", "torch")
    )


def test_drift_of_the_machine_does_not_change_paired_ratios() -> None:
    steady = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.2}))
    drifting = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.2}, drift=0.5))

    assert steady[0].ratio.mean == pytest.approx(math.log(1.2), abs=0.01)
    assert drifting[0].ratio.mean == pytest.approx(steady[0].ratio.mean, abs=0.01)
    assert drifting[0].significant


def test_a_stack_compared_with_itself_is_a_control_and_not_significant() -> None:
    rows = [*block({"2.0.0": 1.0, "1.26.4": 1.2})]
    again = [replace(o, arm=2, reference=False) for o in rows if o.arm == 0]
    again = [replace(o, samples=tuple(s * (1.01 - 0.004 * o.round) for s in o.samples)) for o in again]

    control = next(c for c in compare_block(rows + again) if c.arm == 2)

    assert control.is_control
    assert not control.significant


def test_intervals_are_widened_for_the_number_of_comparisons() -> None:
    few = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}))[0]
    many = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.0, "1.24.0": 1.0, "1.23.0": 1.0}))

    same = next(c for c in many if c.arm == 1)
    for comparison, count in ((few, 1), (same, 4)):
        half = comparison.ratio.deviation * stdtrit(comparison.degrees, 1 - 0.05 / count / 2)
        assert math.log(comparison.high / comparison.speedup) == pytest.approx(half)
        assert math.log(comparison.speedup / comparison.low) == pytest.approx(half)


def disturbed(ratios: dict[str, float], slowed: dict[tuple[int, int], float], rounds: int) -> list[Observation]:
    """Return a block in which some processes, by round and arm, are slower by a factor."""
    return [
        replace(o, samples=tuple(s * slowed.get((o.round, o.arm), 1.0) for s in o.samples))
        for o in block(ratios, rounds=rounds)
    ]


def test_a_disturbed_round_does_not_move_the_ratio() -> None:
    quiet = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}, rounds=8))[0]
    busy = compare_block(disturbed({"2.0.0": 1.0, "1.26.4": 1.1}, {(2, 0): 30.0, (5, 1): 4.0}, 8))[0]

    assert busy.speedup == pytest.approx(quiet.speedup, abs=0.005)
    assert busy.conclusive
    assert busy.significant


def test_three_rounds_of_a_busy_machine_are_inconclusive() -> None:
    comparison = compare_block(disturbed({"2.0.0": 1.0, "1.26.4": 0.5}, {(0, 0): 40.0, (2, 1): 3.0}, 3))[0]

    assert not comparison.conclusive
    assert not comparison.significant
    # The estimate agrees with the medians of the rounds; a mean would report it as faster.
    assert comparison.ratio.mean == pytest.approx(math.log(0.5), abs=0.02)


def test_drift_does_not_make_a_result_inconclusive() -> None:
    generator = random.Random(5)
    rows = []
    for number in range(60):
        drift = generator.gauss(0, 0.1)
        for arm, version in enumerate(("2.0.0", "1.26.4")):
            seconds = math.exp(drift + generator.gauss(0, 0.005) - 0.02 * arm)
            rows.append(observation(version, seconds=seconds, round=number, arm=arm, reference=arm == 0))

    (comparison,) = compare_block(rows)

    # The medians of the two arms differ by chance, since they include drift; the paired ratio does not.
    assert comparison.conclusive
    assert comparison.significant
    assert comparison.ratio.mean == pytest.approx(0.02, abs=0.004)


def test_a_ratio_that_contradicts_its_medians_is_inconclusive() -> None:
    comparison = compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}))[0]

    allowed = comparison.ratio.half_width + 3 * comparison.medians_error

    assert comparison.conclusive
    for sign in (-1, 1):
        assert replace(comparison, of_medians=comparison.ratio.mean + 0.99 * sign * allowed).conclusive
        assert not replace(comparison, of_medians=comparison.ratio.mean + 1.01 * sign * allowed).conclusive


def test_a_ratio_that_contradicts_its_medians_is_not_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.1}))
    (comparison,) = compare_block(rows)
    assert len(evidence_of(rows).contrasts) == 1

    contradicted = replace(comparison, of_medians=math.log(2.1))
    monkeypatch.setattr("knowledge.evidence.block_evidence.compare_block", lambda _: [contradicted])

    assert evidence_of(rows).contrasts == ()


def test_an_inconclusive_comparison_is_not_evidence() -> None:
    busy = disturbed({"2.0.0": 1.0, "1.26.4": 0.5}, {(0, 0): 40.0, (2, 1): 3.0}, 3)

    assert evidence_of(busy).contrasts == ()
    assert len(evidence_of(block({"2.0.0": 1.0, "1.26.4": 0.5})).contrasts) == 1


def test_the_evidence_has_the_ratio_and_the_interval_that_the_report_prints() -> None:
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.1}))
    (printed,) = compare_block(rows)
    (contrast,) = evidence_of(rows).contrasts

    assert contrast.mean == printed.ratio.mean
    assert 1.959964 * contrast.error == pytest.approx(printed.ratio.half_width)


def test_failed_observations_are_not_compared() -> None:
    assert compare_block([observation(status="crashed"), observation(reference=True)]) == ()


def test_a_measured_gain_is_predicted_but_shrunk() -> None:
    fitted = estimator(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    prediction = fitted.predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})

    assert 1.02 < prediction.speedup < 1.2
    assert prediction.low < prediction.speedup < prediction.high
    assert prediction.changes[0].measured
    assert prediction.changes[0].evidence[0].reference == "2.0.0"


def test_the_gain_of_an_unmeasured_version_is_uncertain() -> None:
    fitted = estimator(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    near = fitted.predict({"numpy": Version("1.26.3")}, {"numpy": Version("2.0.0")}).changes[0]
    far = fitted.predict({"numpy": Version("1.10.0")}, {"numpy": Version("2.0.0")}).changes[0]

    assert not near.measured
    assert near.speedup > far.speedup
    assert far.high / far.low > near.high / near.low > 1


def gains(fitted: WorkloadEstimator, *candidates: str, baseline: str) -> dict[str, Ratio]:
    offered = {"numpy": [Version(v) for v in candidates], "other": [Version("1")]}
    (framework,) = fitted.terms(offered, {"numpy": Version(baseline)})
    assert framework.framework == "numpy"
    return {str(version): gain for version, gain in framework.alone.items()}


def test_a_faster_version_scores_higher_and_an_unmeasured_version_lower() -> None:
    fitted = estimator(block({"2.0.0": 1.0, "1.26.4": 1.3}))

    scores = gains(fitted, "2.0.0", "1.26.4", "1.5.0", baseline="2.0.0")

    assert scores["2.0.0"].cautious == 0
    assert scores["1.26.4"].cautious > 0.1
    assert scores["1.26.4"].is_significant()
    # It is unmeasured: the gain of a neighbouring version is not assumed, and its uncertainty lowers the score.
    assert 0 < scores["1.5.0"].mean < scores["1.26.4"].mean
    assert scores["1.5.0"].variance > scores["1.26.4"].variance
    assert scores["1.5.0"].cautious < 0
    assert not scores["1.5.0"].is_significant()


def test_an_older_measured_version_is_not_preferred_to_an_unmeasured_newest_version() -> None:
    fitted = estimator(block({"2.0.0": 1.0, "1.26.4": 0.9}))

    older = gains(fitted, "2.5.0", "2.0.0", baseline="2.5.0")["2.0.0"]

    assert older.cautious < 0.01
    assert not older.is_significant()


def test_a_control_corrects_for_an_unlucky_reference() -> None:
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.1, "1.25.0": 1.1}))
    control = [
        replace(o, arm=9, samples=tuple(s / 1.1 for s in o.samples), reference=False) for o in rows if o.arm == 0
    ]
    stacks = {"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")}

    without, with_control = estimator(rows).predict(*stacks), estimator(rows + control).predict(*stacks)

    assert with_control.speedup < 1.06 < 1.09 < without.speedup


def test_a_framework_with_one_measured_version_is_unmeasured() -> None:
    rows = list(block({"2.0.0": 1.0}))
    control = [replace(o, arm=1, reference=False) for o in rows]

    assert estimator(rows + control).predict({"numpy": Version("2.0.0")}, {}).unmeasured == ("numpy",)


def test_other_hardware_counts_less() -> None:
    elsewhere = replace(MACHINE, cpu=replace(MACHINE.cpu, microarchitecture="skylake_avx512", vendor="GenuineIntel"))
    rows = list(block({"2.0.0": 1.0, "1.26.4": 1.2}))

    here = estimator(rows).predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})
    there = estimator(rows, elsewhere).predict({"numpy": Version("1.26.4")}, {"numpy": Version("2.0.0")})

    assert 1 <= there.speedup < here.speedup


def test_cpu_observations_do_not_count_for_a_gpu_framework() -> None:
    gpu = replace(MACHINE, accelerators=(Accelerator(vendor="nvidia", model="x", compute_capability="9.0"),))

    prediction = estimator([], gpu).predict({"torch": Version("2.8")}, {"torch": Version("2.9")})

    assert prediction.speedup == 1
    assert prediction.unmeasured == ("torch",)


def test_a_version_that_did_not_run_here_is_a_known_failure() -> None:
    fitted = estimator([observation("2.1.0", status="import-error")])

    assert "import-error" in fitted.failures("numpy")["2.1.0"]


def test_an_error_of_the_harness_is_not_a_known_failure_of_a_version() -> None:
    fitted = estimator([observation("2.1.0", status="harness-error")])

    assert fitted.failures("numpy") == {}


def test_one_failed_round_among_successful_rounds_is_not_a_known_failure() -> None:
    fitted = estimator([observation("2.1.0", round=0), observation("2.1.0", round=1, status="timed-out")])

    assert fitted.failures("numpy") == {}


def test_every_workload_consists_of_indicators_and_runs_on_backends() -> None:
    for workload in workload_catalogue().values():
        for parts in workload.parts.values():
            assert {part.indicator for part in parts} <= {"model", PUBLISHED, *INDICATORS}
        assert set(workload.backends) <= set(frameworks())


def test_two_rounds_are_compared_and_one_is_not() -> None:
    assert len(compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}, rounds=2))) == 1
    assert compare_block(block({"2.0.0": 1.0, "1.26.4": 1.1}, rounds=1)) == ()


def test_a_known_failure_names_the_numpy_version_of_its_stack() -> None:
    packages = [PackageVersion(name="torch", version="2.8.0"), PackageVersion(name="numpy", version="2.0.0")]
    stack = make_stack(packages, python="3.11.7", platform="manylinux_2_28_x86_64")
    broken = replace(observation(status="import-error"), framework="torch", stack=stack)

    fitted = estimator([broken, observation("2.1.0", status="import-error")])

    assert fitted.failures("torch")["2.8.0"].endswith("with numpy 2.0.0")
    assert " with numpy" not in fitted.failures("numpy")["2.1.0"]


def test_gpus_are_grouped_by_compute_capability() -> None:
    gpu = Accelerator(vendor="nvidia", model="NVIDIA H100 80GB HBM3", compute_capability="9.0")
    hardware = replace(MACHINE, accelerators=(gpu,))

    machine = machine_of(hardware, "cuda")

    assert (machine.identity, machine.kind) == (hardware.identity, "sm 9.0")
    assert machine_of(hardware, "cpu").kind == "cpu zen4"


@pytest.mark.parametrize("name", ["nvidia-nccl-cu12", "nccl"])
def test_a_cuda_library_of_a_stack_is_a_companion_under_its_name_without_suffix(name: str) -> None:
    observations = [
        replace(
            o,
            stack=make_stack(
                [*o.stack.packages, PackageVersion(name=name, version=f"2.{o.arm}")],
                python=o.stack.python,
                platform=o.stack.platform,
            ),
        )
        for o in block({"2.0.0": 1.0, "2.1.0": 1.2})
    ]

    (contrast,) = evidence_of(observations).contrasts

    assert contrast.side.companions == {"nccl": "2.1"}
    assert contrast.reference.companions == {"nccl": "2.0"}
