"""Warm-up to a steady state, calibrated loops, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, List, NamedTuple, Tuple

WINDOW = 5
STEADY_SPREAD = 0.1


class Timing(NamedTuple):
    """Samples of one computation.

    Attributes:
        samples: Seconds per call.
        loops: Calls per sample.
        warmup_seconds: Time spent before the first sample.
        steady: Whether the last warm-up samples agreed.
        result: The last result.
    """

    samples: List[float]
    loops: int
    warmup_seconds: float
    steady: bool
    result: Any


def time_calls(run: Callable[[], Any], synchronise: Callable[[Any], None], loops: int) -> Tuple[float, Any]:
    """Return seconds per call over ``loops`` calls, the device's work included, and the last result."""
    synchronise(None)
    result = None
    started = time.perf_counter()
    for _ in range(loops):
        result = run()
    synchronise(result)
    return (time.perf_counter() - started) / loops, result


def measure(
    run: Callable[[], Any],
    synchronise: Callable[[Any], None],
    samples: int,
    min_seconds: float,
    max_warmup_seconds: float,
) -> Timing:
    """Time a computation.

    Args:
        run: Starts the computation.
        synchronise: Waits for the device.
        samples: How many samples to take.
        min_seconds: Least duration of one sample; calls are repeated within it.
        max_warmup_seconds: The warm-up ends here even where the timings have not settled.
    """
    started = time.perf_counter()
    loops = 1
    recent: List[float] = []
    steady = False
    result = None
    while not steady and (time.perf_counter() - started < max_warmup_seconds or not recent):
        seconds, result = time_calls(run, synchronise, loops)
        if seconds * loops < min_seconds:
            # Not more than tenfold at once: the first calls are slower than those to come.
            loops = max(loops + 1, min(loops * 10, int(min_seconds / max(seconds, 1e-9)) + 1))
            recent = []
            continue
        recent = (recent + [seconds])[-WINDOW:]
        middle = sorted(recent)[len(recent) // 2]
        steady = len(recent) == WINDOW and max(recent) - min(recent) <= STEADY_SPREAD * middle
    warmup = time.perf_counter() - started
    taken = []
    for _ in range(samples):
        seconds, result = time_calls(run, synchronise, loops)
        taken.append(seconds)
    return Timing(taken, loops, warmup, steady, result)
