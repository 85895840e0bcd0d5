"""Reads the Poetry tables of `pyproject.toml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.project.interface import (
    ProjectRequirements,
    SelectedParts,
    check_available,
    defined_source,
    parse_root,
    table_in,
)
from advisor.project.package_sources import reference_of
from advisor.project.text_file import TomlFile

_CONDITIONS = ("python", "platform", "markers", "extras", "optional")
"""Keys that hold for a package wherever it comes from."""


def read_poetry(file: TomlFile, selection: SelectedParts) -> ProjectRequirements:
    """Read the requirements in `[tool.poetry]` of a `pyproject.toml`."""
    from advisor.project.formats.poetry_constraints import python_range

    path, table = file.path, file.at("tool", "poetry")
    dependencies = dict(_table(table, "dependencies", path))
    python = dependencies.pop("python", None)
    sources = _sources(table)
    optional_packages = _packages_of_extras(table, selection.extras, path)
    roots: list[RootRequirement] = []
    bindings: dict[str, str] = {}
    tables = [dependencies, *(_group(table, group, path) for group in selection.groups)]
    for name, constraints in ((name, c) for one in tables for name, c in one.items()):
        for constraint in constraints if isinstance(constraints, list) else [constraints]:
            options = constraint if isinstance(constraint, dict) else {}
            if options.get("optional") and canonicalize_name(name) not in optional_packages:
                continue
            origin = file.entry_place(name)
            roots.append(_root(name, constraint, origin, path.parent))
            if "source" in options:
                bindings[canonicalize_name(name)] = defined_source(options["source"], sources, name, origin)
    primary, further, supplemental = _indexes(table, sources)
    return ProjectRequirements(
        roots=tuple(roots),
        requires_python=python_range(python, path),
        index_url=primary,
        extra_index_urls=further,
        supplemental_index_urls=supplemental,
        bindings=bindings,
        files=(str(path),),
    )


def with_poetry_sources(project: ProjectRequirements, file: TomlFile) -> ProjectRequirements:
    """Return a project whose dependencies are in `[project]` with the package sources of the Poetry tables added.

    Source: https://python-poetry.org/docs/dependency-specification/#projectdependencies-and-toolpoetrydependencies.
    """
    path, table = file.path, file.at("tool", "poetry")
    sources = _sources(table)
    required = {root.name for root in project.roots}
    bindings = dict(project.bindings)
    direct: dict[str, DirectReference] = {}
    for name, constraints in _table(table, "dependencies", path).items():
        place = file.place_after("[tool.poetry.dependencies]", name)
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
    from advisor.project.formats.poetry_constraints import requirement_text

    direct = reference_of(constraint, folder, origin)
    if direct is not None:
        constraint = {"version": "*", **{key: constraint[key] for key in _CONDITIONS if key in constraint}}
    return parse_root(requirement_text(name, constraint, origin), origin, folder, direct=direct)


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


def _table(table: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    return table_in(table, key, path, parent="tool.poetry.")
