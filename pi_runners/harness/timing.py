"""Warm-up to a steady state, calibrated loops, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple

from pi_runners.harness.contract import SamplingPlan

_WINDOW = 4
_SETTLED_SHARE = 0.05
_WIDEST_SPREAD = 0.05
_MOST_SAMPLES = 3
"""At most this many times the samples of the plan."""


class ClockError(Exception):
    """Raised when the clock did not advance over a timed region."""


class Timing(NamedTuple):
    """Samples of one computation.

    Attributes:
        samples: Seconds per call.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the warm-up had stopped getting faster.
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


def measure(run: Callable[[], Any], synchronise: Callable[[Any], None], plan: SamplingPlan) -> Timing:
    """Time a computation: warm up until it is steady, find how often to call it in a sample, take the samples.

    Args:
        run: Starts the computation.
        synchronise: Waits for the device.
        plan: How many samples, how long each, how long a warm-up at most.
    """
    return measure_stretches(lambda loops: time_calls(run, synchronise, loops), plan)


def measure_stretches(time_stretch: Callable[[int], float], plan: SamplingPlan) -> Timing:
    """Warm up until stretches of calls stop getting faster, find how many calls a sample takes, take the samples.

    A warm-up ends when the faster one of two stretches is no more than 5 % faster than that of the two before them.
    Other work on the machine only ever makes a stretch slower: it must not keep a warm-up from ending, as a limit on
    the spread would. Those last two stretches ran in the steady state, and so they are the first two samples.

    Samples are added, up to three times as many, while their quartiles lie more than 5 % apart: where other work slows
    about half of them down, the median of a few is now one speed, now the other.

    Args:
        time_stretch: Makes a number of calls and returns the seconds per call.
        plan: How many samples, how long each, how long a warm-up at most.
    """
    loops, spent, steady = 1, 0.0, False
    recent: List[float] = []
    while not steady and (spent < plan.max_warmup_seconds or not recent):
        seconds = time_stretch(loops)
        spent += seconds * loops
        if seconds * loops < plan.min_seconds:
            # Not more than tenfold at once: the first calls are slower than those to come.
            loops = max(loops + 1, min(loops * 10, int(plan.min_seconds / seconds) + 1))
            recent = []
            continue
        recent = (recent + [seconds])[-_WINDOW:]
        half = _WINDOW // 2
        steady = len(recent) == _WINDOW and min(recent[half:]) >= (1 - _SETTLED_SHARE) * min(recent[:half])
    samples = recent[_WINDOW // 2 :][: plan.samples] if steady else []
    warmup_seconds = spent - sum(samples) * loops
    while not are_enough(samples, plan.samples):
        samples.append(time_stretch(loops))
    return Timing(samples, loops, warmup_seconds, steady)


def are_enough(samples: List[float], least: int) -> bool:
    """Whether there are so many samples that no more are needed: three times the least, or quartiles that agree."""
    if len(samples) < least or len(samples) >= _MOST_SAMPLES * least:
        return len(samples) >= least
    ordered, quarter = sorted(samples), len(samples) // 4
    return ordered[-1 - quarter] <= (1 + _WIDEST_SPREAD) * ordered[quarter]
