"""Reads `pyproject.toml`: dependencies (PEP 621) or Poetry's tables, extras, dependency groups (PEP 735).

Dynamic dependencies are read from the files that setuptools and hatch name. Sources:
https://setuptools.pypa.io/en/latest/userguide/pyproject_config.html#dynamic-metadata and
https://github.com/repo-helper/hatch-requirements-txt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.utils import canonicalize_name

from advisor.domain.words import quoted
from advisor.index.metadata.sdist import flit_project
from advisor.project.formats.poetry import read_poetry, with_poetry_sources
from advisor.project.formats.requirements import read_requirements
from advisor.project.formats.setup_files import has_setup_files, read_setup_files
from advisor.project.formats.uv_sources import read_uv_sources, uv_requirements
from advisor.project.interface import (
    NOTHING,
    ProjectRequirements,
    SelectedParts,
    check_available,
    filled_address,
    merge_requirements,
    opened_toml,
    parse_requirement,
    parse_root,
    python_specifier,
    table_in,
)
from advisor.project.metadata.built_metadata import built_requirements
from advisor.project.metadata.stated_metadata import uv_metadata
from advisor.project.text_file import TomlFile, read_toml
from knowledge.domain.errors import InputError

_PDM_DEFAULT = "pypi"
"""A source of PDM with this name replaces the default index."""
_OTHER_BACKENDS = ("hatchling", "flit_core", "pdm", "poetry", "maturin", "scikit_build_core", "mesonpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectIdentity:
    """Name and version of a project.

    Attributes:
        name: The name, as written.
        version: The version, as written; `None` if it is dynamic.
    """

    name: str
    version: str | None


def read_identity(path: Path) -> ProjectIdentity | None:
    """Return the name and version in ``[project]`` or ``[tool.poetry]``; `None` without a file or a name."""
    if not path.is_file():
        return None
    with opened_toml(path) as file:
        for table in (file.at("project"), file.at("tool", "poetry")):
            name, version = table.get("name"), table.get("version")
            if isinstance(name, str) and name.isprintable() and name:
                has_version = isinstance(version, str) and version.isprintable()
                return ProjectIdentity(name=name, version=version if has_version else None)
    return None


def read_pyproject(path: Path, selection: SelectedParts = NOTHING) -> ProjectRequirements:
    """Read the requirements of a project.

    Raises:
        BuildError: If a build fails.
    """
    with opened_toml(path) as file:
        return _read(file, selection)


def _read(file: TomlFile, selection: SelectedParts) -> ProjectRequirements:
    path, document = file.path, file.document
    project = table_in(document, "project", path) or _flit_project(file)
    poetry = file.at("tool", "poetry")
    if isinstance(poetry, dict) and "dependencies" in poetry and "dependencies" not in project:
        return replace(read_poetry(file, selection), settings=_settings(file))
    dynamic = None
    if "dependencies" in project.get("dynamic", ()):
        dynamic = read_dynamic(file, selection)
    own_extras = [] if dynamic and "optional-dependencies" in project.get("dynamic", ()) else selection.extras
    lines = [*_dependencies(project, own_extras, path), *_groups(document, selection.groups, path)]
    requirements = ProjectRequirements(
        roots=tuple(parse_root(line, file.place(line), path.parent) for line in lines),
        requires_python=python_specifier(project.get("requires-python"), f"`{path}`: `project.requires-python`"),
        settings=_settings(file),
        files=(str(path),),
    )
    if dynamic is not None:
        requirements = replace(
            dynamic,
            roots=(*dynamic.roots, *requirements.roots),
            requires_python=requirements.requires_python or dynamic.requires_python,
            settings=requirements.settings,
            files=(*requirements.files, *dynamic.files),
        )
    requirements = _with_pdm_sources(with_poetry_sources(requirements, file), file)
    constraints, overrides = uv_requirements(file)
    return replace(
        requirements,
        roots=(*requirements.roots, *constraints),
        overrides=(*requirements.overrides, *overrides),
        sources=read_uv_sources(file, selection),
    )


def _with_pdm_sources(project: ProjectRequirements, file: TomlFile) -> ProjectRequirements:
    """Return a project with the indexes and the overrides in the tables of PDM added.

    Source: https://pdm-project.org/latest/usage/config/ and https://pdm-project.org/latest/usage/dependency/.
    """
    overrides = list(project.overrides)
    for name, version in file.at("tool", "pdm", "resolution", "overrides").items():
        place = file.place_after("[tool.pdm.resolution.overrides]", name)
        is_version = version[:1].isdigit()
        separator = "==" if is_version else " @ " if "://" in version or version.startswith((".", "/")) else ""
        overrides.append(parse_root(f"{name}{separator}{version}", place, file.path.parent))
    default, extra, links = project.index_url, list(project.extra_index_urls), list(project.find_links)
    bindings = dict(project.bindings)
    for source in file.at("tool", "pdm").get("source", ()):
        name = str(source.get("name", ""))
        place = file.place_after("[[tool.pdm.source]]", name)
        url = filled_address(str(source.get("url", "")), place)
        if patterns := source.get("exclude_packages") or [p for p in source.get("include_packages", ()) if "*" in p]:
            raise InputError(
                f"{place}: the source `{name}` selects packages by a pattern (`{patterns[0]}`), which is not supported",
                hint="list each package in `include_packages`",
            )
        if source.get("type") == "find_links":
            links.append(url)
        elif "include_packages" in source:
            bindings |= {canonicalize_name(package): url for package in source["include_packages"]}
        elif name == _PDM_DEFAULT:
            default = url or default
        else:
            extra.append(url)
    return replace(
        project,
        overrides=tuple(overrides),
        index_url=default,
        extra_index_urls=tuple(filter(None, extra)),
        find_links=tuple(filter(None, links)),
        bindings=bindings,
    )


def states_requirements(path: Path) -> bool:
    """Whether a `pyproject.toml` states what the project requires, be it nothing; else it only configures tools."""
    with opened_toml(path) as file:
        return bool(file.at("project") or file.at("tool", "poetry", "dependencies") or _flit_project(file))


def _flit_project(file: TomlFile) -> dict[str, Any]:
    """Return the old tables of flit in the form of the table `project`; empty without them."""
    table = file.at("tool", "flit", "metadata")
    return flit_project(table) if table else {}


def read_settings(path: Path) -> Mapping[str, Any]:
    """Read only the ``[tool.advisor]`` table."""
    with opened_toml(path) as file:
        return _settings(file)


def has_uv_settings(path: Path) -> bool:
    """Whether a `pyproject.toml` has settings of uv; not if it cannot be read."""
    try:
        tool = read_toml(path).at("tool")
    except InputError:
        return False
    return isinstance(tool, dict) and "uv" in tool


def _settings(file: TomlFile) -> Mapping[str, Any]:
    """Return the table ``tool.advisor``, with the metadata of packages that the settings of uv state."""
    settings = file.at("tool", "advisor")
    settings = settings if isinstance(settings, dict) else {}
    further = uv_metadata(file.at("tool", "uv"))
    own = settings.get("metadata", [])
    return {**settings, "metadata": [*own, *further]} if further and isinstance(own, list) else settings


def _dependencies(project: Mapping[str, Any], extras: Iterable[str], path: Path) -> Iterator[str]:
    """Yield the requirements of the project and of the selected extras; an extra may include other extras."""
    yield from _strings(project.get("dependencies", []), f"`{path}`: `project.dependencies`")
    optional = table_in(project, "optional-dependencies", path, parent="project.")
    lines_by_extra = {canonicalize_name(extra): lines for extra, lines in optional.items()}
    pending = [canonicalize_name(extra) for extra in extras]
    included: set[str] = set()
    project_name = canonicalize_name(str(project.get("name", "")))
    while pending:
        extra = pending.pop(0)
        if extra in included:
            continue
        included.add(extra)
        check_available([extra], lines_by_extra, path)
        for line in _strings(lines_by_extra[extra], f"`{path}`: `project.optional-dependencies.{extra}`"):
            requirement = parse_requirement(line, str(path))
            if project_name and canonicalize_name(requirement.name) == project_name:
                pending += [canonicalize_name(e) for e in sorted(requirement.extras)]
            else:
                yield line


def _groups(document: Mapping[str, Any], groups: Sequence[str], path: Path) -> Iterator[str]:
    try:
        yield from resolve_dependency_groups(document.get("dependency-groups", {}), *groups) if groups else ()
    except (LookupError, ValueError, TypeError, ExceptionGroup) as error:
        available = quoted(sorted(document.get("dependency-groups", {}))) or "none"
        causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        raise InputError(f"`{path}`: dependency groups: {causes[0]}", hint=f"it has {available}") from None


def _strings(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where} is not a list of requirements")
    return value


def read_dynamic(file: TomlFile, selection: SelectedParts) -> ProjectRequirements:
    """Read the dynamic dependencies of a project and of its extras.

    Raises:
        InputError: If they are known only after a build, which is refused, or a file cannot be read.
        BuildError: If the build fails.
    """
    path = file.path
    extras = selection.extras if "optional-dependencies" in file.at("project", "dynamic") else ()
    setuptools = file.at("tool", "setuptools", "dynamic")
    hatch = file.at("tool", "hatch", "metadata", "hooks", "requirements_txt")
    if "dependencies" in setuptools:
        tables = setuptools.get("optional-dependencies", {})
        return _read_files(path, [setuptools["dependencies"], *_extras(path, tables, extras)])
    if hatch:
        files = hatch.get("files") or [hatch.get("filename", "requirements.txt")]
        tables = {name: {"file": names} for name, names in hatch.get("optional-dependencies", {}).items()}
        return _read_files(path, [{"file": files}, *_extras(path, tables, extras)])
    backend = str(file.at("build-system").get("build-backend", ""))
    if not backend.startswith(_OTHER_BACKENDS) and has_setup_files(path.parent):
        return read_setup_files(path.parent, replace(selection, extras=extras))
    reason = f"`{path}`: `project.dependencies` is dynamic: it is only known after a build"
    return built_requirements(path, reason, replace(selection, extras=extras))


def _extras(path: Path, tables: Mapping[str, Any], extras: Iterable[str]) -> list[Any]:
    by_name = {canonicalize_name(name): table for name, table in tables.items()}
    selected = list(map(canonicalize_name, extras))
    check_available(selected, by_name, path)
    return [by_name[extra] for extra in selected]


def _read_files(path: Path, tables: Iterable[Mapping[str, Any]]) -> ProjectRequirements:
    """Read the requirements files that tables name."""
    names = [table["file"] for table in tables]
    files = [file for name in names for file in ([name] if isinstance(name, str) else name)]
    return merge_requirements([read_requirements(path.parent / file) for file in files])
