"""Observations of two versions of an indicator can both be read, and are never compared with each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.campaign.prometheus import PrometheusSink
from knowledge.domain.observation import IndicatorRun, Observation
from knowledge.evidence.block_evidence import load_evidence
from knowledge.evidence.compare import compare_block
from knowledge.evidence.stacks import compare_stacks
from knowledge.evidence.summary import summarise_block
from knowledge.exchange.admission import Admission, implausibilities
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from pi_runners.indicators import INDICATORS
from tests.knowledge.samples import block, observation

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def run_of(version: int) -> IndicatorRun:
    return IndicatorRun(
        name="startup", version=version, backend="numpy", device="cpu", dtype="float32", parameters={"n": 64}
    )


def both_versions() -> Iterator[Observation]:
    """Yield a block in which 2.0.0 is twice as fast in version 1 of the indicator, and half as fast in version 2."""
    for version, ratio, seconds in ((1, 2.0, 1.0), (2, 0.5, 100.0)):
        for o in block({"1.0.0": 1.0, "2.0.0": ratio}):
            samples = tuple(seconds * sample for sample in o.samples)
            yield replace(o, indicator=run_of(version), samples=samples)


@pytest.fixture
def store() -> Iterator[SqlKnowledgeBase]:
    with open_knowledge_base("sqlite://", shipped=False) as opened:
        Admission(opened, Indicators(), clock=lambda: NOW).add(both_versions())
        yield opened


def test_both_versions_are_accepted_and_read_back(store: SqlKnowledgeBase) -> None:
    stored = tuple(store.observations(indicator="startup"))

    assert store.quarantined() == ()
    assert {o.indicator.version for o in stored} == {1, 2}
    assert {o.identity for o in read_observations(write_observations(stored), where="a file")} == {
        o.identity for o in both_versions()
    }


def test_each_version_is_compared_only_with_itself(store: SqlKnowledgeBase) -> None:
    comparisons = compare_block(store.observations())

    speedups = {c.indicator: c.speedup for c in comparisons}
    assert speedups == {
        run_of(1).label: pytest.approx(2.0, rel=0.02),
        run_of(2).label: pytest.approx(0.5, rel=0.02),
    }


def test_a_stack_is_not_compared_with_a_reference_of_another_version() -> None:
    runs = [o for o in both_versions() if o.indicator.version == (1 if o.reference else 2)]

    standings = compare_stacks(runs)

    assert standings.comparisons == ()
    assert "startup@2" in standings.refused[0]


def test_each_version_is_summarised_alone(store: SqlKnowledgeBase) -> None:
    medians = {
        (s.observation.indicator.version, s.observation.arm): s.median for s in summarise_block(store.observations())
    }

    assert medians == {
        (1, 0): pytest.approx(1.0, rel=0.01),
        (1, 1): pytest.approx(0.5, rel=0.01),
        (2, 0): pytest.approx(100.0, rel=0.01),
        (2, 1): pytest.approx(200.0, rel=0.01),
    }


def test_contrasts_of_two_versions_have_different_labels(store: SqlKnowledgeBase) -> None:
    contrasts = load_evidence(store).contrasts

    assert {c.label for c in contrasts} == {run_of(1).label, run_of(2).label}
    assert len(contrasts) == 2


def test_metrics_of_two_versions_are_separate_series(tmp_path: Path) -> None:
    path = tmp_path / "figures.prom"
    with open_knowledge_base("sqlite://", shipped=False) as sink:
        now = datetime.now(UTC).isoformat()
        measured = [replace(o, started_at=now) for o in both_versions() if o.reference and o.round == 0]
        PrometheusSink(sink.add, path, store=sink).add(measured)

    series = [line for line in path.read_text().splitlines() if line.startswith("seshat_series_seconds{")]
    assert sorted(line.partition('indicator_version="')[2][0] for line in series) == ["1", "2"]


@pytest.mark.parametrize("name", ["communication", "startup"])
def test_observations_from_before_the_change_are_plausible_and_those_of_an_unknown_version_are_not(name: str) -> None:
    newest = INDICATORS[name].version
    run = replace(observation().indicator, name=name, parameters=INDICATORS[name].sets["small"][0])

    def reasons(version: int) -> list[str]:
        o = replace(observation(), indicator=replace(run, version=version))
        return list(implausibilities(o, Indicators(), now=NOW))

    assert newest == 2
    assert [reasons(version) for version in (1, newest)] == [[], []]
    assert "is unknown" in reasons(newest + 1)[0]
