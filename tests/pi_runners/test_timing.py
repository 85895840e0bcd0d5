"""Warm-up, calibration and samples on a fake clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

from pi_runners.harness import timing
from pi_runners.harness.contract import SamplingPlan


class Clock:
    """A clock that advances only while the fake device computes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def computation(self, *seconds: float, then: Iterable[float] | None = None) -> Callable[[], int]:
        """Return a computation whose calls take these seconds, then those of ``then`` (default: the last one again)."""
        durations = itertools.chain(seconds, itertools.repeat(seconds[-1]) if then is None else then)

        def run() -> int:
            self.calls += 1
            self.now += next(durations)
            return self.calls

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def plan(samples: int = 3, min_seconds: float = 0.0, warmup: float = 1000.0) -> SamplingPlan:
    return SamplingPlan(samples=samples, min_seconds=min_seconds, max_warmup_seconds=warmup)


def no_wait(_: object) -> None:
    """Return at once, as for an idle device."""


def test_a_sample_is_the_time_of_one_call(clock: Clock) -> None:
    result = timing.measure(clock.computation(2.0), no_wait, plan(samples=4))

    assert result.samples == [2.0] * 4
    assert result.loops == 1


def test_calls_are_repeated_until_a_sample_is_long_enough(clock: Clock) -> None:
    result = timing.measure(clock.computation(0.25), no_wait, plan(min_seconds=1.0))

    assert result.loops == 5
    assert result.samples == pytest.approx([0.25] * 3, rel=1e-12)


def test_a_sample_that_is_just_long_enough_is_not_prolonged(clock: Clock) -> None:
    assert timing.measure(clock.computation(0.5), no_wait, plan(min_seconds=0.5)).loops == 1


def test_loops_grow_tenfold_at_most(clock: Clock) -> None:
    # By the first call, a million calls are needed; later calls are a thousand times slower.
    result = timing.measure(clock.computation(1.0 / 2**20, 1.0 / 2**10), no_wait, plan(min_seconds=1.0))

    assert result.loops == 1025
    # Four rounds of warm-up, of which the last two are samples, and a third sample.
    assert clock.calls == 1 + 10 + 100 + 1000 + (4 + 1) * 1025


def test_loops_grow_while_samples_are_too_short(clock: Clock) -> None:
    # By the first call, two loops are enough; later calls are faster.
    result = timing.measure(clock.computation(0.75, 0.25), no_wait, plan(min_seconds=1.0))

    assert result.loops * 0.25 >= 1.0
    assert result.loops == 5


def test_the_warm_up_lasts_until_calls_stop_getting_faster(clock: Clock) -> None:
    result = timing.measure(clock.computation(5.0, 4.0, 3.0, 2.0, 1.0), no_wait, plan(samples=2))

    assert result.steady
    # The last two calls are no faster than the two before them, and become the samples.
    assert result.warmup_seconds == 5 + 4 + 3 + 2 + 1
    assert result.samples == [1.0, 1.0]
    assert clock.calls == 7


@pytest.mark.parametrize(
    ("samples", "warmup", "start", "stretches"),
    # The last two stretches of a steady warm-up are samples; one more than the plan's is in the window, too.
    [(5, 1000.0, 6.0 + 3.0 + 1.5, 5), (1, 1000.0, 6.0 + 3.0 + 1.5, 2), (2, 6.0, 6.0, 4)],
)
def test_the_window_of_the_samples_contains_every_stretch_from_the_first_sample_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, samples: int, warmup: float, start: float, stretches: int
) -> None:
    monkeypatch.setattr("time.time", lambda: clock.now)

    result = timing.measure(clock.computation(6.0, 3.0, 1.5, 1.5), no_wait, plan(samples=samples, warmup=warmup))

    assert result.window is not None
    assert result.window.started - 100.0 == start
    assert result.window.stretches == stretches
    assert result.window.seconds == result.window.timed_seconds == clock.now - 100.0 - start
    assert result.document()["window"] == result.window._asdict()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 64.0])
@pytest.mark.parametrize(("faster", "calls"), [(0.96, 4), (0.94, 6)])
def test_calls_that_are_less_than_five_percent_faster_end_the_warm_up(
    clock: Clock, faster: float, calls: int, unit: float
) -> None:
    result = timing.measure(clock.computation(unit, unit, unit, faster * unit), no_wait, plan(samples=2))

    assert result.steady
    # Both samples are calls of the warm-up.
    assert clock.calls == calls


def test_other_work_on_the_machine_does_not_prolong_the_warm_up(clock: Clock) -> None:
    result = timing.measure(clock.computation(1.0, 100.0, 3.0, 1.0), no_wait, plan())

    assert result.steady
    assert result.warmup_seconds == 1 + 100
    assert result.samples[:2] == [3.0, 1.0]


def test_a_warm_up_that_never_becomes_steady_ends_after_the_maximum_time(clock: Clock) -> None:
    halved = (64.0 / 2**i for i in itertools.count(1))

    result = timing.measure(clock.computation(64.0, then=halved), no_wait, plan(samples=2, warmup=125.0))

    assert not result.steady
    assert result.warmup_seconds == 64 + 32 + 16 + 8 + 4 + 2
    # No sample is from the warm-up; because samples never agree, there are three times as many.
    assert result.samples == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_the_warm_up_is_a_single_call_if_its_maximum_time_is_zero(clock: Clock) -> None:
    result = timing.measure(clock.computation(7.0, 1.0), no_wait, plan(samples=2, warmup=0.0))

    assert not result.steady
    assert result.warmup_seconds == 7.0
    assert result.samples == [1.0, 1.0]


def test_samples_that_are_too_short_do_not_count_as_steady(clock: Clock) -> None:
    # The first sample is too short, although its time per call is that of the others.
    result = timing.measure(clock.computation(0.5), no_wait, plan(min_seconds=1.0))

    assert result.loops == 3
    assert result.warmup_seconds == 0.5 + 2 * 3 * 0.5


def with_slow_calls(share: float) -> Iterable[float]:
    """Return the seconds of calls of which this share, evenly distributed, takes twice as long."""
    return (2.0 if (number * share) % 1.0 < share else 1.0 for number in itertools.count(1))


@pytest.mark.parametrize(("share", "count"), [(0.0, 8), (0.2, 8), (0.5, 24)])
def test_more_samples_are_taken_if_they_vary(clock: Clock, share: float, count: int) -> None:
    assert (
        len(timing.measure(clock.computation(1.0, then=with_slow_calls(share)), no_wait, plan(samples=8)).samples)
        == count
    )


def test_sampling_ends_when_the_samples_agree(clock: Clock) -> None:
    # Three of the first eight samples are slow: more than a quarter of eight, but not of twelve.
    result = timing.measure(clock.computation(1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0), no_wait, plan(samples=8))

    assert result.samples == [1.0, 1.0, 2.0, 2.0, 2.0] + [1.0] * 7


@pytest.mark.parametrize(("distance", "more"), [(0.049, False), (0.051, True)])
def test_samples_agree_if_their_quartiles_differ_by_less_than_five_percent(
    clock: Clock, distance: float, more: bool
) -> None:
    seconds = itertools.cycle([1.0, 1.0 + distance])

    result = timing.measure(clock.computation(1.0, then=seconds), no_wait, plan(samples=8))

    assert (len(result.samples) > 8) is more


def test_waiting_for_the_result_is_timed_and_waiting_for_earlier_work_is_not(clock: Clock) -> None:
    results: list[object] = []

    def wait(result: object) -> None:
        results.append(result)
        clock.now += 100.0 if result is None else 4.0

    seconds = timing.time_calls(clock.computation(1.0), wait, 2)

    assert seconds == (1.0 + 1.0 + 4.0) / 2
    assert results == [None, 2]


@pytest.mark.parametrize("step", [0.0, -1.0])
def test_a_clock_that_does_not_advance_or_goes_back_is_an_error(clock: Clock, step: float) -> None:
    with pytest.raises(timing.ClockError, match="clock"):
        timing.time_calls(clock.computation(step), no_wait, 1)


def test_the_document_contains_the_rounded_samples_and_the_warm_up() -> None:
    result = timing.Timing(samples=[1.23456789, 2e-9 / 3], loops=7, warmup_seconds=0.12345678, steady=True)

    assert result.document() == {
        "status": "ok",
        "samples": [1.23457, 6.66667e-10],
        "loops": 7,
        "warmup_seconds": 0.123457,
        "steady": True,
    }
