"""Change points of a sequence of times: when the speed changed, by how much, and with which value that became certain.

Values are looked at one after the other, as daily runs arrive, and each look is a test: what counts is the number of
false alarms of all looks. At each look, the values since the last change are divided at every place, and both parts are
compared with Student's t (the change-point model of Hawkins, Qiu and Kang, "The changepoint model for statistical
process control", Journal of Quality Technology 35, 2003). A change is certain if the largest t exceeds a limit, which
is the same at every look. The parts before the last change say how large the noise is.

- Slow runs: a value that no neighbour confirms is moved towards its neighbours first, so that a single one is no change
  (winsorised as in Hawkins, "Robustification of cumulative sum charts by winsorization", Journal of Quality Technology
  25, 1993). Two consecutive ones may be one.
- Noise that lasts for several runs: the error of a mean is that of an autoregressive process of the first order, whose
  correlation is estimated from the values.
- With more values, the place of a change becomes more exact. Changes that the later values contradict are removed, the
  weakest first, as in the merge step of Fleming et al., "Hunter: using change point detection to hunt for performance
  regressions", ICPE 2023 (https://doi.org/10.1145/3578244.3583719).

`docs/reference/evidence/history.md` compares it with E-divisive means as in Apache Otava.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from knowledge.domain.ratio import CONFIDENCE, Ratio

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

ALARM = 1.75e-4
"""Two-sided probability of Student's t beyond which a change is certain. The value comes from simulations
(`python -m benchmarks.change_points`): with it, a series without changes has less than one false alarm in a year."""
RETENTION = 2e-3
"""The same for a change that was certain, with the values that came later."""
FIRST_LOOK = 8
"""Number of values before the first look: fewer do not say how large the noise is."""
LEAST_AFTER = 2
"""Smallest number of values on each side of a change."""
NOISE_FLOOR = 1e-3
"""Smallest standard deviation of the logarithm of a value. Smaller differences are no change that a user would notice,
and a series of equal values has none."""
_CLIP = 3.0
"""Standard deviations that a value may be beyond its neighbours."""
_CLIP_WINDOW = 50
"""Number of the last differences of neighbours that say what a standard deviation is there."""
_CONFIRMATION = {2: 3.0, 3: 2.0, 4: 1.5, 5: 1.0, 6: 0.5}
"""Standard deviations from the values before a change that each value after it must have, by their number: one value
far away and a usual one are no change."""
_WINDOW = 256
"""Number of values since the last change that are compared; older ones do not count."""
_STEP = 32
"""Number of looks that are computed together."""
_MOST_CORRELATION = 0.8
_CORRELATION_STEP = 0.05
_PRIOR_CORRELATION, _PRIOR_PAIRS = 0.3, 15
"""Number of values without correlation that the estimate of the correlation starts from."""
_NORMAL = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""
_LOCATION = -math.log(1 - math.sqrt(CONFIDENCE))
"""Difference of log likelihoods that bounds the confidence set of the place of a change: a limit for small changes
(Yao, "Approximating the distribution of the maximum likelihood estimate of the change-point in a sequence of
independent random variables", Annals of Statistics 15, 1987)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change of speed.

    Attributes:
        start: Number of the first value after the change, from 0.
        earliest: Smallest number that it may be, with 95 % confidence.
        latest: Largest number that it may be.
        certain: Number of the value with which it became certain.
        ratio: Speed after the change relative to the speed before it, with its 95 % interval.
    """

    start: int
    earliest: int
    latest: int
    certain: int
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanState:
    """Where a scan ended, to continue it when further values arrive.

    Attributes:
        length: Number of values that were looked at.
        alarms: Each change that became certain: the number of the first value after it, and that of the value with
            which it became certain. Later values may contradict it.
    """

    length: int = 0
    alarms: tuple[tuple[int, int], ...] = ()


def scan(seconds: Sequence[float], state: ScanState | None = None) -> ScanState:
    """Look at the values that are new since a state, and return the state after the last one.

    Args:
        seconds: Seconds per call, oldest first; all values, also those of the state.
        state: State after an earlier scan of the first of these values; none to start with the first.

    Returns:
        The state, which is the same whether the values were scanned together or one by one.
    """
    state = state or ScanState()
    if len(seconds) <= max(state.length, FIRST_LOOK - 1):
        return ScanState(length=len(seconds), alarms=state.alarms)
    values = _Values(seconds)
    alarms = list(state.alarms)
    look = max(state.length, FIRST_LOOK - 1)
    while look < len(seconds):
        # Groups depend on numbers and alarms alone, so that the result does not depend on where a scan starts.
        begin = max(look - look % _STEP, alarms[-1][1] + 1 if alarms else 0)
        alarm = values.first_alarm(alarms, begin, look)
        if alarm is not None:
            alarms.append(alarm)
        look = _end_of_group(begin) if alarm is None else alarm[1] + 1
    return ScanState(length=len(seconds), alarms=tuple(alarms))


def change_points(seconds: Sequence[float], state: ScanState) -> tuple[ChangePoint, ...]:
    """Return the changes of a scan that the later values do not contradict, in order.

    Args:
        seconds: The values of the scan.
        state: State after the last of them.
    """
    if not state.alarms:
        return ()
    values = _Values(seconds)
    alarms = list(state.alarms)
    while alarms:
        changes, margins = values.locate(alarms)
        weakest = min(range(len(alarms)), key=margins.__getitem__)
        if margins[weakest] >= 0:
            return tuple(changes)
        del alarms[weakest]
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Noise of values around the mean between changes.

    Attributes:
        squares: Sum of the squared differences from the means.
        freedom: Degrees of freedom of this sum.
        correlation: Correlation of neighbours.
    """

    squares: float
    freedom: int
    correlation: float


class _Values:
    """Logarithms of seconds; a value that no neighbour confirms is moved towards its neighbours."""

    def __init__(self, seconds: Sequence[float]) -> None:
        import numpy as np

        logs = np.log(np.asarray(seconds, dtype=float))
        reach = _CLIP * _deviations(logs)
        # A neighbour that is missing confirms nothing.
        before = np.concatenate((logs[1:2], logs[:-1]))
        after = np.concatenate((logs[1:], logs[-2:-1]))
        self._size = len(logs)
        self._clipped: Array = np.clip(logs, np.minimum(before, after) - reach, np.maximum(before, after) + reach)
        # The last value of a look has no neighbour after it; the one before it may be a single slow run.
        before = np.concatenate((self._clipped[:1], self._clipped[:-1]))
        self._last: Array = np.clip(logs, before - reach, before + reach)

    def first_alarm(self, alarms: Sequence[tuple[int, int]], begin: int, look: int) -> tuple[int, int] | None:
        """Return the first change that becomes certain with a value of a group of looks.

        Args:
            alarms: The changes before.
            begin: First look of the group.
            look: First look of the group that was not made yet.
        """
        import numpy as np

        starts = [start for start, _ in alarms]
        last_look = _end_of_group(begin)
        first = max(starts[-1] if starts else 0, last_look - _WINDOW)
        # The squares of the last part are computed at each look below.
        noise = self._noise(starts, begin, parts=len(starts))
        looks = np.arange(look, min(last_look, self._size))
        window = self._clipped[first : looks[-1] + 1]
        sums = np.concatenate(([0.0], np.cumsum(window)))
        squares = np.concatenate(([0.0], np.cumsum(window**2)))
        places = np.arange(LEAST_AFTER, len(window) - LEAST_AFTER + 1)
        sizes = (looks - first + 1)[:, None]
        last = self._last[looks][:, None]
        total = sums[looks - first][:, None] + last
        total_squares = squares[looks - first][:, None] + last**2
        is_possible = sizes - places >= LEAST_AFTER
        if not is_possible.any():
            return None
        after = np.where(is_possible, sizes - places, 1)
        before_mean = sums[places] / places
        gap = (total - sums[places]) / after - before_mean
        within = total_squares - total**2 / sizes - gap**2 * places * after / sizes
        freedom = noise.freedom + sizes - 2
        variance = np.maximum((noise.squares + np.maximum(within, 0.0)) / freedom, NOISE_FLOOR**2)
        errors = _errors_of_means(noise.correlation)
        t = np.abs(gap) / np.sqrt(variance * (errors[places] + errors[after]))
        rise = np.sign(gap) / np.sqrt(variance)
        for number, least in _CONFIRMATION.items():
            is_short = after == number
            weakest = self._weakest(looks, number, gap) - before_mean
            is_possible &= ~is_short | (rise * weakest >= least)
        t[~is_possible] = 0.0
        best = t.argmax(axis=1)
        is_certain = t[np.arange(len(looks)), best] > _limits(noise.correlation, ALARM)[freedom[:, 0]]
        if not is_certain.any():
            return None
        row = int(is_certain.argmax())
        return first + int(places[best[row]]), int(looks[row])

    def _weakest(self, looks: NDArray[np.int_], number: int, gap: Array) -> Array:
        """Return the last value of each look, or one of those before it, that is least far in the direction of a gap.

        Args:
            looks: Numbers of the last values; shape (looks,).
            number: How many of the last values count.
            gap: Difference of means; shape (looks, places), as the result.
        """
        import numpy as np

        back = np.maximum(looks[:, None] - np.arange(1, number), 0)
        values = np.concatenate((self._last[looks][:, None], self._clipped[back]), axis=1)
        return np.asarray(np.where(gap > 0, values.min(axis=1)[:, None], values.max(axis=1)[:, None]))

    def _noise(self, starts: Sequence[int], end: int, *, parts: int) -> _Noise:
        """Return the noise of the newest values before ``end``.

        Args:
            starts: Numbers of the first values after changes.
            end: Number after the last value.
            parts: Number of the parts between changes, oldest first, whose squares count; the correlation is of all.
        """
        squares = products = every = 0.0
        freedom = pairs = 0
        for number, (low, high) in enumerate(pairwise([0, *starts, end])):
            rest = self._clipped[max(low, end - _WINDOW, 0) : high]
            if len(rest) < LEAST_AFTER:
                continue
            rest = rest - rest.mean()
            own = float(rest @ rest)
            every += own
            products += float(rest[1:] @ rest[:-1])
            pairs += len(rest)
            if number < parts:
                squares += own
                freedom += len(rest) - 1
        # The correlation of the differences from an estimated mean is too small by about one over their number.
        corrected = products / every * pairs + 1 if every > 0 else 0.0
        correlation = (corrected + _PRIOR_CORRELATION * _PRIOR_PAIRS) / (pairs + _PRIOR_PAIRS)
        rounded = round(min(max(correlation, 0.0), _MOST_CORRELATION) / _CORRELATION_STEP) * _CORRELATION_STEP
        return _Noise(squares=squares, freedom=freedom, correlation=rounded)

    def locate(self, alarms: Sequence[tuple[int, int]]) -> tuple[list[ChangePoint], list[float]]:
        """Return each change with its most likely place and its size, and how far its t is from the limit."""
        noise = self._noise([start for start, _ in alarms], self._size, parts=len(alarms) + 1)
        freedom = max(noise.freedom, 1)
        deviation = max(math.sqrt(noise.squares / freedom), NOISE_FLOOR)
        errors = _errors_of_means(noise.correlation)
        places: list[tuple[int, int, int]] = []
        for number, (start, certain) in enumerate(alarms):
            low = places[-1][0] if places else 0
            high = alarms[number + 1][0] if number + 1 < len(alarms) else self._size
            places.append(self._place(low, max(start, low + 1), high, certain, errors * deviation**2))
        bounds = [0, *(place for place, *_ in places), self._size]
        changes, margins = [], []
        for number, ((start, earliest, latest), (_, certain)) in enumerate(zip(places, alarms, strict=True)):
            before, after = self._clipped[bounds[number] : start], self._clipped[start : bounds[number + 2]]
            variance = deviation**2 * float(errors[min(len(before), _WINDOW)] + errors[min(len(after), _WINDOW)])
            quantile = float(_limits(noise.correlation, 1 - CONFIDENCE)[freedom])
            ratio = Ratio(mean=float(before.mean() - after.mean()), variance=variance, quantile=quantile)
            change = ChangePoint(start=start, earliest=earliest, latest=latest, certain=certain, ratio=ratio)
            changes.append(change)
            limit = float(_limits(noise.correlation, RETENTION)[freedom])
            margins.append(abs(ratio.mean) / ratio.deviation - limit)
        return changes, margins

    def _place(self, low: int, start: int, high: int, certain: int, errors: Array) -> tuple[int, int, int]:
        """Return the most likely place of a change between two others, and the range of likely places.

        It is not after the value with which the change became certain.
        """
        import numpy as np

        low, high = max(low, start - _WINDOW), min(high, start + _WINDOW)
        if high - low < 2 * LEAST_AFTER:
            return start, start, start
        part = self._clipped[low:high]
        sums = np.cumsum(part)
        places = np.arange(LEAST_AFTER, min(len(part) - LEAST_AFTER, certain - low) + 1)
        after = len(part) - places
        gap = (sums[-1] - sums[places - 1]) / after - sums[places - 1] / places
        likelihood = gap**2 / (errors[np.minimum(places, _WINDOW)] + errors[np.minimum(after, _WINDOW)]) / 2
        best = int(likelihood.argmax())
        likely = np.flatnonzero(likelihood >= likelihood[best] - _LOCATION)
        return low + int(places[best]), low + int(places[likely[0]]), low + int(places[likely[-1]])


def _end_of_group(look: int) -> int:
    """Return the number after the last look of the group of a look."""
    return look - look % _STEP + _STEP


def _deviations(logs: Array) -> Array:
    """Return the standard deviation at each value, from the differences of neighbours until then."""
    import numpy as np

    differences = np.abs(np.diff(logs))
    # Missing differences are the largest ones: the median is that of the smaller ones.
    padded = np.concatenate((np.full(_CLIP_WINDOW - 1, np.inf), differences))
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(padded, _CLIP_WINDOW), axis=1)
    sizes = np.minimum(np.arange(1, len(windows) + 1), _CLIP_WINDOW)
    rows = np.arange(len(windows))
    medians = (windows[rows, (sizes - 1) // 2] + windows[rows, sizes // 2]) / 2
    deviations = np.maximum(medians * _NORMAL / math.sqrt(2), NOISE_FLOOR)
    # The first look is at these values together.
    deviations[: FIRST_LOOK - 2] = deviations[min(FIRST_LOOK - 2, len(deviations) - 1)]
    return np.concatenate((deviations[:1], deviations))


@lru_cache(maxsize=64)
def _errors_of_means(correlation: float) -> Array:
    """Return the variance of the mean of each number of values, relative to that of one value; shape (_WINDOW + 1,).

    The values are an autoregressive process of the first order.
    """
    import numpy as np

    sizes = np.arange(_WINDOW + 1, dtype=float)
    sizes[0] = 1.0
    # 1 + 2 sum over lags of (1 - lag / size) correlation ** lag, in closed form.
    lags = 1 - (1 - correlation**sizes) / (sizes * (1 - correlation))
    return np.asarray((1 + 2 * correlation / (1 - correlation) * lags) / sizes)


@lru_cache(maxsize=64)
def _limits(correlation: float, probability: float) -> Array:
    """Return the two-sided limit of Student's t for each number of degrees of freedom, from 0.

    Values that are correlated have fewer: about the share (1 - r) / (1 + r).
    """
    import numpy as np
    from scipy.special import stdtrit

    freedom = np.arange(2 * _WINDOW + 1) * (1 - correlation) / (1 + correlation)
    return np.asarray(-stdtrit(np.maximum(freedom, 1.0), probability / 2))
