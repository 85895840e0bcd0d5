"""Eight writers and four readers at once: nothing is lost, and no reading sees a part of a transaction."""

from __future__ import annotations

import pytest

from benchmarks.concurrency import HALF, measure


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_eight_writers_and_four_readers_lose_nothing(address: str, seconds: float) -> None:
    outcome = measure(address, seconds)

    assert outcome.found == outcome.acknowledged
    assert {f"own-{number}-0" for number in range(8)} <= outcome.found.keys()
    assert min(outcome.found.values()) >= HALF
    assert outcome.torn == ()
    assert outcome.damages == ()
    assert all(outcome.seconds[name] for name in ("add", "list blocks", "first observation", "whole block"))
