"""Times computations: warm-up until the timings are steady, calibration of loops, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from pi_runners.harness.contract import SamplingPlan

_WINDOW = 4
_SETTLED_SHARE = 0.05
_WIDEST_SPREAD = 0.05
_MOST_SAMPLES = 3
"""Maximum number of samples, as a multiple of the plan's."""


class ClockError(Exception):
    """Raised when the clock did not advance over a timed region."""


class SampleWindow(NamedTuple):
    """Period in which the samples of a computation were taken, for what is measured outside of this process.

    Attributes:
        started: Start, seconds since the epoch.
        seconds: Length, by the monotonic clock.
        timed_seconds: Seconds of it in which calls were timed; the rest is work of the harness.
        stretches: Number of timed stretches; each has as many calls as a sample.
    """

    started: float
    seconds: float
    timed_seconds: float
    stretches: int


class Timing(NamedTuple):
    """Samples of one computation.

    Attributes:
        samples: Seconds per call.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the timings had stopped decreasing at the end of the warm-up.
        window: When the samples were taken.
    """

    samples: List[float]
    loops: int
    warmup_seconds: float
    steady: bool
    window: Optional[SampleWindow] = None

    def document(self) -> Dict[str, Any]:
        """Return the timing as JSON-ready values."""
        document = {
            "status": "ok",
            "samples": rounded(self.samples),
            "loops": self.loops,
            "warmup_seconds": round(self.warmup_seconds, 6),
            "steady": self.steady,
        }
        return {**document, "window": self.window._asdict()} if self.window else document


class Stopwatch:
    """Two clocks that start together: the system's time places a period, the monotonic clock measures it."""

    def __init__(self) -> None:
        self._started, self._begin = time.time(), time.perf_counter()

    def window(self, timed_seconds: float, stretches: int) -> SampleWindow:
        """Return the period from the start until now."""
        return SampleWindow(self._started, time.perf_counter() - self._begin, timed_seconds, stretches)


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
    starts: List[Stopwatch] = []
    half = _WINDOW // 2
    while not steady and (spent < plan.max_warmup_seconds or not recent):
        starts = (starts + [Stopwatch()])[-half:]
        seconds = time_stretch(loops)
        spent += seconds * loops
        if seconds * loops < plan.min_seconds:
            # At most tenfold in one step: the first calls are slower than later ones.
            loops = max(loops + 1, min(loops * 10, int(plan.min_seconds / seconds) + 1))
            recent = []
            continue
        recent = (recent + [seconds])[-_WINDOW:]
        steady = len(recent) == _WINDOW and min(recent[half:]) >= (1 - _SETTLED_SHARE) * min(recent[:half])
    timed = recent[half:] if steady else []
    start = starts[0] if steady else Stopwatch()
    samples = timed[: plan.samples]
    warmup_seconds = spent - sum(samples) * loops
    while not are_enough(samples, plan.samples):
        samples.append(time_stretch(loops))
    timed += samples[len(timed) :]
    return Timing(samples, loops, warmup_seconds, steady, start.window(sum(timed) * loops, len(timed)))


def are_enough(samples: List[float], least: int) -> bool:
    """Return whether no more samples are needed: their quartiles agree, or there are three times the minimum."""
    if len(samples) < least or len(samples) >= _MOST_SAMPLES * least:
        return len(samples) >= least
    ordered, quarter = sorted(samples), len(samples) // 4
    return ordered[-1 - quarter] <= (1 + _WIDEST_SPREAD) * ordered[quarter]
