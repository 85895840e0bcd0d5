"""The layout of a treemap."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from advisor.report.advice.sizes import Rectangle, squarify

LENGTHS = st.floats(min_value=1.0, max_value=2000.0)
VALUES = st.lists(st.floats(min_value=1.0, max_value=1e10), min_size=1, max_size=40).map(
    lambda values: sorted(values, reverse=True)
)


def overlap(a: Rectangle, b: Rectangle) -> float:
    """Return the area that two rectangles share."""
    width = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    height = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return max(0.0, width) * max(0.0, height)


@given(values=VALUES, width=LENGTHS, height=LENGTHS)
def test_areas_are_proportional_to_the_values(values: list[float], width: float, height: float) -> None:
    rectangles = squarify(values, width=width, height=height)

    assert len(rectangles) == len(values)
    for value, rectangle in zip(values, rectangles, strict=True):
        expected = width * height * value / sum(values)
        assert abs(rectangle.width * rectangle.height - expected) <= 1e-6 * width * height


@given(values=VALUES, width=LENGTHS, height=LENGTHS)
def test_rectangles_are_inside_and_do_not_overlap(values: list[float], width: float, height: float) -> None:
    rectangles = squarify(values, width=width, height=height)

    for rectangle in rectangles:
        assert rectangle.width >= 0
        assert rectangle.height >= 0
        assert rectangle.x >= -1e-6
        assert rectangle.x + rectangle.width <= width * (1 + 1e-6)
        assert rectangle.y >= -1e-6
        assert rectangle.y + rectangle.height <= height * (1 + 1e-6)
    assert all(overlap(a, b) <= 1e-6 * width * height for a, b in combinations(rectangles, 2))


def test_rectangles_are_nearly_square() -> None:
    # The areas of the example in the paper.
    rectangles = squarify([6, 6, 4, 3, 2, 2, 1], width=6, height=4)

    places = [(round(r.x, 2), round(r.y, 2), round(r.width, 2), round(r.height, 2)) for r in rectangles]
    assert places == [
        (0, 0, 3, 2),
        (0, 2, 3, 2),
        (3, 0, 1.71, 2.33),
        (4.71, 0, 1.29, 2.33),
        (3, 2.33, 1.2, 1.67),
        (4.2, 2.33, 1.2, 1.67),
        (5.4, 2.33, 0.6, 1.67),
    ]


def test_nothing_has_no_rectangles() -> None:
    assert squarify([], width=10, height=10) == ()
