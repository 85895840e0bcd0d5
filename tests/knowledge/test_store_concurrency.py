"""Eight writers and four readers at once: nothing is lost, and no reading sees a part of a transaction."""

from __future__ import annotations

import pytest

from benchmarks.concurrency import HALF, Outcome, measure, show


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_no_observation_of_eight_writers_and_four_readers_is_lost(address: str, seconds: float) -> None:
    outcome = measure(address, seconds)

    assert outcome.stored == outcome.acknowledged
    assert {f"own-{number}-0" for number in range(8)} <= outcome.stored.keys()
    assert min(outcome.stored.values()) >= HALF
    assert outcome.torn == ()
    assert outcome.damage == ()
    assert all(outcome.seconds[name] for name in ("add", "list blocks", "first observation", "whole block"))


def test_a_surplus_in_one_block_does_not_hide_a_loss_in_another(capsys: pytest.CaptureFixture[str]) -> None:
    acknowledged, stored = {"a": 50, "b": 50, "c": 50}, {"a": 25, "b": 75, "d": 25}

    show("SQLite", Outcome(seconds={}, acknowledged=acknowledged, stored=stored, torn=(), damage=()))

    assert capsys.readouterr().out == (
        "SQLite: 150 observations acknowledged, 75 lost, 50 that nobody acknowledged, 0 torn readings, 0 damages\n"
    )
