"""Summaries, conditions and moderated variances."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest

from knowledge.domain.observation import Observation
from knowledge.evidence.compare import Comparison, compare_block, refusals
from knowledge.evidence.conditions import instabilities, spread
from knowledge.evidence.paired_ratio import estimate_prior, locate
from knowledge.evidence.summary import bootstrap, roofs, summarise_block
from tests.knowledge.samples import RUN, block, observation


def with_environment(o: Observation, **environment: str | int | None) -> Observation:
    return replace(o, environment=dict(environment))


def test_runs_under_unequal_conditions_are_reported_and_not_compared() -> None:
    rows = [with_environment(o, cpu_governor="performance") for o in block({"2.0.0": 1.0, "1.26.4": 1.2})]
    slowed = [with_environment(o, cpu_governor="powersave") if o.arm == 1 and o.round < 2 else o for o in rows]

    refused = refusals(slowed)

    assert [(r.arm, r.rounds, r.reason) for r in refused] == [(1, 2, "cpu_governor powersave against performance")]
    assert [c.rounds for c in compare_block(slowed)] == [4]
    assert refusals(rows) == ()


def test_threads_limited_by_processor_affinity_are_not_an_unequal_condition() -> None:
    rows = [with_environment(o, cpus_allowed=2) for o in block({"2.0.0": 1.0, "1.26.4": 1.2})]
    pinned = [replace(with_environment(o, cpus_allowed=1), settings={"threads": 1}) if o.arm else o for o in rows]

    assert refusals(pinned) == ()


def test_an_undisturbed_arm_is_stable() -> None:
    rows = [replace(o, steady=True) for o in block({"2.0.0": 1.0}) if o.arm == 0]

    assert instabilities(rows) == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"telemetry": {"throttled": 1.0}}, "throttled"),
        ({"telemetry": {"on_battery": 1.0}}, "battery"),
        ({"telemetry": {"stolen_cpu_percent_mean": 12.0}}, "stolen"),
        ({"telemetry": {"other_cpu_percent_mean": 40.0}}, "busy"),
        ({"environment": {"cpu_governor": "powersave"}}, "governor"),
        ({"environment": {"clock_jump_seconds": 3600.0}}, "clock-jump"),
        ({"steady": False}, "unsteady"),
        ({"samples": (1.0, 2.0, 3.0)}, "spread-within"),
    ],
)
def test_instability_has_a_reason_and_a_remedy(change: dict[str, object], code: str) -> None:
    rows = [replace(replace(o, steady=True), **change) for o in block({"2.0.0": 1.0})]  # type: ignore[arg-type]

    causes = instabilities(rows)

    assert [i.code for i in causes] == [code]
    assert causes[0].reason
    assert causes[0].remedy


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_spread_is_a_share_of_the_mean(scale: float) -> None:
    assert spread([1.0 * scale, 2.0 * scale, 3.0 * scale]) == pytest.approx(0.5)
    assert spread([scale]) == 0.0


def test_processes_that_differ_are_reported() -> None:
    rows = [replace(observation(seconds=1.0 + number / 5, round=number), steady=True) for number in range(4)]

    assert [i.code for i in instabilities(rows)] == ["spread-between"]


def test_the_bootstrap_interval_has_its_nominal_coverage() -> None:
    generator = random.Random(1)
    inside, widths = 0, []
    for _ in range(200):
        rounds = []
        for _ in range(12):
            level = generator.gauss(1.0, 0.05)
            rounds.append([generator.gauss(level, 0.01) for _ in range(8)])
        low, high = bootstrap(rounds)
        inside += low <= 1.0 <= high
        widths.append(high - low)

    # 95 % of 200, less three standard deviations; percentile intervals of few rounds are slightly too short.
    assert inside >= 176
    # The median of 12 normal levels has 1.22 times the standard error of their mean (asymptotically 1.25).
    exact = 2 * 1.96 * 1.22 * 0.05 / math.sqrt(12)
    assert exact / 1.3 < statistics.median(widths) < exact * 1.3


def test_every_sample_counts_in_the_bootstrap_where_rounds_have_different_numbers_of_them() -> None:
    # The first process has few samples; in the other, the first samples differ from the rest.
    rounds = [[1.0] * 7, [9.0] * 4 + [1.0] * 17]

    low, high = bootstrap(rounds)

    assert (low, high) == (1.0, 1.0)


def test_the_interval_of_the_median_is_the_same_every_time() -> None:
    assert bootstrap([[1.0, 2.0], [3.0, 4.0]]) == bootstrap([[1.0, 2.0], [3.0, 4.0]])


def test_a_summary_has_rates_jitter_and_the_share_of_the_roof() -> None:
    roof = replace(RUN, name="roofline", parameters={"roof": "flops", "n": 8})
    rows = [
        replace(observation(seconds=1.0, round=n), flops=50.0, bytes=10.0, metrics={"items": 4.0}) for n in range(3)
    ]
    peak = [replace(observation(seconds=1.0, round=n), indicator=roof, flops=100.0, arm=1) for n in range(3)]

    summary = next(s for s in summarise_block([*rows, *peak]) if s.observation.indicator.name == "matmul")

    assert summary.flops == pytest.approx(50.0)
    assert summary.items == pytest.approx(4.0)
    assert summary.items_jitter == pytest.approx(1.4826 * 0.04, rel=0.05)
    assert summary.roof_share == pytest.approx(0.5)
    assert summary.intensity == 5.0
    assert roofs(rows) == {}


@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 6, 8])
def test_the_estimated_variance_of_the_trimmed_mean_is_its_variance(rounds: int) -> None:
    generator = random.Random(rounds)
    estimates = [locate([generator.gauss(0, 1) for _ in range(rounds)]) for _ in range(6000)]

    variance = rounds * statistics.variance([f.value for f in estimates])
    assert statistics.fmean([f.variance for f in estimates]) == pytest.approx(variance, rel=0.07)


def drawn(generator: random.Random, sigma: float, degrees: int) -> float:
    return statistics.variance([generator.gauss(0, sigma) for _ in range(degrees + 1)])


def test_similar_variances_are_pooled() -> None:
    generator = random.Random(2)
    reference = [generator.gauss(0, 0.1) for _ in range(31)]
    observed = [(statistics.variance([r - generator.gauss(0, 0.1) for r in reference]), 30) for _ in range(200)]

    prior = estimate_prior(observed)

    assert prior.variance == pytest.approx(0.02, rel=0.3)
    # The noise of the reference is in all ratios: any number of them has at most four times the information of one.
    assert 60 < prior.degrees <= 120
    assert prior.moderate(1e-9, 30)[0] > 0.012


def test_few_similar_variances_are_pooled_less_than_many() -> None:
    few, many = (estimate_prior([(0.01 * (1 + 0.02 * i), 3) for i in range(count)]).degrees for count in (6, 60))

    assert 3 < few < 0.8 * many


def test_different_variances_are_not_pooled() -> None:
    generator = random.Random(3)
    observed = [(drawn(generator, 10 ** generator.uniform(-4, 0), 3), 3) for _ in range(200)]

    prior = estimate_prior(observed)

    assert prior.degrees < 1.5
    variance, degrees = prior.moderate(0.04, 3)
    assert variance == pytest.approx(0.04, rel=0.5)
    assert degrees < 4.5


def test_too_few_variances_are_not_pooled() -> None:
    assert estimate_prior([(0.1, 3), (0.2, 3)]).degrees == 0
    assert estimate_prior([(0.1, 3)] * 4).degrees == 0
    assert estimate_prior([(0.1, 3)] * 6).degrees > 0
    assert estimate_prior([(0.0, 3)] * 10).degrees == 0


def moderated(rounds: int, *, slower: float, trials: int = 60) -> list[Comparison]:
    """Compare arms with different noise, each at the 5 % level; all are slower than the reference by a factor."""
    generator = random.Random(rounds)
    comparisons: list[Comparison] = []
    for trial in range(trials):
        rows = []
        sigmas = [0.05 * 2 ** generator.uniform(-1, 1) for _ in range(8)]
        for number in range(rounds):
            for arm, sigma in enumerate(sigmas):
                seconds = math.exp(generator.gauss(0, sigma)) * (slower if arm else 1.0)
                rows.append(observation(seconds=seconds, round=number, arm=arm, reference=arm == 0, block=f"b{trial}"))
        comparisons += compare_block(rows, confidence=1 - 0.05 * 7)
    return comparisons


@pytest.mark.parametrize(("rounds", "widest"), [(3, 0.5), (8, 0.15)])
def test_moderated_intervals_have_their_nominal_coverage(rounds: int, widest: float) -> None:
    """A/A comparisons of arms with different noise and without a true difference."""
    comparisons = moderated(rounds, slower=1.0)

    # 5 % of 420 is 21; arms of one block share their reference, so their errors are correlated.
    assert len(comparisons) == 420
    assert sum(c.is_significant for c in comparisons) <= 42
    # Infinite intervals would always contain the true value.
    assert statistics.median(2 * c.ratio.half_width for c in comparisons) < widest


@pytest.mark.parametrize(("rounds", "slower"), [(3, 1.6), (8, 1.2)])
def test_moderated_intervals_detect_a_real_difference(rounds: int, slower: float) -> None:
    comparisons = moderated(rounds, slower=slower, trials=20)

    assert sum(c.significant and c.speedup < 1 for c in comparisons) >= 0.8 * len(comparisons)
