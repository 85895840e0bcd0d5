"""Constraints of Poetry as requirements and specifiers, by poetry-core, which is imported only for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from poetry.core.constraints.version import Version, VersionUnion, parse_constraint
from poetry.core.constraints.version.version_range_constraint import VersionRangeConstraint
from poetry.core.factory import Factory

from knowledge.domain.documents import specifiers_from
from knowledge.domain.errors import InputError

_LOCAL_VERSION = re.compile(r"((?:[<>]=?|~=)\s*[^\s,;()+<>=]+)\+[A-Za-z0-9.]+")
"""An ordered comparison with a local version (`^2.0.0+cu118`), which only Poetry allows: releases decide (PEP 440)."""
_RANGES = re.compile(r"\([^)]*\)")
_MAX_CONSTRAINT_CHARACTERS = 2000
_MOST_EXCLUSIONS = 100


def requirement_text(name: str, constraint: Any, origin: str) -> str:
    """Return an entry of a table of dependencies as a requirement (PEP 508)."""
    _check_length(f"{origin}: `{name}`", constraint)
    try:
        dependency = Factory.create_dependency(name, constraint)
        requirement = dependency.to_pep_508()
        union = dependency.constraint
        ranges = union.ranges if isinstance(union, VersionUnion) and "||" in str(union) else []
        several = specifier_of_ranges(ranges) if ranges else None
        if several is not None:
            requirement = _RANGES.sub(f"({several})", requirement, count=1)
    except Exception as error:  # poetry-core also raises exceptions of a parser that it vendors.
        raise InputError(f"{origin}: `{name} = {constraint!r}` is not a Poetry dependency: {error}") from None
    if ranges and several is None:
        raise InputError(
            f"{origin}: `{name} = {constraint!r}` allows several ranges, which a requirement (PEP 508) cannot express",
            hint="write one range, and exclude versions with `!=`",
        )
    specifier, separator, marker = requirement.partition(";")
    return _LOCAL_VERSION.sub(r"\1", specifier) + separator + marker


def python_range(constraint: Any, path: Path) -> str | None:
    """Return the specifier of the interpreters that a constraint admits; `None` if it admits all, or several ranges."""
    if constraint is None:
        return None
    _check_length(f"`{path}`: `tool.poetry.dependencies.python`", constraint)
    try:
        text = str(parse_constraint(str(constraint)))
        if "||" in text or text == "*":
            return None  # A union of ranges cannot be written as a specifier: every interpreter is accepted.
        specifiers_from(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}`: `tool.poetry.dependencies.python` `{constraint}`: {error}") from None
    return text


def admits_python(constraint: str, pythons: str) -> bool:
    """Whether a constraint of Poetry (`^3.9 || ^4.0`) admits one interpreter of a specifier such as `==3.12.*`.

    Raises:
        ValueError: If it is not a constraint.
    """
    if len(constraint) > _MAX_CONSTRAINT_CHARACTERS:
        raise ValueError(f"the constraint is longer than {_MAX_CONSTRAINT_CHARACTERS} characters")
    return parse_constraint(constraint).allows_any(parse_constraint(pythons))


def _check_length(place: str, constraint: Any) -> None:
    """Limit the length of a constraint: poetry-core needs time that is quadratic in the number of spaces."""
    if len(str(constraint)) > _MAX_CONSTRAINT_CHARACTERS:
        raise InputError(f"{place}: the constraint is longer than {_MAX_CONSTRAINT_CHARACTERS} characters")


def specifier_of_ranges(ranges: Sequence[VersionRangeConstraint]) -> str | None:
    """Return one range for several ascending ones: from the lowest to the highest, without the gaps.

    A specifier can exclude all releases with a prefix (`!=2.*`), so `^1.2 || ^3.0` is `>=1.2,<4.0,!=2.*`.

    Returns:
        The specifier; `None` if a gap cannot be written with prefixes, as that from 1.3 to 2.0.
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
    """Return prefixes of exactly the releases from ``start`` to before ``end``; `None` if there are none.

    The last number is increased until it agrees with ``end``; then the next number starts at 0.
    """
    prefixes = list(islice(_walk(start, end), _MOST_EXCLUSIONS + 1))
    is_before = start[:-1] == end[: len(start) - 1] and len(start) <= len(end)
    return prefixes if is_before and len(prefixes) <= _MOST_EXCLUSIONS else None


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
