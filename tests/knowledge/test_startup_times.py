"""Measured import times: reported for exactly the measured version and kind of machine, never predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packaging.version import Version

from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.startup import startup_times
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import MACHINE, observation

ZEN5 = HardwareProfile(name="other", cpu=Cpu(architecture="x86_64", microarchitecture="zen5"))
ARM = HardwareProfile(name="arm", cpu=Cpu(architecture="aarch64", microarchitecture="neoverse_v1"))


def startup(seconds: float, *, round: int, version: int = 2, arm: int = 0, **changes: Any) -> Observation:
    """Return an invented run of the indicator with NumPy 2.0.0."""
    run = observation(round=round, arm=arm)
    indicator = replace(run.indicator, name="startup", version=version, parameters={"n": 64})
    metrics = {"import_seconds": seconds, "memory_after_import_bytes": 30e6 + 1e6 * round}
    return replace(run, **{"indicator": indicator, "metrics": metrics, "schema": 2, **changes})


def store_of(*observations: Observation) -> SqlKnowledgeBase:
    store = open_knowledge_base("sqlite://", shipped=False)
    store.add(observations)
    return store


def test_the_median_of_the_newest_definition_is_reported() -> None:
    runs = [startup(seconds, round=number) for number, seconds in enumerate((0.2, 0.1, 0.9))]
    with store_of(*runs, startup(5.0, round=0, version=1, arm=1)) as store:
        (time,) = startup_times(store, {"numpy": Version("2.0")}, hardware=MACHINE)

    assert (time.import_seconds, time.memory_bytes, time.runs) == (0.2, 31e6, 3)
    assert (time.framework, time.machine) == ("numpy", "zen4")
    assert time.indicator == "startup@2[n=64] float32 numpy/cpu"


def test_nothing_is_reported_for_other_versions_architectures_and_settings() -> None:
    with store_of(startup(0.1, round=0), startup(0.2, round=0, arm=1, settings={"threads": 1}, hardware=ARM)) as store:
        assert startup_times(store, {"numpy": Version("2.0.1")}, hardware=MACHINE) == ()
        assert startup_times(store, {"numpy": Version("2.0.0")}, hardware=ARM) == ()
        assert startup_times(store, {"torch": Version("2.0.0")}, hardware=MACHINE) == ()


def test_the_same_microarchitecture_counts_before_others() -> None:
    others = [startup(0.2, round=number, arm=1, block="b2", hardware=ZEN5) for number in range(5)]
    with store_of(startup(0.1, round=0)) as store:
        (only,) = startup_times(store, {"numpy": Version("2.0.0")}, hardware=ZEN5)
        store.add(others)
        (own,) = startup_times(store, {"numpy": Version("2.0.0")}, hardware=ZEN5)
        (first,) = startup_times(store, {"numpy": Version("2.0.0")}, hardware=MACHINE)

    assert [(t.machine, t.import_seconds, t.runs) for t in (only, own, first)] == [
        ("zen4", 0.1, 1),
        ("zen5", 0.2, 5),
        ("zen4", 0.1, 1),
    ]


def test_a_source_without_trust_does_not_count() -> None:
    store = open_knowledge_base("sqlite://", shipped=False)
    with store:
        store.add([startup(0.1, round=0)], source="stranger")
        store.trust("stranger", 0.2)

        assert startup_times(store, {"numpy": Version("2.0.0")}, hardware=MACHINE) == ()


def test_memory_that_the_system_did_not_report_is_not_zero() -> None:
    with store_of(startup(0.1, round=0, metrics={"import_seconds": 0.1, "memory_after_import_bytes": 0.0})) as store:
        (time,) = startup_times(store, {"numpy": Version("2.0.0")}, hardware=MACHINE)

    assert time.memory_bytes is None
