"""Layout of a treemap: rectangles whose areas are proportional to values, as close to squares as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rectangle:
    """A rectangle; the origin is at the top left."""

    x: float
    y: float
    width: float
    height: float


def squarify(values: Sequence[float], *, width: float, height: float) -> tuple[Rectangle, ...]:
    """Return a rectangle for each value; together they fill the whole area.

    Source: Bruls, Huizing and van Wijk, "Squarified Treemaps", Data Visualization 2000, pages 33 to 42.

    Args:
        values: Positive values, the largest first.
        width: Width of the area.
        height: Height of the area.
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
    """Return the largest ratio of the sides of the rectangles of a row.

    Args:
        areas: Their areas.
        side: Length of the row.
    """
    thickness = sum(areas) / side
    return max(max(thickness**2 / area, area / thickness**2) for area in areas)


def _place(areas: Sequence[float], free: Rectangle) -> tuple[list[Rectangle], Rectangle]:
    """Place a row along the shorter side of the free area, and return its rectangles and the rest of the area."""
    row: list[Rectangle] = []
    total, position = sum(areas), 0.0
    if free.width >= free.height:
        thickness = min(total / free.height, free.width)
        for area in areas:
            length = free.height * area / total
            row.append(Rectangle(x=free.x, y=free.y + position, width=thickness, height=length))
            position += length
        return row, Rectangle(x=free.x + thickness, y=free.y, width=free.width - thickness, height=free.height)
    thickness = min(total / free.width, free.height)
    for area in areas:
        length = free.width * area / total
        row.append(Rectangle(x=free.x + position, y=free.y, width=length, height=thickness))
        position += length
    return row, Rectangle(x=free.x, y=free.y + thickness, width=free.width, height=free.height - thickness)
