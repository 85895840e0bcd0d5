"""Warm-up, calibration and samples on a clock that the test moves: what is counted, and what is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

from pi_runners.harness import timing
from pi_runners.harness.contract import SamplingPlan


class Clock:
    """A clock that moves only while the made-up device works."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def takes(self, *seconds: float, then: Iterable[float] | None = None) -> Callable[[], int]:
        """Return a computation whose calls take these seconds, then those of ``then`` or the last one for ever."""
        durations = itertools.chain(seconds, itertools.repeat(seconds[-1]) if then is None else then)

        def run() -> int:
            self.calls += 1
            self.now += next(durations)
            return self.calls

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    instance = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: instance.now)
    return instance


def plan(samples: int = 3, at_least: float = 0.0, warmup: float = 1000.0) -> SamplingPlan:
    return SamplingPlan(samples=samples, min_seconds=at_least, max_warmup_seconds=warmup)


def nothing(_: object) -> None:
    """Wait for a device that has nothing to do."""


def test_a_sample_is_the_time_of_one_call(clock: Clock) -> None:
    result = timing.measure(clock.takes(2.0), nothing, plan(samples=4))

    assert result.samples == [2.0] * 4
    assert result.loops == 1


def test_calls_are_repeated_until_a_sample_is_long_enough(clock: Clock) -> None:
    result = timing.measure(clock.takes(0.25), nothing, plan(at_least=1.0))

    assert result.loops == 5
    assert result.samples == pytest.approx([0.25] * 3, rel=1e-12)


def test_a_sample_that_is_just_long_enough_is_not_prolonged(clock: Clock) -> None:
    assert timing.measure(clock.takes(0.5), nothing, plan(at_least=0.5)).loops == 1


def test_loops_grow_tenfold_at_most(clock: Clock) -> None:
    # One call says that a million are needed; those behind the first are a thousand times slower.
    result = timing.measure(clock.takes(1.0 / 2**20, 1.0 / 2**10), nothing, plan(at_least=1.0))

    assert result.loops == 1025
    # Four stretches of warm-up, the last two of them samples, and a third sample.
    assert clock.calls == 1 + 10 + 100 + 1000 + (4 + 1) * 1025


def test_loops_grow_while_samples_are_too_short(clock: Clock) -> None:
    # After the first slow call two loops seem to be enough, and then each call takes less.
    result = timing.measure(clock.takes(0.75, 0.25), nothing, plan(at_least=1.0))

    assert result.loops * 0.25 >= 1.0
    assert result.loops == 5


def test_the_warm_up_lasts_until_calls_stop_getting_faster(clock: Clock) -> None:
    result = timing.measure(clock.takes(5.0, 4.0, 3.0, 2.0, 1.0), nothing, plan(samples=2))

    assert result.steady
    # The last two are no faster than the two before them, and are the samples.
    assert result.warmup_seconds == 5 + 4 + 3 + 2 + 1
    assert result.samples == [1.0, 1.0]
    assert clock.calls == 7


@pytest.mark.parametrize("unit", [1e-6, 1.0, 64.0])
@pytest.mark.parametrize(("faster", "calls"), [(0.96, 4), (0.94, 6)])
def test_a_difference_below_5_percent_is_not_faster(clock: Clock, faster: float, calls: int, unit: float) -> None:
    result = timing.measure(clock.takes(unit, unit, unit, faster * unit), nothing, plan(samples=2))

    assert result.steady
    # Both samples are calls of the warm-up.
    assert clock.calls == calls


def test_other_work_on_the_machine_does_not_prolong_the_warm_up(clock: Clock) -> None:
    result = timing.measure(clock.takes(1.0, 100.0, 3.0, 1.0), nothing, plan())

    assert result.steady
    assert result.warmup_seconds == 1 + 100
    assert result.samples[:2] == [3.0, 1.0]


def test_a_warm_up_that_never_settles_ends_at_its_longest_time(clock: Clock) -> None:
    halved = (64.0 / 2**i for i in itertools.count(1))

    result = timing.measure(clock.takes(64.0, then=halved), nothing, plan(samples=2, warmup=125.0))

    assert not result.steady
    assert result.warmup_seconds == 64 + 32 + 16 + 8 + 4 + 2
    # None of them is from the warm-up, and as they never agree, there are three times as many.
    assert result.samples == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_without_warm_up_time_a_single_call_is_the_warm_up(clock: Clock) -> None:
    result = timing.measure(clock.takes(7.0, 1.0), nothing, plan(samples=2, warmup=0.0))

    assert not result.steady
    assert result.warmup_seconds == 7.0
    assert result.samples == [1.0, 1.0]


def test_shorter_samples_do_not_count_for_agreement(clock: Clock) -> None:
    # The first sample is too short, and its time per call is that of the others.
    result = timing.measure(clock.takes(0.5), nothing, plan(at_least=1.0))

    assert result.loops == 3
    assert result.warmup_seconds == 0.5 + 2 * 3 * 0.5


def slowed(share: float) -> Iterable[float]:
    """Seconds of calls of which this share takes twice as long, evenly spread."""
    return (2.0 if (number * share) % 1.0 < share else 1.0 for number in itertools.count(1))


@pytest.mark.parametrize(("share", "count"), [(0.0, 8), (0.2, 8), (0.5, 24)])
def test_more_samples_are_taken_where_they_vary(clock: Clock, share: float, count: int) -> None:
    assert len(timing.measure(clock.takes(1.0, then=slowed(share)), nothing, plan(samples=8)).samples) == count


def test_no_more_samples_are_taken_than_it_takes_to_agree(clock: Clock) -> None:
    # Three of the first eight are slow; that is more than a quarter of them, but not of twelve and more.
    result = timing.measure(clock.takes(1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0), nothing, plan(samples=8))

    assert result.samples == [1.0, 1.0, 2.0, 2.0, 2.0] + [1.0] * 7


@pytest.mark.parametrize(("apart", "more"), [(0.049, False), (0.051, True)])
def test_quartiles_agree_within_5_percent(clock: Clock, apart: float, more: bool) -> None:
    seconds = itertools.cycle([1.0, 1.0 + apart])

    result = timing.measure(clock.takes(1.0, then=seconds), nothing, plan(samples=8))

    assert (len(result.samples) > 8) is more


def test_waiting_for_the_device_counts_only_after_the_calls(clock: Clock) -> None:
    waited: list[object] = []

    def wait(result: object) -> None:
        waited.append(result)
        clock.now += 100.0 if result is None else 4.0

    seconds = timing.time_calls(clock.takes(1.0), wait, 2)

    assert seconds == (1.0 + 1.0 + 4.0) / 2
    assert waited == [None, 2]


@pytest.mark.parametrize("step", [0.0, -1.0])
def test_a_clock_that_does_not_advance_or_goes_back_is_an_error(clock: Clock, step: float) -> None:
    with pytest.raises(timing.ClockError, match="clock"):
        timing.time_calls(clock.takes(step), nothing, 1)


def test_the_document_has_the_samples_and_their_conditions() -> None:
    result = timing.Timing(samples=[1.23456789, 2e-9 / 3], loops=7, warmup_seconds=0.12345678, steady=True)

    assert result.document() == {
        "status": "ok",
        "samples": [1.23457, 6.66667e-10],
        "loops": 7,
        "warmup_seconds": 0.123457,
        "steady": True,
    }
