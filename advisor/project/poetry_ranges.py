"""Writes a version constraint of Poetry that has several ranges as one specifier (PEP 440), where that is possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poetry.core.constraints.version import Version
    from poetry.core.constraints.version.version_range_constraint import VersionRangeConstraint

_MOST_EXCLUSIONS = 100


def specifier_of_ranges(ranges: Sequence[VersionRangeConstraint]) -> str | None:
    """Return the range from the lowest to the highest version, without the releases in the gaps.

    A specifier can exclude all releases with a prefix (`!=2.*`), so `^1.2 || ^3.0` is `>=1.2,<4.0,!=2.*`.

    Args:
        ranges: The ranges, ascending.

    Returns:
        The specifier; none if a gap cannot be written with prefixes, as that from 1.3 to 2.0.
    """
    excluded: list[str] = []
    for lower, upper in pairwise(ranges):
        if lower.max is None or upper.min is None or lower.include_max or not upper.include_min:
            return None
        if not (_is_release(lower.max) and _is_release(upper.min)):
            return None
        prefixes = _prefixes(_release(lower.max.release.to_parts()), _release(upper.min.release.to_parts()))
        if prefixes is None:
            return None
        excluded += prefixes
    first, last = ranges[0], ranges[-1]
    clauses = []
    # `<2.dev0` and `<2` accept the same versions (PEP 440), but the first admits pre-releases of others.
    if first.min is not None:
        clauses.append(f"{'>=' if first.include_min else '>'}{str(first.min).removesuffix('.dev0')}")
    if last.max is not None:
        clauses.append(f"{'<=' if last.include_max else '<'}{str(last.max).removesuffix('.dev0')}")
    return ",".join([*clauses, *(f"!={prefix}.*" for prefix in excluded)])


def _is_release(bound: Version) -> bool:
    """Whether a bound is a release without an epoch, or the first version before it (`2.dev0`)."""
    is_first = bound.dev is None or bound.dev.number == 0
    return is_first and bound.pre is None and bound.post is None and not bound.local and not bound.epoch


def _prefixes(start: tuple[int, ...], end: tuple[int, ...]) -> list[str] | None:
    """Return prefixes of exactly the releases from ``start`` up to, but not including, ``end``; none if there are none.

    The last number is increased until it agrees with ``end``; then the next number starts at 0.
    """
    prefixes: list[str] = []
    for prefix in _walk(start, end):
        if len(prefixes) == _MOST_EXCLUSIONS:
            return None
        prefixes.append(prefix)
    return prefixes if start[:-1] == end[: len(start) - 1] and len(start) <= len(end) else None


def _walk(start: tuple[int, ...], end: tuple[int, ...]) -> Iterator[str]:
    shared, number = start[:-1], start[-1]
    for level in range(len(start) - 1, len(end)):
        for value in range(number, end[level]):
            yield ".".join(map(str, (*shared, value)))
        shared, number = (*shared, end[level]), 0


def _release(parts: Sequence[int]) -> tuple[int, ...]:
    """Return a release without its trailing zeros, except the first number."""
    release = list(parts)
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return tuple(release)
