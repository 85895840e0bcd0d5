"""The newest results of series are recent, complete, few, and have distinct labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest

from knowledge.domain.hardware import DETECTED, Driver
from knowledge.domain.metrics import MOST_LABEL_CHARACTERS, MOST_SERIES, SERIES_LABELS
from knowledge.domain.observation import Observation
from knowledge.evidence import newest_results as module
from knowledge.evidence.newest_results import NewestResults, SeriesResult, newest_results
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import MACHINE, RUN, observation

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def measured(days: float, *, version: str = "2.0.0", round: int = 0, **more: Any) -> Observation:
    """Return an observation that began some days before now, in the block of its day."""
    started = NOW - timedelta(days=days)
    own = {name: more.pop(name) for name in ("seconds", "status") if name in more}
    o = observation(version, round=round, block=f"nightly-{days:g}", **own)
    return replace(o, started_at=started.isoformat(), **more)


def label(result: SeriesResult, name: str) -> str:
    return result.labels[SERIES_LABELS.index(name)]


def test_the_newest_measurement_counts_with_all_its_runs(store: SqlKnowledgeBase) -> None:
    store.add([measured(2, seconds=9.0)])
    store.add([measured(1, round=r, seconds=s, flops=10.0) for r, s in enumerate((1.0, 2.0, 6.0))])

    (result,) = newest_results(store, now=NOW).successful

    assert result.seconds == pytest.approx(2.0)
    assert result.flops_per_second == pytest.approx(5.0)
    assert result.time == (NOW - timedelta(days=1)).timestamp()
    assert result.runs == {"ok": 3}


def test_a_measurement_that_fails_does_not_make_the_last_success_fresh(store: SqlKnowledgeBase) -> None:
    store.add([measured(3)])
    store.add([measured(1, status="crashed")])

    results = newest_results(store, now=NOW)

    assert [r.time for r in results.successful] == [(NOW - timedelta(days=3)).timestamp()]
    assert [(r.run_time, r.runs) for r in results.latest] == [((NOW - timedelta(days=1)).timestamp(), {"crashed": 1})]


@pytest.mark.parametrize(
    ("telemetry", "expected"),
    [
        ({}, {}),
        ({"throttled": 0.0}, {"heat": False, "power": False, "other": False}),
        ({"throttled": 1.0}, {"heat": False, "power": False, "other": True}),
        ({"throttled": 1.0, "throttled_by_heat": 1.0}, {"heat": True, "power": False, "other": False}),
        ({"throttled": 1.0, "throttled_by_power": 1.0}, {"heat": False, "power": True, "other": False}),
    ],
)
def test_one_throttled_run_marks_the_measurement(
    store: SqlKnowledgeBase, telemetry: dict[str, float], expected: dict[str, bool]
) -> None:
    store.add([measured(1), measured(1, round=1, telemetry=telemetry)])

    assert newest_results(store, now=NOW).successful[0].throttled == expected


def test_the_interval_continues_over_upgrades_and_a_burst_on_one_day_has_none(store: SqlKnowledgeBase) -> None:
    store.add([measured(day, version=f"2.{10 - day}.0") for day in (1, 2, 4)])
    once = replace(RUN, name="sort")
    store.add([measured(0.1 + part / 1000, indicator=once) for part in range(5)])

    intervals = newest_results(store, now=NOW).intervals

    assert list(intervals.values()) == [1.5 * 86400]
    assert "matmul" in next(iter(intervals))


def test_an_upgrade_of_the_driver_leaves_the_machine_the_same_one(store: SqlKnowledgeBase) -> None:
    drivers = [Driver(version=version) for version in ("570.1", "580.2")]
    detected = replace(MACHINE, name=DETECTED)
    store.add([measured(day, hardware=replace(detected, driver=d)) for day, d in enumerate(drivers)])
    store.add([measured(3, hardware=replace(detected, cpu=replace(MACHINE.cpu, cores=8)))])
    store.add([measured(4)])

    machines = sorted({label(r, "machine") for r in newest_results(store, now=NOW).latest})

    assert len(machines) == 3
    assert [name.rpartition(" ")[0] for name in machines] == ["", "zen4", "zen4"]
    assert machines[0] == MACHINE.name


def test_old_future_shipped_published_and_ignored_results_are_left_out(store: SqlKnowledgeBase) -> None:
    store.add([measured(31), measured(-1, version="3.0.0"), measured(1, indicator=replace(RUN, name="published"))])
    store.add([measured(2)], source="untrusted")
    store.trust("untrusted", 0.0)

    results = newest_results(store, now=NOW)

    assert (results.latest, results.omitted) == ((), {"clock": 1, "limit": 0})


@pytest.mark.shipped
def test_shipped_results_are_left_out(knowledge_file: Path) -> None:
    with open_knowledge_base(str(knowledge_file)) as store:
        now = max(datetime.fromisoformat(o.started_at) for o in store.observations(indicator="matmul"))

        assert newest_results(store, now=now).latest == ()


def test_own_benchmarks_are_only_among_the_results_of_the_own_machine(store: SqlKnowledgeBase) -> None:
    benchmark = replace(RUN, name="benchmark")
    store.add([measured(1, indicator=benchmark)])
    store.add([measured(2, indicator=benchmark)], source="cluster-a")

    everyone, own = newest_results(store, now=NOW), newest_results(store, now=NOW, host="node-1")

    assert [label(r, "source") for r in everyone.latest] == ["cluster-a"]
    assert [label(r, "source") for r in own.latest] == ["node-1"]


def test_series_beyond_the_limit_are_counted_and_the_newest_stay(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 3)
    store.add([measured(day, version=f"2.{day}.0") for day in range(5)])

    results = newest_results(store, now=NOW)

    assert sorted(label(r, "version") for r in results.latest) == ["2.0.0", "2.1.0", "2.2.0"]
    assert results.omitted == {"clock": 0, "limit": 2}
    assert MOST_SERIES == 1000


def test_labels_are_short_and_distinct(store: SqlKnowledgeBase) -> None:
    long = "x" * 5000
    store.add([measured(1, settings={"flags": long + end}) for end in "ab"])
    # The text of both is the same: two samples with equal labels would make Prometheus reject the whole answer.
    store.add(
        [measured(1, indicator=replace(RUN, name="sort"), settings=s) for s in ({"a": "1 b=2"}, {"a": 1, "b": 2})]
    )

    labels = [r.labels for r in newest_results(store, now=NOW).latest]

    assert len(labels) == len(set(labels)) == 3
    assert max(len(value) for values in labels for value in values) <= MOST_LABEL_CHARACTERS


def test_blocks_that_did_not_change_are_not_read_again(
    store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([measured(1), measured(2)])
    first = newest_results(store, now=NOW)
    read: list[Any] = []
    original: Callable[..., Any] = module.results_of

    def results_of(observations: Any) -> Any:
        read.append(1)
        return original(observations)

    monkeypatch.setattr(module, "results_of", results_of)
    again: NewestResults = newest_results(store, now=NOW)
    store.add([measured(1, round=1)])
    newest_results(store, now=NOW)

    assert again == first
    assert len(read) == 1


def test_the_time_of_a_change_is_when_it_became_certain(store: SqlKnowledgeBase) -> None:
    """With 3 % of noise, 4 % slower becomes certain only after the two weeks that `AdvisorRegression` lasts."""
    random = Random(8)
    seconds = {day: exp(random.gauss(0, 0.03)) * (1.04 if day <= 25 else 1.0) for day in range(120, -1, -1)}
    store.add([measured(day, seconds=value, reference=True) for day, value in seconds.items()])

    (change,) = newest_results(store, now=NOW).changes

    assert change.time == (NOW - timedelta(days=8)).timestamp()
    assert change.ratio > 1.03
