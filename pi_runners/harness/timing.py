"""Warm-up to a steady state, calibrated loops, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple

from pi_runners.harness.contract import Plan

WINDOW = 5
STEADY_SPREAD = 0.1


class ClockError(Exception):
    """Raised when the clock did not advance over a timed region."""


class Timing(NamedTuple):
    """Samples of one computation.

    Attributes:
        samples: Seconds per call.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the last warm-up samples agreed.
    """

    samples: List[float]
    loops: int
    warmup_seconds: float
    steady: bool

    def document(self) -> Dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "status": "ok",
            "samples": rounded(self.samples),
            "loops": self.loops,
            "warmup_seconds": round(self.warmup_seconds, 6),
            "steady": self.steady,
        }


def rounded(seconds: List[float]) -> List[float]:
    """Round to what a clock can tell.

    Six digits are a millionth of a sample: what is behind them is the clock's noise, and doubles the size of a file.
    """
    return [float("{:.6g}".format(value)) for value in seconds]


def time_calls(run: Callable[[], Any], synchronise: Callable[[Any], None], loops: int) -> float:
    """Return seconds per call over ``loops`` calls, the device's work included; no result outlives them.

    Raises:
        ClockError: If the clock stood still or went back.
    """
    synchronise(None)
    result = None
    # Monotonic: setting the machine's time does not touch it.
    started = time.perf_counter()
    for _ in range(loops):
        # Let go first: with the last result still held, every call would need fresh memory, and time page faults.
        result = None
        result = run()
    synchronise(result)
    seconds = (time.perf_counter() - started) / loops
    if seconds <= 0:
        raise ClockError(
            "the monotonic clock went from {} to {} over a timed region".format(started, started + seconds)
        )
    return seconds


def measure(run: Callable[[], Any], synchronise: Callable[[Any], None], plan: Plan) -> Timing:
    """Time a computation: warm up until it is steady, find how often to call it in a sample, take the samples.

    Args:
        run: Starts the computation.
        synchronise: Waits for the device.
        plan: How many samples, how long each, how long a warm-up at most.
    """
    started = time.perf_counter()
    loops = 1
    recent: List[float] = []
    steady = False
    while not steady and (time.perf_counter() - started < plan.max_warmup_seconds or not recent):
        seconds = time_calls(run, synchronise, loops)
        if seconds * loops < plan.min_seconds:
            # Not more than tenfold at once: the first calls are slower than those to come.
            loops = max(loops + 1, min(loops * 10, int(plan.min_seconds / seconds) + 1))
            recent = []
            continue
        recent = (recent + [seconds])[-WINDOW:]
        middle = sorted(recent)[len(recent) // 2]
        steady = len(recent) == WINDOW and max(recent) - min(recent) <= STEADY_SPREAD * middle
    warmup = time.perf_counter() - started
    taken = [time_calls(run, synchronise, loops) for _ in range(plan.samples)]
    return Timing(taken, loops, warmup, steady)
