"""What all numerical checks share: which elements are compared, and that nothing wrong compares as right.

A result of up to ``EVERY`` elements is compared element by element, or in signed sums of a few of its rows, so that one
wrong element fails the check wherever it is. Of a larger result the first, the last and fresh random rows are compared.
Whether all its elements are finite the framework says itself; up to ``FINITE`` of them are also read. A single finite
wrong element of a larger result is found only where it is in a row that was compared.
"""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from operator import add, sub
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple

from pi_runners.harness.contract import Backend, decode, product

EVERY = 2**20
"""Elements up to which all are compared: about a quarter of a second in Python."""

FINITE = 2**24
"""Elements up to which all are read to see that they are finite: about half a second in Python."""

GROUP = 16
"""Rows in a signed sum: one wrong element must be off by 4 tolerances to be found, for a sixteenth of the work."""

_fresh = random.Random()


def worst_error(errors: Iterable[float]) -> float:
    """Return the largest error; infinity where one is no number, or where there is none at all."""
    found = list(errors)
    # `max` alone would pass over what is no number: `max(0.0, nan)` is 0.
    return max(found) if found and all(map(math.isfinite, found)) else math.inf


def difference(found: Sequence[Any], expected: Sequence[Any], scale: float = 1.0) -> float:
    """Return the largest difference of two rows over a scale; infinity where their lengths differ."""
    if len(found) != len(expected):
        return math.inf
    # Infinity minus infinity is no number, which `worst_error` notices.
    return worst_error(map(abs, map(sub, found, expected))) / scale


def pick(count: int, most: int) -> List[int]:
    """Return all of ``count`` places, or the first, the last, and fresh random ones, ``most`` in all."""
    if count <= max(1, most):
        return list(range(count))
    inner = _fresh.sample(range(1, count - 1), max(0, min(most, count) - 2)) if count > 2 else []
    return sorted({0, count - 1, *inner} if most > 1 else {_fresh.randrange(count)})


def pick_groups(count: int, most: int) -> List[List[int]]:
    """Split ``count`` rows into groups for signed sums; all groups, or ``most`` of them."""
    starts = range(0, count, GROUP)
    return [list(range(starts[i], min(count, starts[i] + GROUP))) for i in pick(len(starts), most)]


def random_signs(count: int) -> List[int]:
    """Return fresh random signs, 1 or -1."""
    return [_fresh.choice((1, -1)) for _ in range(count)]


def decoded_row(raw: bytes, columns: int, i: int) -> List[float]:
    """Return the numbers that row ``i`` of random bytes stands for."""
    return decode(raw[i * columns : (i + 1) * columns], "float32")


def signed_sum(rows: Iterable[Sequence[Any]], signs: Sequence[int]) -> List[Any]:
    """Return the sum of rows, each times its sign; empty where their lengths differ, so that it equals no sum."""
    total: List[Any] = []
    for number, (row, sign) in enumerate(zip(rows, signs)):
        if number == 0:
            total = list(row) if sign > 0 else [-x for x in row]
        elif len(row) != len(total):
            return []
        else:
            total = list(map(add if sign > 0 else sub, total, row))
    return total


class ReferenceFailedError(Exception):
    """Raised when what a result is to be compared with could not be computed: nothing is known of the result."""


@contextmanager
def making_reference() -> Iterator[None]:
    """Let an error inside count as one of the check, also where the code of a framework raised it.

    Raises:
        ReferenceFailedError: Instead of any exception inside.
    """
    try:
        yield
    except Exception as error:
        raise ReferenceFailedError("the reference failed: {}: {}".format(type(error).__name__, error)) from error


class Result:
    """A result of a framework as its elements, in the framework's own layout.

    Attributes:
        sound: Whether it has the shape that it must have; nothing else may be asked where it has not.
        whole: Whether it is small enough to be compared as a whole.
    """

    def __init__(self, backend: Backend, array: Any, shape: Sequence[int]) -> None:
        self._backend, self._array, self._shape = backend, array, tuple(shape)
        self.sound = backend.shape_of(array) == self._shape
        self.whole = product(shape) <= EVERY
        self._elements = backend.read_all(array, ()) if self.sound and self.whole else []

    def row(self, index: Tuple[int, ...]) -> List[Any]:
        """Return the elements behind the first axes' indices."""
        if not self.whole:
            return self._backend.read_all(self._array, index)
        size = product(self._shape[len(index) :])
        start = size * self._place(index)
        return self._elements[start : start + size]

    def channel(self, image: int, channel: int) -> List[Any]:
        """Return the pixels of one channel, of images in native layout."""
        if not self._backend.channels_last:
            return self.row((image, channel))
        if not self.whole:
            spatial = (slice(None),) * (len(self._shape) - 2)
            return self._backend.read_all(self._array, (image, *spatial, channel))
        pixels, channels = product(self._shape[1:-1]), self._shape[-1]
        start = image * pixels * channels
        return self._elements[start + channel : start + pixels * channels : channels]

    def finite(self) -> bool:
        """Whether all elements are finite: by the framework's own word, and by reading up to ``FINITE`` of them."""
        if not all(self._backend.all_finite(self._array, place) for place in stretches(self._shape, FINITE)):
            return False
        places = list(stretches(self._shape, EVERY))
        chosen = pick(len(places), max(1, FINITE // EVERY))
        return all(_is_finite(self._backend.read_all(self._array, places[i])) for i in chosen)

    def _place(self, index: Tuple[int, ...]) -> int:
        place = 0
        for at, length in zip(index, self._shape):
            place = place * length + at
        return place


def _is_finite(elements: List[Any]) -> bool:
    # A sum is finite only where all its terms are; the elements are far too small to overflow one.
    total = sum(elements)
    return math.isfinite(total.real) and math.isfinite(total.imag)


def stretches(shape: Tuple[int, ...], most: int) -> Iterator[Tuple[Any, ...]]:
    """Yield indices that divide a shape into parts of at most ``most`` elements."""
    if product(shape) <= most:
        yield ()
        return
    inner = product(shape[1:])
    if inner > most:
        for i in range(shape[0]):
            for rest in stretches(shape[1:], most):
                yield (i, *rest)
    else:
        step = most // inner
        for start in range(0, shape[0], step):
            yield (slice(start, start + step),)


def row_errors(
    backend: Backend,
    array: Any,
    shape: Tuple[int, ...],
    expected: Callable[[int], Sequence[Any]],
    scale: float = 1.0,
    most: int = EVERY,
) -> float:
    """Return the largest error of a result's rows, the parts behind its first axis.

    Args:
        backend: Reads the result.
        array: The result.
        shape: Shape that it must have.
        expected: Gives the elements of a row.
        scale: What differences are divided by.
        most: How many elements may be compared, where fewer than ``EVERY``.
    """
    result = Result(backend, array, shape)
    if not result.sound:
        return math.inf
    chosen = pick(shape[0], min(most, EVERY) // max(1, product(shape[1:])))
    errors = [difference(result.row((i,)), expected(i), scale) for i in chosen]
    if len(chosen) < shape[0] and not result.finite():
        return math.inf
    return worst_error(errors)
