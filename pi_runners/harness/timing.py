"""Times computations: warm-up until the timings are steady, calibration of loops, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple

from pi_runners.harness.contract import SamplingPlan

_WINDOW = 4
_SETTLED_SHARE = 0.05
_WIDEST_SPREAD = 0.05
_MOST_SAMPLES = 3
"""Maximum number of samples, as a multiple of the plan's."""


class ClockError(Exception):
    """Raised when the clock did not advance over a timed region."""


class Timing(NamedTuple):
    """Samples of one computation.

    Attributes:
        samples: Seconds per call.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the timings had stopped decreasing at the end of the warm-up.
    """

    samples: List[float]
    loops: int
    warmup_seconds: float
    steady: bool

    def document(self) -> Dict[str, Any]:
        """Return the timing as JSON-ready values."""
        return {
            "status": "ok",
            "samples": rounded(self.samples),
            "loops": self.loops,
            "warmup_seconds": round(self.warmup_seconds, 6),
            "steady": self.steady,
        }


def rounded(seconds: List[float]) -> List[float]:
    """Round seconds to six significant digits.

    Further digits are noise of the clock, and would double the size of observation files.
    """
    return [float("{:.6g}".format(value)) for value in seconds]


def time_calls(run: Callable[[], Any], synchronise: Callable[[Any], None], loops: int) -> float:
    """Return the seconds per call of a computation over ``loops`` calls, including the work of the device.

    Raises:
        ClockError: If the clock did not advance.
    """
    synchronise(None)
    result = None
    # A monotonic clock: changes of the system's time do not affect it.
    started = time.perf_counter()
    for _ in range(loops):
        # Free the last result first; otherwise every call needs fresh memory, and page faults are timed.
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
    """Warm up a computation, calibrate the number of calls in a sample, and take the samples."""
    return measure_stretches(lambda loops: time_calls(run, synchronise, loops), plan)


def measure_stretches(time_stretch: Callable[[int], float], plan: SamplingPlan) -> Timing:
    """Warm up until stretches of calls stop getting faster, calibrate the calls of a sample, take the samples.

    The warm-up ends when the faster of the last two stretches is at most 5 % faster than the faster of the two before
    them. Other work on the machine only makes a stretch slower; a limit on the spread would let it prolong the warm-up.
    The last two stretches ran in the steady state, so they are the first two samples.

    Samples are added, up to three times the plan's number, while their quartiles differ by more than 5 %: where other
    work slows about half of the samples down, the median of a few samples jumps between two speeds.

    ``time_stretch`` makes a number of calls and returns the seconds per call.
    """
    loops, spent, steady = 1, 0.0, False
    recent: List[float] = []
    while not steady and (spent < plan.max_warmup_seconds or not recent):
        seconds = time_stretch(loops)
        spent += seconds * loops
        if seconds * loops < plan.min_seconds:
            # At most tenfold in one step: the first calls are slower than later ones.
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
    """Return whether no more samples are needed: their quartiles agree, or there are three times the minimum."""
    if len(samples) < least or len(samples) >= _MOST_SAMPLES * least:
        return len(samples) >= least
    ordered, quarter = sorted(samples), len(samples) // 4
    return ordered[-1 - quarter] <= (1 + _WIDEST_SPREAD) * ordered[quarter]
