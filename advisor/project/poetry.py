"""Reads the Poetry tables of `pyproject.toml`, through Poetry's own core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.config import line_in
from advisor.domain.requirement import RootRequirement
from advisor.project.interface import (
    ProjectRequirements,
    defined_source,
    line_of,
    not_supported,
    parse_requirement,
)
from knowledge.domain.errors import InputError
from knowledge.domain.requirements import specifiers_from

_ADDRESSES = ("git", "url", "path", "file")
_LONGEST_CONSTRAINT = 2000


def read_poetry(
    path: Path, text: str, table: Mapping[str, Any], *, extras: Iterable[str] = (), groups: Iterable[str] = ()
) -> ProjectRequirements:
    """Read a project that Poetry describes.

    Args:
        path: The `pyproject.toml`.
        text: Its content, to tell lines.
        table: Its `[tool.poetry]`.
        extras: Extras of the project to include.
        groups: Dependency groups to include.

    Raises:
        InputError: If a table is malformed, or a dependency is not on an index.
    """
    dependencies = dict(_table(table, "dependencies", path))
    python = dependencies.pop("python", None)
    sources = _sources(table)
    wanted = _wanted_by_extras(table, extras, path)
    roots: list[RootRequirement] = []
    bindings: dict[str, str] = {}
    tables = [dependencies, *(_group(table, group, path) for group in groups)]
    for name, constraints in ((name, c) for one in tables for name, c in one.items()):
        for constraint in constraints if isinstance(constraints, list) else [constraints]:
            about = constraint if isinstance(constraint, dict) else {}
            if about.get("optional") and canonicalize_name(name) not in wanted:
                continue
            origin = line_of(path, text, f"{name} =") or line_of(path, text, name) or path.name
            roots.append(_root(name, constraint, origin))
            if "source" in about:
                bindings[canonicalize_name(name)] = defined_source(about["source"], sources, name, origin)
    primary, supplemental = _indexes(table, sources)
    return ProjectRequirements(
        roots=tuple(roots),
        requires_python=_python(python, path),
        index_url=primary,
        extra_index_urls=supplemental,
        bindings=bindings,
        files=(str(path),),
    )


def with_poetry_sources(
    found: ProjectRequirements, path: Path, text: str, table: Mapping[str, Any]
) -> ProjectRequirements:
    """Return a project that lists its dependencies itself with what Poetry's tables say about where they come from.

    Source: https://python-poetry.org/docs/dependency-specification/#projectdependencies-and-toolpoetrydependencies.

    Args:
        found: The project.
        path: The `pyproject.toml`.
        text: Its content, to tell lines.
        table: Its `[tool.poetry]`.

    Raises:
        InputError: If a required package is not on an index.
    """
    sources = _sources(table)
    required = {root.name for root in found.roots}
    bindings = dict(found.bindings)
    for name, constraints in _table(table, "dependencies", path).items():
        place = f"{path.name}:{line_in(text, '[tool.poetry.dependencies]', name)}"
        for about in constraints if isinstance(constraints, list) else [constraints]:
            if not isinstance(about, dict) or canonicalize_name(name) not in required:
                continue
            if any(key in about for key in _ADDRESSES):
                raise not_supported(f"{name} = {about}", place)
            if "source" in about:
                bindings[canonicalize_name(name)] = defined_source(about["source"], sources, name, place)
    primary, supplemental = _indexes(table, sources)
    return replace(
        found,
        index_url=primary or found.index_url,
        extra_index_urls=(*found.extra_index_urls, *supplemental),
        bindings=bindings,
    )


def _sources(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of the sources, by name; the default index needs none."""
    return {str(source.get("name")): str(source.get("url", "")) for source in table.get("source", ())}


def _indexes(table: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the default index and the further ones; explicit sources are for bound packages alone."""
    by_priority: dict[str, list[str]] = {}
    for source in table.get("source", ()):
        by_priority.setdefault(str(source.get("priority", "primary")), []).append(sources[str(source.get("name"))])
    primary = [url for url in by_priority.get("primary", []) if url]
    return (primary[0] if primary else None), (*primary[1:], *filter(None, by_priority.get("supplemental", [])))


def _root(name: str, constraint: Any, origin: str) -> RootRequirement:
    from poetry.core.factory import Factory

    if isinstance(constraint, dict) and any(key in constraint for key in _ADDRESSES):
        raise not_supported(f"{name} = {constraint}", origin)
    _check_length(f"{origin}: `{name}`", constraint)
    try:
        requirement = Factory.create_dependency(name, constraint).to_pep_508()
    except Exception as error:  # Poetry's core also raises what its own copy of a parser does.
        raise InputError(f"{origin}: `{name} = {constraint!r}` is not a Poetry dependency: {error}") from None
    if "||" in requirement.partition(";")[0]:
        raise InputError(
            f"{origin}: `{name} = {constraint!r}` admits several ranges, which a requirement cannot say",
            hint="write one range, with `!=` for what is left out",
        )
    return RootRequirement(requirement=parse_requirement(requirement, origin), origin=origin)


def _wanted_by_extras(table: Mapping[str, Any], extras: Iterable[str], path: Path) -> set[str]:
    known = {canonicalize_name(name): names for name, names in _table(table, "extras", path).items()}
    wanted: set[str] = set()
    for extra in map(canonicalize_name, extras):
        if extra not in known:
            raise InputError(
                f"`{path}` has no extra `{extra}`",
                hint=f"it has {', '.join(f'`{e}`' for e in sorted(known)) or 'none'}",
            )
        wanted |= {canonicalize_name(name) for name in known[extra]}
    return wanted


def _group(table: Mapping[str, Any], group: str, path: Path) -> Mapping[str, Any]:
    groups = _table(table, "group", path)
    if group not in groups:
        known = ", ".join(f"`{name}`" for name in sorted(groups)) or "none"
        raise InputError(f"`{path}` has no dependency group `{group}`", hint=f"it has {known}")
    return _table(groups[group], "dependencies", path)


def _check_length(place: str, constraint: Any) -> None:
    """Refuse what poetry-core reads for ever: its patterns take a time that is quadratic in the number of blanks."""
    if len(str(constraint)) > _LONGEST_CONSTRAINT:
        raise InputError(f"{place}: the constraint is longer than {_LONGEST_CONSTRAINT} characters")


def _python(constraint: Any, path: Path) -> str | None:
    from poetry.core.constraints.version import parse_constraint

    if constraint is None:
        return None
    _check_length(f"`{path}`: `tool.poetry.dependencies.python`", constraint)
    try:
        text = str(parse_constraint(str(constraint)))
        if "||" in text or text == "*":
            return None  # A union of ranges has no specifier; the interpreter is the user's choice then.
        specifiers_from(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}`: `tool.poetry.dependencies.python` `{constraint}`: {error}") from None
    return text


def _table(table: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f"`{path}`: `tool.poetry.{key}` is not a table")
    return found
