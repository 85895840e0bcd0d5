"""Functions for numerical checks: selection of the compared elements, and comparisons that NaN cannot pass.

In a result of up to ``EVERY`` elements, all elements are compared, one by one or in signed sums of a few rows; so any
wrong element fails the check. In a larger result, the first, the last and random rows are compared; the framework
computes whether all elements are finite, and up to ``FINITE`` of them are also read. A single wrong but finite element
of a larger result is detected only in a compared row.
"""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from operator import add, sub
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple

from pi_runners.harness.contract import Backend
from pi_runners.harness.random_inputs import decode

EVERY = 2**20
"""Maximum number of elements of which all are compared: about a quarter of a second in Python."""

FINITE = 2**24
"""Maximum number of elements that are read to check that they are finite: about half a second in Python."""

GROUP = 16
"""Rows in a signed sum: a sixteenth of the work, but a single wrong element is detected only from 4 tolerances on."""

_random = random.Random()


def worst_error(errors: Iterable[float]) -> float:
    """Return the largest error; infinity if an error is not finite, or if there are none."""
    values = list(errors)
    # `max` alone may ignore NaN: `max(0.0, nan)` is 0.
    return max(values) if values and all(map(math.isfinite, values)) else math.inf


def difference(actual: Sequence[Any], expected: Sequence[Any], scale: float = 1.0) -> float:
    """Return the largest difference of two rows, divided by a scale; infinity if their lengths differ."""
    if len(actual) != len(expected):
        return math.inf
    # Infinity minus infinity is NaN, which `worst_error` detects.
    return worst_error(map(abs, map(sub, actual, expected))) / scale


def pick(count: int, most: int) -> List[int]:
    """Return all indices below ``count``, or at most ``most`` of them: the first, the last and random ones."""
    if count <= max(1, most):
        return list(range(count))
    inner = _random.sample(range(1, count - 1), max(0, min(most, count) - 2)) if count > 2 else []
    return sorted({0, count - 1, *inner} if most > 1 else {_random.randrange(count)})


def pick_groups(count: int, most: int) -> List[List[int]]:
    """Split ``count`` rows into groups for signed sums, and return all groups or at most ``most`` of them."""
    starts = range(0, count, GROUP)
    return [list(range(starts[i], min(count, starts[i] + GROUP))) for i in pick(len(starts), most)]


def random_signs(count: int) -> List[int]:
    """Return random signs, 1 or -1."""
    return [_random.choice((1, -1)) for _ in range(count)]


def decoded_row(raw: bytes, columns: int, i: int) -> List[float]:
    """Return the numbers of row ``i`` of random bytes."""
    return decode(raw[i * columns : (i + 1) * columns], "float32")


def signed_sum(rows: Iterable[Sequence[Any]], signs: Sequence[int]) -> List[Any]:
    """Return the sum of rows with signs; empty if their lengths differ, so that it equals no sum."""
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
    """Raised when the reference of a check cannot be computed; this is not a failure of the framework's result."""


@contextmanager
def making_reference() -> Iterator[None]:
    """Count an exception inside the block as a failure of the check, even if the framework raises it.

    Raises:
        ReferenceFailedError: Instead of any exception inside the block.
    """
    try:
        yield
    except Exception as error:
        raise ReferenceFailedError("the reference failed: {}: {}".format(type(error).__name__, error)) from error


class Result:
    """Elements of a framework's result, in the framework's layout.

    Attributes:
        whole: Whether the result is small enough to compare all elements.
    """

    def __init__(self, backend: Backend, array: Any, shape: Sequence[int]) -> None:
        self._backend, self._array, self._shape = backend, array, tuple(shape)
        self.whole = math.prod(shape) <= EVERY
        self._elements = backend.read_all(array, ()) if self.whole else []

    def row(self, index: Tuple[int, ...]) -> List[Any]:
        """Return the elements at the indices of the first axes."""
        if not self.whole:
            return self._backend.read_all(self._array, index)
        size = math.prod(self._shape[len(index) :])
        start = size * self._place(index)
        return self._elements[start : start + size]

    def part(self, place: slice) -> List[Any]:
        """Return the elements at a part of the first axis."""
        return self._backend.read_all(self._array, (place,))

    def last_axis(self, at: int) -> List[Any]:
        """Return the elements at an index of the last axis."""
        if not self.whole:
            return self._backend.read_all(self._array, (*(slice(None),) * (len(self._shape) - 1), at))
        return self._elements[at :: self._shape[-1]]

    def channel(self, image: int, channel: int) -> List[Any]:
        """Return the pixels of one channel of images in native layout."""
        if not self._backend.channels_last:
            return self.row((image, channel))
        if not self.whole:
            spatial = (slice(None),) * (len(self._shape) - 2)
            return self._backend.read_all(self._array, (image, *spatial, channel))
        pixels, channels = math.prod(self._shape[1:-1]), self._shape[-1]
        start = image * pixels * channels
        return self._elements[start + channel : start + pixels * channels : channels]

    def finite(self) -> bool:
        """Return whether all elements are finite: the framework computes it, and up to ``FINITE`` of them are read."""
        if not all(self._backend.all_finite(self._array, place) for place in blocks_of(self._shape, FINITE)):
            return False
        blocks = list(blocks_of(self._shape, EVERY))
        indices = pick(len(blocks), max(1, FINITE // EVERY))
        return all(_is_finite(self._backend.read_all(self._array, blocks[i])) for i in indices)

    def error_of_others(self, is_complete: bool) -> float:
        """Return the error of the elements that are not compared: 0 if there are none, or if all are finite."""
        return 0.0 if is_complete or self.finite() else math.inf

    def _place(self, index: Tuple[int, ...]) -> int:
        place = 0
        for at, length in zip(index, self._shape):
            place = place * length + at
        return place


def _is_finite(elements: List[Any]) -> bool:
    # A sum is finite only if all its terms are; correct elements are far too small to overflow it.
    total = sum(elements)
    return math.isfinite(total.real) and math.isfinite(total.imag)


def blocks_of(shape: Tuple[int, ...], most: int) -> Iterator[Tuple[Any, ...]]:
    """Yield indices that split a shape into blocks of at most ``most`` elements."""
    if math.prod(shape) <= most:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner > most:
        for i in range(shape[0]):
            for rest in blocks_of(shape[1:], most):
                yield (i, *rest)
    else:
        step = most // inner
        for start in range(0, shape[0], step):
            yield (slice(start, start + step),)


Check = Callable[[Any], float]
"""Returns the relative error of a result."""


def checker(backend: Backend, shape: Sequence[int], errors: Callable[[Result], Iterable[float]]) -> Check:
    """Return a check of results; the error is infinity if a result has another shape.

    Args:
        backend: Backend that reads the results.
        shape: Expected shape.
        errors: Yields the errors of the elements, of which the largest counts.
    """

    def check(array: Any) -> float:
        if backend.shape_of(array) != tuple(shape):
            return math.inf
        return worst_error(errors(Result(backend, array, shape)))

    return check


def row_checker(
    backend: Backend,
    shape: Tuple[int, ...],
    expected: Callable[[int], Sequence[Any]],
    scale: float = 1.0,
    most: int = EVERY,
) -> Check:
    """Return a check of the rows of results, the parts along the first axis.

    Args:
        backend: Backend that reads the results.
        shape: Expected shape.
        expected: Returns the expected elements of a row.
        scale: Divisor of the differences.
        most: Maximum number of compared elements, at most ``EVERY``.
    """

    def errors(result: Result) -> Iterator[float]:
        rows = pick(shape[0], min(most, EVERY) // max(1, math.prod(shape[1:])))
        yield from (difference(result.row((i,)), expected(i), scale) for i in rows)
        yield result.error_of_others(len(rows) == shape[0])

    return checker(backend, shape, errors)
