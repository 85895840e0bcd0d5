"""How reports show the sizes of stacks, and the measured import times of frameworks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.domain.words import count, size_text
from advisor.resolve.explanation.sizes import AdviceSizes, Measure, StackSizes
from knowledge.estimate.interface import StartupTime

_PARTS = re.compile(r"[^- ]+[- ]?|[- ]")
"""Parts of a name, which may be on lines of their own."""
_LARGEST = 3
"""Number of packages that are named if they make up most of a stack."""
_LINE_HEIGHT, _LABEL_MARGIN = 17.0, 7.0
"""Height of a line of a label, and the space around it, in units of the treemap."""
_CHARACTER = 8.2
"""Width of a character of a label: the style sheet writes it with 13 units in a font of fixed width.

In such fonts a character is 0.55 (Consolas) to 0.62 (SF Mono) times as wide as the font is high.
"""
_WIDE_MAP, _NARROW_MAP = (1000.0, 360.0), (320.0, 460.0)
"""Width and height of treemaps. The scaled picture of a narrow window must not have tiny letters."""
_SMALLEST_SHARE = 0.004
"""Packages with a smaller share of a treemap are drawn together, because nobody could see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One rectangle of a treemap: a package, or several.

    Attributes:
        label: Name of the package.
        size: Its size as text.
        place: Where it is.
        lines: Name and size as lines that fit into the rectangle; empty if they do not.
    """

    label: str
    size: str
    place: Rectangle
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treemap:
    """A treemap with its width and height."""

    width: float
    height: float
    tiles: tuple[Tile, ...]
    margin: float = _LABEL_MARGIN
    line_height: float = _LINE_HEIGHT


def size_lines(sizes: AdviceSizes) -> Iterator[str]:
    """Yield the sizes of the stack compared with the baseline and the current lock, then its largest packages."""
    others = [("baseline", sizes.baseline), ("current", sizes.current)]
    compared = "; ".join(f"{name}: {_short(stack)}" for name, stack in others if stack is not None)
    own, stack = f" ({compared})" if compared else "", sizes.stack
    number, download = count(len(stack.packages), "package"), _amount(stack, "download")
    yield f"{number}, {download} to download, {_amount(stack, 'installed')} installed{own}"
    largest = sizes.stack.largest_first[:_LARGEST]
    measure, total = sizes.stack.best_known, sizes.stack.total(sizes.stack.best_known)
    part = sum(package.size(measure) or 0 for package in largest)
    if len(sizes.stack.packages) > _LARGEST and 2 * part > total:
        listed = ", ".join(f"`{package.name}` {size_text(package.size(measure) or 0)}" for package in largest)
        yield f"{part / total:.0%} of {'the installed size' if measure == 'installed' else 'the download'} is {listed}"


def startup_lines(times: Sequence[StartupTime]) -> Iterator[str]:
    """Yield the measured import time and memory of each framework."""
    for time in times:
        memory = "" if time.memory_bytes is None else f", {size_text(round(time.memory_bytes))} of memory after it"
        yield (
            f"`{time.framework} {time.version}`: import {time.import_seconds:.2f} s{memory} (median of "
            f"{count(time.runs, 'run')} on {time.machine}, {time.indicator.partition('[')[0]})"
        )


def sizes_document(sizes: AdviceSizes) -> dict[str, Any]:
    """Return the sizes as JSON-ready values, in bytes."""
    stacks = {"stack": sizes.stack, "baseline": sizes.baseline, "current": sizes.current}
    return {name: None if stack is None else _document(stack) for name, stack in stacks.items()}


def _document(stack: StackSizes) -> dict[str, Any]:
    return {
        "download": stack.total("download"),
        "installed": stack.total("installed"),
        "unknown_download": stack.unknown("download"),
        "unknown_installed": stack.unknown("installed"),
        "packages": [asdict(package) for package in stack.packages],
    }


def treemap(stack: StackSizes, *, is_narrow: bool = False) -> Treemap:
    """Return the treemap of the packages of known size, the largest first."""
    width, height = _NARROW_MAP if is_narrow else _WIDE_MAP
    measure = stack.best_known
    entries = [(p.name, p.size(measure) or 0) for p in stack.largest_first if p.size(measure)]
    total = sum(size for _, size in entries)
    drawn = [(name, size) for name, size in entries if size >= _SMALLEST_SHARE * total]
    rest = entries[len(drawn) :]
    if rest:
        drawn.append((count(len(rest), "other package"), sum(size for _, size in rest)))
        drawn.sort(key=lambda entry: -entry[1])
    places = squarify([size for _, size in drawn], width=width, height=height)
    tiles = tuple(
        Tile(label=label, size=size, place=place.rounded(), lines=_label_lines(label, size, place))
        for (label, size), place in zip(((label, size_text(size)) for label, size in drawn), places, strict=True)
    )
    return Treemap(width=width, height=height, tiles=tiles)


def _label_lines(label: str, size: str, place: Rectangle) -> tuple[str, ...]:
    """Return a name, broken after hyphens if it must be, and a size; nothing if they do not fit into a rectangle."""
    most = int((place.width - 2 * _LABEL_MARGIN) / _CHARACTER)
    lines = [""]
    for part in _PARTS.findall(label):
        if len(lines[-1]) + len(part) <= most:
            lines[-1] += part
        else:
            lines.append(part)
    lines = [*filter(None, map(str.strip, lines)), size]
    fits = max(map(len, lines)) <= most and len(lines) * _LINE_HEIGHT + _LABEL_MARGIN <= place.height
    return tuple(lines) if fits else ()


def size_rows(sizes: AdviceSizes) -> list[tuple[str, str, str, str]]:
    """Return name, number of packages, download and installed size of each stack that is known."""
    stacks = [("recommended stack", sizes.stack), ("baseline", sizes.baseline), ("current lock", sizes.current)]
    return [
        (name, str(len(stack.packages)), _amount(stack, "download"), _amount(stack, "installed"))
        for name, stack in stacks
        if stack is not None
    ]


def package_sizes(stack: StackSizes) -> dict[str, tuple[str, ...]]:
    """Return the download and the installed size of each package, as text."""
    measures: tuple[Measure, ...] = ("download", "installed")
    sizes = {p.name: [p.size(measure) for measure in measures] for p in stack.packages}
    return {n: tuple("unknown" if size is None else size_text(size) for size in own) for n, own in sizes.items()}


def _short(stack: StackSizes) -> str:
    return f"{count(len(stack.packages), 'package')}, {_amount(stack, 'download')}, {_amount(stack, 'installed')}"


def _amount(stack: StackSizes, measure: Measure) -> str:
    """Return a total, and how many packages it does not contain because their size is not known."""
    unknown = stack.unknown(measure)
    if unknown == len(stack.packages) and unknown:
        return "unknown"
    return f"{size_text(stack.total(measure))}{f' and {unknown} unknown' if unknown else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rectangle:
    """A rectangle; the origin is at the top left."""

    x: float
    y: float
    width: float
    height: float

    def rounded(self) -> Rectangle:
        """Return it with two decimal places."""
        return Rectangle(**{name: round(value, 2) for name, value in asdict(self).items()})


def squarify(values: Sequence[float], *, width: float, height: float) -> tuple[Rectangle, ...]:
    """Return a rectangle for each value; together they fill the whole area. Values are positive, the largest first.

    Source: Bruls, Huizing and van Wijk, "Squarified Treemaps", Data Visualization 2000, pages 33 to 42.
    """
    total = sum(values)
    areas = [value * (width * height / total) for value in values]
    free = Rectangle(x=0.0, y=0.0, width=width, height=height)
    rectangles: list[Rectangle] = []
    while len(rectangles) < len(areas):
        first = len(rectangles)
        side = min(free.width, free.height)
        last = first + 1
        while last < len(areas) and _worst(areas[first : last + 1], side) <= _worst(areas[first:last], side):
            last += 1
        placed, free = _place(areas[first:last], free)
        rectangles += placed
    return tuple(rectangles)


def _worst(areas: Sequence[float], side: float) -> float:
    """Return the largest ratio of the sides of rectangles with some areas in a row of some length."""
    thickness = sum(areas) / side
    return max(max(thickness**2 / area, area / thickness**2) for area in areas)


def _place(areas: Sequence[float], free: Rectangle) -> tuple[list[Rectangle], Rectangle]:
    """Place a row along the shorter side of the free area, and return its rectangles and the rest of the area."""
    total, is_wide = sum(areas), free.width >= free.height
    side, depth = (free.height, free.width) if is_wide else (free.width, free.height)
    thickness = min(total / side, depth)
    lengths = [side * area / total for area in areas]
    positions = itertools.accumulate(lengths, initial=0.0)
    if is_wide:
        row = [
            Rectangle(x=free.x, y=free.y + position, width=thickness, height=length)
            for position, length in zip(positions, lengths, strict=False)
        ]
        return row, replace(free, x=free.x + thickness, width=free.width - thickness)
    row = [
        Rectangle(x=free.x + position, y=free.y, width=length, height=thickness)
        for position, length in zip(positions, lengths, strict=False)
    ]
    return row, replace(free, y=free.y + thickness, height=free.height - thickness)
