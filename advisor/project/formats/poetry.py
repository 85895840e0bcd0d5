"""Reads the Poetry tables of `pyproject.toml` with poetry-core; several ranges become one specifier where possible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.project.interface import (
    ProjectRequirements,
    check_available,
    defined_source,
    entry_place,
    parse_requirement,
    table_in,
)
from advisor.project.package_sources import reference_of
from advisor.project.text_file import line_in
from knowledge.domain.documents import specifiers_from
from knowledge.domain.errors import InputError

if TYPE_CHECKING:
    from poetry.core.constraints.version import Version
    from poetry.core.constraints.version.version_range_constraint import VersionRangeConstraint


_CONDITIONS = ("python", "platform", "markers", "extras", "optional")
"""Keys that hold for a package wherever it comes from."""
_LOCAL_VERSION = re.compile(r"((?:[<>]=?|~=)\s*[^\s,;()+<>=]+)\+[A-Za-z0-9.]+")
"""An ordered comparison with a local version (`^2.0.0+cu118`), which only Poetry allows: releases decide (PEP 440)."""
_RANGES = re.compile(r"\([^)]*\)")
_MAX_CONSTRAINT_CHARACTERS = 2000
_MOST_EXCLUSIONS = 100


def read_poetry(
    path: Path, text: str, table: Mapping[str, Any], *, extras: Iterable[str] = (), groups: Iterable[str] = ()
) -> ProjectRequirements:
    """Read the requirements in `[tool.poetry]`.

    Args:
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        table: Its `[tool.poetry]`.
        extras: Extras of the project to include.
        groups: Dependency groups to include.

    Raises:
        InputError: If a table is malformed.
    """
    dependencies = dict(_table(table, "dependencies", path))
    python = dependencies.pop("python", None)
    sources = _sources(table)
    optional_packages = _packages_of_extras(table, extras, path)
    roots: list[RootRequirement] = []
    bindings: dict[str, str] = {}
    tables = [dependencies, *(_group(table, group, path) for group in groups)]
    for name, constraints in ((name, c) for one in tables for name, c in one.items()):
        for constraint in constraints if isinstance(constraints, list) else [constraints]:
            options = constraint if isinstance(constraint, dict) else {}
            if options.get("optional") and canonicalize_name(name) not in optional_packages:
                continue
            origin = entry_place(path, text, name)
            roots.append(_root(name, constraint, origin, path.parent))
            if "source" in options:
                bindings[canonicalize_name(name)] = defined_source(options["source"], sources, name, origin)
    primary, further, supplemental = _indexes(table, sources)
    return ProjectRequirements(
        roots=tuple(roots),
        requires_python=_python(python, path),
        index_url=primary,
        extra_index_urls=further,
        supplemental_index_urls=supplemental,
        bindings=bindings,
        files=(str(path),),
    )


def with_poetry_sources(
    project: ProjectRequirements, path: Path, text: str, table: Mapping[str, Any]
) -> ProjectRequirements:
    """Return a project whose dependencies are in `[project]` with the package sources of the Poetry tables added.

    Source: https://python-poetry.org/docs/dependency-specification/#projectdependencies-and-toolpoetrydependencies.

    Args:
        project: The requirements of the project.
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        table: Its `[tool.poetry]`.

    Raises:
        InputError: If the address or the source of a required package is malformed or not defined.
    """
    sources = _sources(table)
    required = {root.name for root in project.roots}
    bindings = dict(project.bindings)
    direct: dict[str, DirectReference] = {}
    for name, constraints in _table(table, "dependencies", path).items():
        place = f"{path.name}:{line_in(text, '[tool.poetry.dependencies]', name)}"
        for options in constraints if isinstance(constraints, list) else [constraints]:
            if not isinstance(options, dict) or canonicalize_name(name) not in required:
                continue
            if reference := reference_of(options, path.parent, place):
                direct[canonicalize_name(name)] = reference
            if "source" in options:
                bindings[canonicalize_name(name)] = defined_source(options["source"], sources, name, place)
    primary, further, supplemental = _indexes(table, sources)
    return replace(
        project,
        roots=tuple(replace(root, direct=root.direct or direct.get(root.name)) for root in project.roots),
        index_url=primary or project.index_url,
        extra_index_urls=(*project.extra_index_urls, *further),
        supplemental_index_urls=supplemental,
        bindings=bindings,
    )


def _sources(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of the sources by name; empty for a source without an address, such as PyPI."""
    return {str(source.get("name")): str(source.get("url", "")) for source in table.get("source", ())}


def _indexes(
    table: Mapping[str, Any], sources: Mapping[str, str]
) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return the default index, the further and the supplemental ones.

    Explicit sources are used only for packages that name them.
    """
    by_priority: dict[str, list[str]] = {}
    for source in table.get("source", ()):
        by_priority.setdefault(_priority(source), []).append(sources[str(source.get("name"))])
    primary = [url for priority in ("default", "primary") for url in by_priority.get(priority, []) if url]
    supplemental = [url for priority in ("supplemental", "secondary") for url in by_priority.get(priority, []) if url]
    return (primary[0] if primary else None), tuple(primary[1:]), tuple(supplemental)


def _priority(source: Mapping[str, Any]) -> str:
    """Return the priority of a source; before Poetry 1.5 it was one of two flags.

    Source: https://python-poetry.org/docs/1.8/repositories/#package-sources.
    """
    if "priority" in source:
        return str(source["priority"])
    return next((flag for flag in ("default", "secondary") if source.get(flag) is True), "primary")


def _root(name: str, constraint: Any, origin: str, folder: Path) -> RootRequirement:
    from poetry.core.constraints.version import VersionUnion
    from poetry.core.factory import Factory

    direct = reference_of(constraint, folder, origin) if isinstance(constraint, dict) else None
    if direct is not None:
        constraint = {"version": "*", **{key: constraint[key] for key in _CONDITIONS if key in constraint}}
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
    requirement = _LOCAL_VERSION.sub(r"\1", specifier) + separator + marker
    return RootRequirement(requirement=parse_requirement(requirement, origin), origin=origin, direct=direct)


def _packages_of_extras(table: Mapping[str, Any], extras: Iterable[str], path: Path) -> set[str]:
    packages_by_extra = {canonicalize_name(name): names for name, names in _table(table, "extras", path).items()}
    selected = list(map(canonicalize_name, extras))
    check_available(selected, packages_by_extra, path)
    return {canonicalize_name(name) for extra in selected for name in packages_by_extra[extra]}


def _group(table: Mapping[str, Any], group: str, path: Path) -> Mapping[str, Any]:
    groups = _table(table, "group", path)
    if group == "dev" and "dev" not in groups and "dev-dependencies" in table:
        # As it was written before Poetry 1.2.
        return _table(table, "dev-dependencies", path)
    check_available([group], groups, path, kind="dependency group")
    return _table(groups[group], "dependencies", path)


def _check_length(place: str, constraint: Any) -> None:
    """Limit the length of a constraint: poetry-core needs time that is quadratic in the number of spaces."""
    if len(str(constraint)) > _MAX_CONSTRAINT_CHARACTERS:
        raise InputError(f"{place}: the constraint is longer than {_MAX_CONSTRAINT_CHARACTERS} characters")


def _python(constraint: Any, path: Path) -> str | None:
    from poetry.core.constraints.version import parse_constraint

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
    """Whether a constraint of Poetry, such as `^3.9 || ^4.0`, admits an interpreter.

    Args:
        constraint: The constraint.
        pythons: Specifier of the interpreters of which one is enough, such as `==3.12.*`.

    Raises:
        ValueError: If it is not a constraint.
    """
    from poetry.core.constraints.version import parse_constraint

    if len(constraint) > _MAX_CONSTRAINT_CHARACTERS:
        raise ValueError(f"the constraint is longer than {_MAX_CONSTRAINT_CHARACTERS} characters")
    return parse_constraint(constraint).allows_any(parse_constraint(pythons))


def _table(table: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    return table_in(table, key, path, parent="tool.poetry.")


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
