"""Exact convolutions and gradients in integers, and comparisons of results with them.

Several filters, or channels, are summed with random signs and compared together: a convolution is linear in both.
"""

from __future__ import annotations

import functools
import itertools
import math
from operator import itemgetter, mul
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from pi_runners.harness.contract import Backend
from pi_runners.indicators.checks.exact import field_bytes, unpack, whole_numbers
from pi_runners.indicators.checks.results import (
    EVERY,
    GROUP,
    Result,
    checker,
    difference,
    pick,
    pick_groups,
    random_signs,
    signed_sum,
)

_NUMBERS = whole_numbers("float32")
_WORK = 2**28
"""Maximum number of products of a factor and a field in the check of one array: about a second."""
_SUM_WORK = 2**23
"""Maximum number of products in the check of the filters' gradient: about half a second."""
_LEAST_WORK = 64
"""Products that take as long as the rest of the work for one signed sum of the filters' gradient."""
_CHANNELS = 4
"""Channels in a signed sum of the filters' gradient, which also sums over filters."""


class Geometry(NamedTuple):
    """Lengths along the spatial axes."""

    spatial: Tuple[int, ...]
    kernel: Tuple[int, ...]
    stride: Tuple[int, ...]
    padding: Tuple[int, ...]
    out: Tuple[int, ...]

    @property
    def padded(self) -> Tuple[int, ...]:
        """Lengths including the padding."""
        return tuple(n + 2 * p for n, p in zip(self.spatial, self.padding))


class _Images(NamedTuple):
    """Images in the arithmetic of a check.

    Attributes:
        number: 0 for the images of the convolution, 2 for its results.
        channels: Channels of a group.
        places: Positions of their pixels on the grid of the padded image.
    """

    number: int
    channels: int
    places: Sequence[int]


class ConvolutionCheck:
    """Compares a convolution, and its gradients, with exact sums.

    Attributes:
        shapes: Of images, filters and results, channels first.
    """

    def __init__(
        self, backend: Backend, raws: Sequence[bytes], shapes: Sequence[Tuple[int, ...]], geometry: Geometry
    ) -> None:
        self._backend, self._raws, self.shapes, self._geometry = backend, raws, shapes, geometry
        self._each = shapes[1][1]
        self._per_group = shapes[1][0] * self._each // shapes[0][1]
        g = geometry
        self._taps = _places(g.kernel, (1,) * len(g.kernel), (0,) * len(g.kernel), g.padded)
        self._grid = math.prod(g.padded)
        # Positions of the image's pixels, and of the first tap of each result, on the grid of the padded image.
        self._inside = _places(g.spatial, (1,) * len(g.spatial), g.padding, g.padded)
        self._starts = _places(g.out, g.stride, (0,) * len(g.out), g.padded)

    def results(self, array: Any) -> float:
        """Return the largest error of a convolution's result, relative to the root of the sum of squared terms."""
        last = self._taps[-1]

        def factors(filters: List[int], signs: List[int]) -> List[List[int]]:
            summed = signed_sum((self._filter(f) for f in filters), signs)
            return [summed[i : i + len(self._taps)] for i in range(0, len(summed), len(self._taps))]

        # Fields are shifted up to the last tap: shifting down would round.
        shifts, places = [last - tap for tap in self._taps], [place + last for place in self._starts]
        images = _Images(2, self._per_group, places), _Images(0, self._each, self._inside)
        return self._compare(array, images, factors, shifts, len(self._taps))

    def image_gradient(self, array: Any) -> float:
        """Return the largest error of the images' gradient."""

        def factors(channels: List[int], signs: List[int]) -> List[List[int]]:
            first = channels[0] // self._each * self._per_group
            filters = range(first, first + self._per_group)
            return [signed_sum((self._filter(f, c % self._each) for c in channels), signs) for f in filters]

        meeting = math.prod([-(-k // s) for k, s in zip(self._geometry.kernel, self._geometry.stride)])
        images = _Images(0, self._each, self._inside), _Images(2, self._per_group, self._starts)
        return self._compare(array, images, factors, self._taps, meeting)

    def _compare(
        self,
        array: Any,
        images: Tuple[_Images, _Images],
        factors: Callable[[List[int], List[int]], List[List[int]]],
        shifts: Sequence[int],
        meeting: int,
    ) -> float:
        """Return the largest error of signed sums over channels of images that are computed from other images.

        Args:
            array: The computed images.
            images: These images, and those that they are computed from.
            factors: Returns the factor of each channel of the other images and each tap, for channels and their signs.
            shifts: For each tap, by how many fields the other images are shifted.
            meeting: Pixels of a channel of the other images that a pixel depends on.
        """
        result, source = images
        shape, batch = self.shapes[result.number], self.shapes[0][0]
        width = field_bytes(GROUP * source.channels * len(self._taps) * 512**2)
        groups = [
            [first + i for i in group]
            for first in range(0, shape[1], result.channels)
            for group in pick_groups(result.channels, result.channels)
        ]

        def errors(elements: Result) -> Iterator[float]:
            work = source.channels * len(self._taps) * self._grid
            places = self._pick(len(groups) * batch, work, GROUP * len(result.places))
            yield elements.error_of_others(len(places) == len(groups) * batch)
            grids = _Grids(self._raws[source.number], self._grid, source.places, width)
            for number, members in itertools.groupby(places, lambda place: place // batch):
                channels, signs = groups[number], random_signs(len(groups[number]))
                first = channels[0] // result.channels * source.channels
                by_tap = list(zip(*factors(channels, signs)))
                for image in (place % batch for place in members):
                    start = image * self.shapes[source.number][1] + first
                    inputs = [grids.at(start + i) for i in range(source.channels)]
                    terms = (sum(map(mul, by_tap[i], inputs)) << (8 * width * n) for i, n in enumerate(shifts))
                    numbers = unpack(sum(terms), self._grid + self._taps[-1], width)
                    exact = [numbers[place] / _NUMBERS.denominator**2 for place in result.places]
                    scale = math.sqrt(source.channels * meeting * len(channels)) * _NUMBERS.spread**2
                    yield difference(signed_sum((elements.channel(image, c) for c in channels), signs), exact, scale)

        return checker(self._backend, self._backend.image_index(shape), errors)(array)

    def filter_gradient(self, array: Any) -> float:
        """Return the largest error of the filters' gradient."""
        return checker(self._backend, self._backend.filter_index(self.shapes[1]), self._filter_errors)(array)

    def _filter_errors(self, elements: Result) -> Iterator[float]:
        taps, pixels, images = len(self._taps), len(self._starts), self.shapes[0][0]
        terms = images * pixels
        few = terms * (self.shapes[1][0] + self.shapes[0][1]) > 4 * EVERY
        groups = [
            group
            for first in range(0, self.shapes[1][0], self._per_group)
            for group in _split(first, first + self._per_group, 1 if few else GROUP)
        ]
        channels = _split(0, self._each, 1 if few else _CHANNELS)
        each = len(channels) * taps
        count = len(groups) * each
        places = list(range(count))
        work = max(terms, _LEAST_WORK)
        if few or work * count > 2 * _SUM_WORK:
            places = pick(count, max(2, _SUM_WORK // work))
        yield elements.error_of_others(len(places) == count)
        # The additional index 0 makes `itemgetter` return a tuple also for one position; `map` ignores the excess.
        shifted = [itemgetter(*(s + tap for s in self._starts), 0) for tap in self._taps]
        turns = [random_signs(len(group)) for group in channels]
        for number, members in itertools.groupby(places, lambda place: place // each):
            filters = groups[number]
            signs = random_signs(len(filters))
            sums = functools.partial(self._upstream_sum, filters, signs)
            # All images at once if they are small, otherwise one image after the other.
            upstream: Callable[[int], List[int]] = sums if few else [sums(i) for i in range(images)].__getitem__
            summed = signed_sum((self._gradient_of(elements, f) for f in filters), signs)
            first = filters[0] // self._per_group * self._each
            for at, chosen in itertools.groupby(members, lambda place: place % each // taps):
                numbers = [place % taps for place in chosen]
                exact = self._exact_weights(first, channels[at], turns[at], upstream, [shifted[n] for n in numbers])
                scale = math.sqrt(terms * len(filters) * len(channels[at])) * _NUMBERS.spread**2
                for tap, total in zip(numbers, exact):
                    actual = sum(t * summed[self._element(c, tap)] for t, c in zip(turns[at], channels[at]))
                    yield abs(actual - total / _NUMBERS.denominator**2) / scale

    def _gradient_of(self, elements: Result, number: int) -> List[Any]:
        """Return the elements of one filter in the framework's order; see :meth:`_element`."""
        if self._backend.channels_last:
            return elements.last_axis(number)
        return elements.row((number,))

    def _element(self, channel: int, tap: int) -> int:
        """Return the position of a channel's tap in a filter, in the framework's order."""
        return tap * self._each + channel if self._backend.channels_last else channel * len(self._taps) + tap

    def _exact_weights(
        self,
        first: int,
        channels: Sequence[int],
        turns: Sequence[int],
        upstream: Callable[[int], List[int]],
        shifts: Sequence[Callable[[List[int]], Sequence[int]]],
    ) -> List[int]:
        """Return the exact signed sums of the filters' gradient over filters and channels, one for each tap.

        Args:
            first: First channel of the group of the filters.
            channels: Channels within that group.
            turns: Their signs.
            upstream: Returns the signed sum of the upstream gradients of an image over the filters.
            shifts: For each tap, selects the pixels that it meets.
        """
        sums = [0] * len(shifts)
        for image in range(self.shapes[0][0]):
            pixels = signed_sum((self._padded_image(image, first + c) for c in channels), turns)
            gradients = upstream(image)
            for i, shift in enumerate(shifts):
                sums[i] += sum(map(mul, gradients, shift(pixels)))
        return sums

    def _upstream_sum(self, filters: List[int], signs: List[int], image: int) -> List[int]:
        size = len(self._starts)
        starts = [(image * self.shapes[1][0] + number) * size for number in filters]
        return signed_sum((_NUMBERS.row(self._raws[2][start : start + size]) for start in starts), signs)

    def _pick(self, count: int, work: int, elements: int) -> List[int]:
        if count * work <= _WORK and count * elements <= 2 * EVERY:
            return list(range(count))
        return pick(count, max(2, min(_WORK // work, EVERY // elements)))

    def _filter(self, number: int, channel: int = -1) -> List[int]:
        """Return the elements of a filter at all of its channels, or at one."""
        size = self._each * len(self._taps)
        start, end = number * size, (number + 1) * size
        if channel >= 0:
            start += channel * len(self._taps)
            end = start + len(self._taps)
        return _NUMBERS.row(self._raws[1][start:end])

    def _padded_image(self, image: int, channel: int) -> List[int]:
        size = len(self._inside)
        start = (image * self.shapes[0][1] + channel) * size
        grid = [0] * self._grid
        row = self._geometry.spatial[-1]
        numbers = _NUMBERS.row(self._raws[0][start : start + size])
        for first in range(0, size, row):
            grid[self._inside[first] : self._inside[first] + row] = numbers[first : first + row]
        return grid


class _Grids:
    """Packed images on the grid of the padded image, with zeros in the padding."""

    def __init__(self, raw: bytes, grid: int, places: Sequence[int], width: int) -> None:
        self._raw, self._grid, self._places, self._width = raw, grid, places, width
        self._runs = _runs(places)
        self._ones = self._spread(b"\1" * len(places))
        self._kept: Dict[int, int] = {}

    def at(self, number: int) -> int:
        """Return an image by its number over batch and channels."""
        if number not in self._kept:
            size = len(self._places)
            spread = self._spread(self._raw[number * size : (number + 1) * size])
            if len(self._kept) * self._grid * self._width > 2**28:
                self._kept.clear()
            self._kept[number] = spread * _NUMBERS.step + self._ones * _NUMBERS.start
        return self._kept[number]

    def _spread(self, raw: bytes) -> int:
        fields = bytearray(self._grid * self._width)
        for first, count, step in self._runs:
            start = self._places[first] * self._width
            stride = step * self._width
            fields[start : start + (count - 1) * stride + 1 : stride] = raw[first : first + count]
        return int.from_bytes(fields, "little")


def _split(first: int, last: int, size: int) -> List[List[int]]:
    return [list(range(start, min(start + size, last))) for start in range(first, last, size)]


def _runs(places: Sequence[int]) -> List[Tuple[int, int, int]]:
    """Split positions into runs with equal steps: index of the first position, number of positions, step."""
    runs = []
    first = 0
    while first < len(places):
        step = places[first + 1] - places[first] if first + 1 < len(places) else 1
        last = first
        while last + 1 < len(places) and places[last + 1] - places[last] == step:
            last += 1
        runs.append((first, last - first + 1, step))
        first = last + 1
    return runs


def _places(lengths: Sequence[int], steps: Sequence[int], margins: Sequence[int], grid: Sequence[int]) -> List[int]:
    """Return the positions of the elements of a block on a grid, in the order of the grid."""
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    along = [[(i * step + m) * s for i in range(n)] for n, step, m, s in zip(lengths, steps, margins, strides)]
    return [sum(parts) for parts in itertools.product(*along)]
