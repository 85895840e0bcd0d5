"""Admission to a knowledge base: observations that are accepted, and observations that are quarantined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.domain.observation import BENCHMARK, Observation
from knowledge.evidence.block_evidence import load_evidence
from knowledge.exchange.admission import Admission, implausibilities, peak_flops
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from pi_runners.indicators import INDICATORS
from tests.knowledge.samples import MACHINE, block, observation

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DESKTOP = replace(MACHINE, cpu=Cpu(architecture="x86_64", microarchitecture="zen4", features=("avx2",), cores=8))
SERVER = HardwareProfile(
    name="made-up",
    cpu=MACHINE.cpu,
    accelerators=(Accelerator(vendor="nvidia", model="NVIDIA H200", compute_capability="9.0", count=2),),
)
LARGE = {"m": 1024, "n": 1024, "k": 1024}


def multiplied(seconds: float, **changes: object) -> Observation:
    """Return an observation of a matrix product of 2.1 GFLOP on eight cores with this duration."""
    run = replace(observation().indicator, parameters=LARGE)
    flops, moved = Indicators().amounts(run) or (0.0, 0.0)
    base = replace(observation(seconds=seconds, hardware=DESKTOP), indicator=run, flops=flops, bytes=moved)
    return replace(base, **changes)  # type: ignore[arg-type]


def admission(store: SqlKnowledgeBase, source: str = "") -> Admission:
    return Admission(store, Indicators(), source=source, clock=lambda: NOW)


def test_a_plausible_observation_is_accepted() -> None:
    assert list(implausibilities(multiplied(0.01), Indicators(), now=NOW)) == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda o: replace(o, started_at="2026-06-01T00:06:00Z"), "is in the future"),
        (lambda o: replace(o, started_at="1970-01-01T00:00:10Z"), "the clock of the machine is wrong"),
        (lambda o: replace(o, started_at="yesterday"), "is not a valid time"),
        (lambda o: replace(o, samples=(1e-6, 2e-6)), "FLOP/s are above the peak of its hardware"),
        (lambda o: replace(o, flops=2 * o.flops), "the indicator's formula gives"),
        (lambda o: replace(o, bytes=o.bytes / 2), "the indicator's formula gives"),
        (lambda o: replace(o, loops=0), "means over 0 calls"),
        (lambda o: replace(o, samples=(0.01,) * 5), "the resolution of the clock is too low"),
        (lambda o: replace(o, samples=(1e6, 1.1e6)), "longer than a week"),
        (lambda o: replace(o, error=1.0, tolerance=1e-6), "its status is `ok` although the error"),
        (lambda o: replace(o, metrics={"p50_seconds": 2.0, "p90_seconds": 1.0}), "percentiles cannot decrease"),
        (lambda o: replace(o, indicator=replace(o.indicator, version=99)), "version 99 of `matmul` is unknown"),
        (lambda o: replace(o, indicator=replace(o.indicator, name="guess")), "there is no indicator `guess`"),
    ],
)
def test_an_implausible_value_is_reported(changed: Callable[[Observation], Observation], reason: str) -> None:
    assert any(reason in text for text in implausibilities(changed(multiplied(0.01)), Indicators(), now=NOW))


def test_a_benchmark_is_accepted_without_formulae_and_with_numbers_that_the_program_rounded() -> None:
    run = replace(observation().indicator, name=BENCHMARK, backend="program", dtype="any", parameters={"unit": "MB"})
    rounded = replace(multiplied(0.01), indicator=run, flops=0.0, bytes=0.0, samples=(2e6,) * 5)
    newer = replace(rounded, indicator=replace(run, version=99))

    assert list(implausibilities(rounded, Indicators(), now=NOW)) == []
    assert list(implausibilities(newer, Indicators(), now=NOW)) == [
        "version 99 of `benchmark` is unknown; the newest is 1"
    ]


def test_peaks_are_upper_bounds_and_grow_with_the_hardware() -> None:
    assert peak_flops(DESKTOP, "cpu", "float32") == 32 * 8 * 6.5e9
    assert peak_flops(MACHINE, "cpu", "float32") is None
    assert peak_flops(SERVER, "cuda", "float16") == 2 * 1979e12 / 2
    assert peak_flops(SERVER, "cuda", "int8") == 2 * 1979e12
    assert peak_flops(DESKTOP, "cuda", "float32") is None


@pytest.mark.parametrize(
    ("model", "capability", "dtype", "peak"),
    [
        ("Tesla V100-SXM2-16GB", "7.0", "float32", 125e12),
        ("NVIDIA A10", "8.6", "float16", 125e12),
        # Consumer GPUs have a third more than the nominal clock.
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", "float32", 11.34e12 * 4 / 3),
        # Twice the rate with 32-bit accumulators.
        ("NVIDIA GeForce RTX 4090", "8.9", "float16", 2 * 165.2e12 * 4 / 3),
        # The catalogue has no rate of its tensor cores: those of the RTX 3090 Ti, the fastest of capability 8.6.
        ("NVIDIA A10G", "8.6", "float16", 160e12 * 4 / 3),
        ("GPU of the future", "8.0", "float16", 312e12),
        ("GPU of the future", "99.0", "float16", None),
        # Its sources do not say how fast it computes with 8-bit integers.
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", "int8", None),
    ],
)
def test_the_peak_is_that_of_the_model_or_else_the_largest_of_its_compute_capability(
    model: str, capability: str, dtype: str, peak: float | None
) -> None:
    gpu = Accelerator(vendor="nvidia", model=model, compute_capability=capability)

    assert peak_flops(replace(SERVER, accelerators=(gpu,)), "cuda", dtype) == pytest.approx(peak)


def test_every_indicator_computes_its_operations_and_bytes() -> None:
    for name, indicator in INDICATORS.items():
        for case in indicator.sets["small"]:
            run = replace(observation().indicator, name=name, version=indicator.version, parameters=case)
            run = replace(run, dtype=indicator.dtypes[0])
            assert Indicators().amounts(run) is not None, name


def test_shipped_observations_are_accepted(first_knowledge: Path, tmp_path: Path) -> None:
    path = shutil.copy(first_knowledge, tmp_path / "k.sqlite")
    with open_knowledge_base(str(path)) as store:
        shipped = list(store.observations())

    assert len(shipped) > 300
    assert [text for o in shipped for text in implausibilities(o, Indicators(), now=datetime.now(UTC))] == []


def test_an_implausible_observation_is_quarantined_until_it_is_accepted(store: SqlKnowledgeBase) -> None:
    good, bad = multiplied(0.01), multiplied(1e-6, round=1)

    first = admission(store).add([good, bad])
    again = admission(store).add([good, bad])

    assert (first.added, first.known, len(first.quarantined)) == (1, 0, 1)
    assert (again.added, again.known, len(again.quarantined)) == (0, 2, 0)
    (entry,) = store.quarantined()
    assert entry.observation == bad
    assert "FLOP/s are above" in entry.reason
    assert [o.identity for o in store.observations()] == [good.identity]

    assert store.release([bad.identity]).added == 1
    assert store.quarantined() == ()
    assert {o.identity for o in store.observations()} == {good.identity, bad.identity}


def test_a_dropped_observation_is_removed(store: SqlKnowledgeBase) -> None:
    admission(store).add([multiplied(1e-6)])

    assert store.drop([multiplied(1e-6).identity]) == 1
    assert (store.quarantined(), list(store.observations())) == ((), [])


def test_a_cell_is_measured_once(store: SqlKnowledgeBase) -> None:
    admission(store).add([observation(seconds=1.0)])

    result = admission(store).add([observation(seconds=2.0), observation(seconds=2.0, round=1)])

    assert result.added == 1
    assert "was measured already" in result.quarantined[0].reason


def test_one_delivery_cannot_measure_a_cell_twice(store: SqlKnowledgeBase) -> None:
    result = admission(store).add([observation(seconds=1.0), observation(seconds=2.0)])

    assert (result.added, len(result.quarantined)) == (1, 1)


def test_a_block_has_one_machine_and_one_source(store: SqlKnowledgeBase) -> None:
    admission(store, "lab-a").add([observation()])

    foreign = admission(store, "lab-b").add([observation(round=1)])
    moved = admission(store, "lab-a").add([observation(round=2, hardware=DESKTOP)])

    assert "block `b1` belongs to source `lab-a`" in foreign.quarantined[0].reason
    assert "another machine" in moved.quarantined[0].reason
    assert [(s.name, s.observations, s.quarantined) for s in store.sources()] == [("lab-a", 1, 1), ("lab-b", 0, 1)]


def _contrasts(store: SqlKnowledgeBase) -> list[tuple[float, float]]:
    return [(round(c.mean, 9), c.error**2) for c in load_evidence(store).contrasts]


def _deliver(source: str, observations: Iterable[Observation], store: SqlKnowledgeBase) -> None:
    assert admission(store, source).add(observations).quarantined == ()


def test_half_the_trust_doubles_the_variance(store: SqlKnowledgeBase) -> None:
    _deliver("lab-a", block({"2.0.0": 1.0, "2.1.0": 1.2}), store)
    ((mean, variance),) = _contrasts(store)

    store.trust("lab-a", 0.5)
    ((same, wider),) = _contrasts(store)
    store.trust("lab-a", 0.0)

    assert mean == same
    assert wider == pytest.approx(2 * variance)
    assert _contrasts(store) == []


def test_the_interval_of_a_source_that_is_half_trusted_is_wider_on_both_sides(store: SqlKnowledgeBase) -> None:
    _deliver("lab-a", block({"2.0.0": 1.0, "2.1.0": 1.2}), store)
    (full,) = load_evidence(store).contrasts

    store.trust("lab-a", 0.25)
    (weighed,) = load_evidence(store).contrasts

    assert weighed.ratio.mean == full.ratio.mean
    assert weighed.ratio.half_width == pytest.approx(2 * full.ratio.half_width)
    assert weighed.common == pytest.approx(2 * full.common)


def test_failures_from_an_untrusted_source_do_not_count(store: SqlKnowledgeBase) -> None:
    _deliver("lab-a", [observation("2.0.0", status="import-error")], store)
    assert [run.status for run in load_evidence(store).runs] == ["import-error"]

    store.trust("lab-a", 0.4)

    assert load_evidence(store).runs == ()
