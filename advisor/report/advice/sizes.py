"""How reports show the sizes of stacks, and the measured import times of frameworks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.domain.words import count, size_text
from advisor.resolve.explanation.sizes import AdviceSizes, Measure, StackSizes
from knowledge.estimate.interface import StartupTime

_LARGEST = 3
"""Number of packages that are named if they make up most of a stack."""
_LINE_HEIGHT, _LABEL_MARGIN = 17.0, 10.0
"""Height of a line of a label, and of what is around it, in pixels. The browser decides whether it is wide enough."""
_WIDE_MAP, _NARROW_MAP = (1000.0, 360.0), (340.0, 480.0)
"""Width and height of the areas for which treemaps are laid out, in pixels; a browser stretches them in width."""
_SMALLEST_SHARE = 0.004
"""Packages with a smaller share of a treemap are drawn together, because nobody could see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One rectangle of a treemap, in percent of the whole: a package, or several; only high ones are labelled."""

    label: str
    size: str
    place: Rectangle
    labelled: bool


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


def tiles(stack: StackSizes, *, is_narrow: bool = False) -> tuple[Tile, ...]:
    """Return the treemap of the packages of known size, the largest first; labels have several lines if narrow."""
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
    return tuple(
        Tile(
            label=label,
            size=size_text(size),
            place=Rectangle(
                x=round(100 * place.x / width, 3),
                y=round(100 * place.y / height, 3),
                width=round(100 * place.width / width, 3),
                height=round(100 * place.height / height, 3),
            ),
            labelled=place.height >= _LINE_HEIGHT * (2 + (label.count("-") if is_narrow else 0)) + _LABEL_MARGIN,
        )
        for (label, size), place in zip(drawn, places, strict=True)
    )


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
