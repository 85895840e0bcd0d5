"""Histories of measurements: which blocks make a series, when its speed changed, and what that is attributed to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import Cpu, Driver
from knowledge.domain.metrics import LASTING_LABELS
from knowledge.domain.observation import Observation
from knowledge.evidence import history_changes
from knowledge.evidence.attribution import Attribution
from knowledge.evidence.change_points import ScanState, scan
from knowledge.evidence.history import Series, SeriesFilter, load_series
from knowledge.evidence.history_changes import SeriesHistory, load_histories, newest_states
from knowledge.evidence.newest_results import newest_results
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.histories import ENVIRONMENT, FIRST_DAY, NODE, TELEMETRY, Day, history, slower

NOW = datetime(2026, 12, 1, tzinfo=UTC)
USUAL = Day()
NEW_STACK = {"numpy": "2.4.6", "torch": "2.14.0"}


@pytest.fixture
def base(tmp_path: Path) -> Iterator[SqlKnowledgeBase]:
    """An empty knowledge base."""
    with open_knowledge_base(f"sqlite:///{tmp_path / 'knowledge.sqlite'}", shipped=False) as opened:
        yield opened


def series_of(store: SqlKnowledgeBase, *parts: Iterable[Observation], **filters: Any) -> tuple[Series, ...]:
    """Return the series after observations were added."""
    for observations in parts:
        store.add(observations)
    return load_series(store, SeriesFilter(**filters), now=NOW)


def only(store: SqlKnowledgeBase, *parts: Iterable[Observation]) -> SeriesHistory:
    """Return the history of `matmul` after observations were added."""
    for observations in parts:
        store.add(observations)
    [own] = load_histories(store, SeriesFilter(indicator="matmul"), now=NOW)
    return own


def attribution_of(store: SqlKnowledgeBase, *parts: Iterable[Observation]) -> Attribution:
    """Return what the only change of the history of `matmul` is attributed to."""
    [change] = only(store, *parts).changes
    return change.attribution


def test_the_reference_arms_are_a_series_whose_stack_may_change(base: SqlKnowledgeBase) -> None:
    rows = list(history({0: USUAL, 3: replace(USUAL, packages=NEW_STACK)}, length=5))
    candidate = [replace(o, arm=1, reference=False, stack=rows[-1].stack) for o in rows]
    control = [replace(o, arm=2, reference=False) for o in rows]

    [own] = series_of(base, rows, candidate, control)
    [named] = series_of(base, stack="torch==2.14.0")
    [either] = series_of(base, stack="torch>=2.13 numpy")

    assert [point.conditions["package torch"] for point in own.points] == ["2.13.0"] * 3 + ["2.14.0"] * 2
    assert [len(series.points) for series in (own, named, either)] == [5, 5, 5]
    assert {point.stack for point in named.points} == {rows[-1].stack.identity}
    assert [point.stack for point in either.points] == [point.stack for point in own.points]
    assert own.points[0].rounds == 2


def test_what_makes_times_incomparable_makes_another_series(base: SqlKnowledgeBase) -> None:
    rows = list(history({0: USUAL}, length=2))
    others = [
        [replace(o, block="version", indicator=replace(o.indicator, version=2)) for o in rows],
        [replace(o, block="settings", settings={"threads": 2}) for o in rows],
        [replace(o, block="clock", environment={**o.environment, "clock_resolution_seconds": 1e-3}) for o in rows],
        [replace(o, block="cpu", hardware=replace(NODE, cpu=replace(NODE.cpu, cores=64))) for o in rows],
    ]

    series = series_of(base, rows, *others)

    assert sorted(len(own.points) for own in series) == [1, 1, 1, 1, 2]


def test_failed_runs_are_counted_and_are_not_points(base: SqlKnowledgeBase) -> None:
    rows = list(history({0: USUAL}, length=4))
    failed = [
        replace(o, status="crashed", samples=()) if o.block.endswith("2") or (o.block.endswith("1") and o.round) else o
        for o in rows
    ]

    [own] = series_of(base, failed)

    assert [point.rounds for point in own.points] == [2, 1, 2]
    assert own.failures == 1


def test_a_machine_is_the_same_with_another_driver_and_c_library_and_another_with_other_parts(
    base: SqlKnowledgeBase,
) -> None:
    updated = replace(NODE, driver=Driver(version="580.1"), libc_version="2.41", memory_bytes=10**11, numa_nodes=2)
    rebuilt = replace(NODE, cpu=replace(NODE.cpu, model="AMD EPYC 9654"))

    days = {0: USUAL, 2: replace(USUAL, hardware=updated), 4: replace(USUAL, hardware=rebuilt)}
    series = series_of(base, history(days, length=5))

    assert sorted(len(own.points) for own in series) == [1, 4]
    assert [len(own.points) for own in series_of(base, machine="amd epyc 9654")] == [1]
    assert [len(own.points) for own in series_of(base, machine=NODE.identity[:8])] == [4]


def test_shipped_and_published_blocks_are_no_histories_of_this_machine(base: SqlKnowledgeBase) -> None:
    rows = list(history({0: USUAL}, length=1))
    shipped = [replace(o, block="20261120T235203Z-a1c3b58b") for o in rows]
    published = [replace(o, block="published/somebody") for o in rows]

    assert series_of(base, shipped, published) == ()
    assert [len(own.points) for own in series_of(base, with_shipped=True)] == [2]


def test_sources_without_trust_do_not_count(base: SqlKnowledgeBase) -> None:
    base.add(history({0: USUAL}, length=2), source="somebody")

    before = load_series(base, now=NOW)
    base.trust("somebody", 0.0)

    assert (len(before), load_series(base, now=NOW)) == (1, ())


def test_machines_with_equal_parts_are_distinguished_by_their_source(base: SqlKnowledgeBase) -> None:
    """Only one node is slower, and the other series of the other node say nothing about it."""
    for source, percent in (("node-a", 8), ("node-b", 0), ("", 0)):
        for seed, indicator in enumerate(("matmul", "sort")):
            days = {0: USUAL, 45: slower(USUAL, percent)}
            rows = history(days, indicator=indicator, seed=len(source) + percent + seed)
            base.add([replace(o, block=f"{source}-{o.block}") for o in rows], source=source)

    histories = load_histories(base, now=NOW)

    assert [(own.series.key.source, len(own.series.points), len(own.changes)) for own in histories] == [
        *(("", 60, 0), ("node-a", 60, 1), ("node-b", 60, 0)),
        *(("", 60, 0), ("node-a", 60, 1), ("node-b", 60, 0)),
    ]
    attribution = histories[1].changes[0].attribution
    assert (attribution.kind, attribution.sharing, attribution.steady) == ("machine", 1, 0)
    assert histories[1].series.machine_text.endswith(", source node-a")
    [change, _] = newest_results(base, now=FIRST_DAY + timedelta(days=60)).changes
    assert change.labels[LASTING_LABELS.index("source")] == "node-a"


def at(*times: str) -> Callable[[int], datetime]:
    """Return a function that returns the time of each day."""
    return lambda day: datetime.fromisoformat(times[day]).replace(tzinfo=UTC)


def test_points_are_in_order_of_time_whatever_the_clock_did(base: SqlKnowledgeBase) -> None:
    times = at("2026-03-02", "2026-03-01", "2026-03-01", "1970-01-01", "2031-01-01")

    [own] = series_of(base, history({0: USUAL}, length=5, time=times))

    assert [point.block[-1] for point in own.points] == ["1", "2", "0"]
    assert own.misdated == 2


def test_a_time_that_is_not_one_is_left_out(base: SqlKnowledgeBase) -> None:
    first, *rest = history({0: USUAL}, length=3, rounds=1)

    [own] = series_of(base, [replace(first, started_at="yesterday"), *rest])

    assert (len(own.points), own.misdated) == (2, 1)


def test_a_stack_that_is_not_one_is_refused(base: SqlKnowledgeBase) -> None:
    with pytest.raises(InputError, match="`torch=2` is not a stack"):
        load_series(base, SeriesFilter(stack="torch=2"))


def test_only_new_blocks_are_read_and_only_new_points_scanned(
    base: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(history({0: USUAL, 40: slower(USUAL, 8, packages=NEW_STACK)}, length=60))
    base.add(o for o in rows if o.block < "torch-matmul-0058")
    first = load_histories(base, now=NOW)
    blocks: list[str] = []
    looks: list[tuple[int, int]] = []
    read = base.observations

    def observations(*, block: str) -> Iterator[Observation]:
        blocks.append(block)
        return read(block=block)

    def counted(seconds: Sequence[float], state: ScanState | None) -> ScanState:
        looks.append((state.length if state else 0, len(seconds)))
        return scan(seconds, state)

    monkeypatch.setattr(base, "observations", observations)
    monkeypatch.setattr(history_changes, "scan", counted)

    base.add(rows)
    second = load_histories(base, now=NOW)
    third = load_histories(base, now=NOW)

    assert blocks == ["torch-matmul-0058", "torch-matmul-0059"]
    assert looks == [(58, 60), (60, 60)]
    assert [change.place.start for change in first[0].changes] == [40]
    assert second == third
    with open_knowledge_base("sqlite://", shipped=False) as fresh:
        fresh.add(rows)
        assert load_histories(fresh, now=NOW) == second


def test_a_point_between_others_makes_its_series_new(base: SqlKnowledgeBase) -> None:
    rows = list(history({0: USUAL, 20: slower(USUAL, 10)}, length=40))
    base.add(o for o in rows if not o.block.endswith("5"))
    load_histories(base, now=NOW)

    assert [change.place.start for change in only(base, rows).changes] == [20]


DRIVER = replace(NODE, driver=Driver(version="580.65.06"))
KERNEL = {**ENVIRONMENT, "kernel": "6.12.1"}
HOT = {**TELEMETRY, "gpu_clock_megahertz_mean": 1410.0, "gpu_temperature_celsius_mean": 86.0, "throttled": 1.0}
STOLEN = {**TELEMETRY, "stolen_cpu_percent_mean": 12.0}


@pytest.mark.parametrize(
    ("changed", "kind", "names"),
    [
        ({"packages": NEW_STACK, "environment": {**ENVIRONMENT, "torch_threads": 16}}, "stack", ["torch"]),
        ({"packages": {"numpy": "2.5.0", "torch": "2.13.0"}}, "stack", ["numpy"]),
        ({"python": "3.11.9"}, "interpreter", ["python"]),
        ({"hardware": DRIVER}, "driver", ["driver"]),
        ({"environment": KERNEL}, "kernel", ["kernel"]),
        ({"hardware": replace(NODE, libc_version="2.41")}, "kernel", ["C library"]),
        ({"environment": {**ENVIRONMENT, "OMP_NUM_THREADS": "4"}}, "settings", ["OMP_NUM_THREADS"]),
        ({"environment": {**ENVIRONMENT, "torch_threads": 16}}, "settings", ["torch_threads"]),
        (
            {"telemetry": HOT},
            "clocks",
            ["gpu_clock_megahertz_mean", "gpu_temperature_celsius_mean", "throttled"],
        ),
        ({"telemetry": {**TELEMETRY, "on_battery": 1.0}}, "unknown", []),
        ({"telemetry": {**TELEMETRY, "gpu_temperature_celsius_mean": 75.0}}, "unknown", []),
        ({"telemetry": STOLEN}, "neighbours", ["stolen_cpu_percent_mean"]),
        ({"telemetry": {**TELEMETRY, "other_cpu_percent_mean": 40.0}}, "neighbours", ["other_cpu_percent_mean"]),
        ({}, "unknown", []),
        ({"hardware": DRIVER, "packages": NEW_STACK}, "several", ["torch", "driver"]),
    ],
)
def test_a_planted_change_is_attributed_to_what_changed_with_it(
    base: SqlKnowledgeBase, changed: dict[str, Any], kind: str, names: list[str]
) -> None:
    attribution = attribution_of(base, history({0: USUAL, 45: slower(USUAL, 8, **changed)}))

    assert attribution.kind == kind
    assert [change.name for change in attribution.changes] == names


def test_a_run_on_battery_is_one(base: SqlKnowledgeBase) -> None:
    days = {
        0: replace(USUAL, telemetry={**TELEMETRY, "on_battery": 0.0}),
        45: slower(USUAL, 8, telemetry={**TELEMETRY, "on_battery": 1.0}),
    }

    assert attribution_of(base, history(days)).kind == "battery"


def test_a_condition_that_changed_at_another_time_is_not_the_reason(base: SqlKnowledgeBase) -> None:
    days = {
        0: USUAL,
        30: replace(USUAL, hardware=DRIVER),
        45: slower(USUAL, 8, hardware=DRIVER, packages=NEW_STACK),
    }

    assert attribution_of(base, history(days)).kind == "stack"


def test_clocks_that_rose_do_not_make_it_slower(base: SqlKnowledgeBase) -> None:
    faster_clock = {**TELEMETRY, "gpu_clock_megahertz_mean": 2100.0}

    assert attribution_of(base, history({0: USUAL, 45: slower(USUAL, 8, telemetry=faster_clock)})).kind == "unknown"


def test_a_machine_that_was_replaced_under_its_name_is_no_slower_release(base: SqlKnowledgeBase) -> None:
    named = replace(NODE, name="gpu-node-7")
    other = replace(named, cpu=Cpu(architecture="x86_64", microarchitecture="icelake", model="Xeon 8358", cores=32))
    days = {
        0: replace(USUAL, hardware=named),
        45: slower(USUAL, 12, hardware=other, packages=NEW_STACK, environment=KERNEL),
    }

    attribution = attribution_of(base, history(days))

    assert (attribution.kind, attribution.is_of_speed) == ("machine", False)
    assert ("processor", "AMD EPYC 9354", "Xeon 8358") in [(c.name, c.before, c.after) for c in attribution.changes]


def test_longer_samples_are_another_way_to_measure(base: SqlKnowledgeBase) -> None:
    attribution = attribution_of(base, history({0: USUAL, 45: slower(USUAL, 8, loops=200)}))

    assert (attribution.kind, attribution.is_of_speed) == ("sampler", False)


def test_a_fourfold_time_of_one_call_is_a_change_of_speed(base: SqlKnowledgeBase) -> None:
    attribution = attribution_of(base, history({0: USUAL, 45: slower(USUAL, 300, packages=NEW_STACK)}))

    assert (attribution.kind, attribution.is_of_speed) == ("stack", True)


def test_a_change_of_all_series_is_the_machines_and_not_the_new_stacks(base: SqlKnowledgeBase) -> None:
    other = {0: USUAL, 45: slower(USUAL, 8)}

    attribution = attribution_of(
        base,
        history({0: USUAL, 45: slower(USUAL, 8, packages=NEW_STACK)}),
        history(other, indicator="sort", seed=2),
        history(other, indicator="softmax", seed=3),
    )

    assert (attribution.kind, attribution.sharing, attribution.steady) == ("machine", 2, 0)
    assert attribution.is_of_speed


def test_other_series_decide_between_the_stack_and_the_driver(base: SqlKnowledgeBase) -> None:
    days = {0: USUAL, 45: slower(USUAL, 8, packages=NEW_STACK, hardware=DRIVER)}
    steady = {0: USUAL, 45: replace(USUAL, hardware=DRIVER)}
    shared = {0: USUAL, 45: slower(USUAL, 8, hardware=DRIVER)}

    of_stack = attribution_of(base, history(days), history(steady, indicator="sort", seed=2))
    base.remove([block.name for block in base.blocks() if "sort" in block.name])
    of_driver = attribution_of(base, history(shared, indicator="sort", seed=2))

    assert (of_stack.kind, of_stack.steady) == ("stack", 1)
    assert (of_driver.kind, of_driver.sharing) == ("driver", 1)


def test_several_conditions_at_once_name_the_measurement_that_separates_them(base: SqlKnowledgeBase) -> None:
    attribution = attribution_of(base, history({0: USUAL, 45: slower(USUAL, 8, packages=NEW_STACK, hardware=DRIVER)}))

    assert attribution.measurement is not None
    assert attribution.measurement.stacks == ("torch==2.13.0", "torch==2.14.0")
    assert 3 < attribution.measurement.minutes < 20


def test_gaps_do_not_matter(base: SqlKnowledgeBase) -> None:
    gaps = history(
        {0: USUAL, 45: slower(USUAL, 8, packages=NEW_STACK)}, time=lambda day: FIRST_DAY + timedelta(days=day**2 / 20)
    )

    [change] = only(base, gaps).changes

    assert (change.place.start, change.attribution.kind) == (45, "stack")


def test_monitoring_reads_the_newest_point_and_the_newest_change(base: SqlKnowledgeBase) -> None:
    days = {
        0: USUAL,
        20: slower(USUAL, 8, packages=NEW_STACK),
        57: slower(USUAL, 30, packages=NEW_STACK, telemetry=HOT),
    }
    base.add(history(days))
    base.add(history({0: USUAL}, indicator="sort", seed=2))

    matmul, sort = newest_states(base, now=NOW)

    assert matmul.change is not None
    assert (matmul.change.attribution.kind, matmul.point.is_throttled) == ("clocks", True)
    assert matmul.change.place.ratio.high < 1
    assert matmul.change.time == FIRST_DAY.replace(minute=0, second=30) + timedelta(days=57)
    assert (sort.change, sort.point.is_throttled) == (None, False)
