"""Reads where uv takes packages from (`tool.uv.sources`), and its constraints and overrides.

Sources: https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources,
https://docs.astral.sh/uv/concepts/projects/workspaces/ and https://docs.astral.sh/uv/concepts/resolution/.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.domain.words import quoted
from advisor.project.interface import SelectedParts, parse_root
from advisor.project.package_sources import PackageSource, reference_of
from advisor.project.text_file import TomlFile, read_toml
from knowledge.domain.errors import InputError

_MOST_MEMBERS = 1000
"""Maximum number of directories of a workspace that are read."""


def read_uv_sources(project: TomlFile, selection: SelectedParts) -> dict[str, tuple[PackageSource, ...]]:
    """Return the places that packages come from, by normalised name, as a `pyproject.toml` and its workspace say."""
    selected = {
        "extra": {"", *map(canonicalize_name, selection.extras)},
        "group": {"", *map(canonicalize_name, selection.groups)},
    }
    sources: dict[str, tuple[PackageSource, ...]] = {}
    root = _workspace_root(project.path)
    # The sources of a workspace apply to its projects, too.
    workspace = [root] if root is not None and root.path.absolute() != project.path.absolute() else []
    for file in (*workspace, project):
        for key, value in _uv_of(file).get("sources", {}).items():
            alternatives = value if isinstance(value, list) else [value]
            if not alternatives or not all(isinstance(alternative, dict) for alternative in alternatives):
                raise InputError(f"{_place_of(file, key)}: the source of `{key}` is not a table or a list of tables")
            sources[canonicalize_name(key)] = tuple(
                _source(file, key, alternative)
                for alternative in alternatives
                if all(canonicalize_name(str(alternative.get(kind, ""))) in names for kind, names in selected.items())
            )
    return sources


def uv_requirements(file: TomlFile) -> tuple[tuple[RootRequirement, ...], tuple[RootRequirement, ...]]:
    """Return the constraints and the overrides in the settings of uv in a `pyproject.toml`."""

    def roots(key: str) -> tuple[RootRequirement, ...]:
        lines = file.at("tool", "uv").get(key, ())
        return tuple(parse_root(str(line), file.place_after(key, line), file.path.parent) for line in lines)

    constraints = tuple(replace(root, constraint=True) for root in roots("constraint-dependencies"))
    return constraints, roots("override-dependencies")


def _place_of(file: TomlFile, key: str) -> str:
    header = f"[tool.uv.sources.{key}]"
    return file.place_after(*((header,) if header in file.text else ("[tool.uv.sources]", f"\n{key}", key)))


def _source(file: TomlFile, key: str, options: Mapping[str, Any]) -> PackageSource:
    place = _place_of(file, key)
    marker = str(options.get("marker", ""))
    try:
        marker = str(Marker(marker)) if marker else ""
    except InvalidMarker as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{place}: the source of `{key}` has a malformed marker: {reason}") from None
    if "index" in options:
        urls = {index.get("name"): str(index.get("url", "")) for index in _uv_of(file).get("index", ())}
        if options["index"] not in urls:
            raise InputError(f"{place}: `{key}` comes from the index `{options['index']}`, which is not defined")
        return PackageSource(index=urls[options["index"]], marker=marker)
    if options.get("workspace"):
        return PackageSource(reference=_member(file.path, key, place), marker=marker)
    reference = reference_of(options, file.path.parent, place)
    if reference is None:
        raise InputError(
            f"{place}: the source of `{key}` names no `index`, `git`, `url`, `path` or `workspace`",
            hint="https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources lists the kinds",
        )
    return PackageSource(reference=reference, marker=marker)


def _member(path: Path, key: str, place: str) -> DirectReference:
    """Return the directory of a member of the workspace of a project."""
    name = canonicalize_name(key)
    root = _workspace_root(path)
    members = _members(root) if root is not None else {}
    if name not in members:
        raise InputError(
            f"{place}: `{key}` is not a member of the workspace",
            hint=f"it has {quoted(sorted(members)) or 'no members'}",
        )
    return DirectReference(kind="directory", url=str(members[name].absolute()), editable=True)


def _members(root: TomlFile) -> dict[str, Path]:
    """Return the directories of the projects of a workspace, by name."""
    workspace, top = _uv_of(root)["workspace"], root.path.parent
    folders = [top]
    for pattern in map(str, workspace.get("members", ())):
        if Path(pattern).is_absolute():
            raise InputError(
                f"`{root.path}`: the member `{pattern}` of the workspace is an absolute path",
                hint="write it relative to the directory of the workspace",
            )
        folders += sorted(top.glob(pattern))[:_MOST_MEMBERS]
    members: dict[str, Path] = {}
    for folder in folders:
        if not _is_listed(folder, top, workspace, "exclude"):
            name = _read(folder / "pyproject.toml").at("project").get("name")
            if isinstance(name, str):
                members.setdefault(canonicalize_name(name), folder)
    return members


def _is_listed(folder: Path, top: Path, workspace: Mapping[str, Any], key: str) -> bool:
    """Whether a pattern of a workspace, whose directory is the top, matches a folder."""
    below = folder.relative_to(top).as_posix()
    return any(fnmatch.fnmatchcase(below, str(pattern)) for pattern in workspace.get(key, ()))


def _workspace_root(path: Path) -> TomlFile | None:
    """Return the `pyproject.toml` with the workspace that a project belongs to; `None` if it belongs to none."""
    file = _read(path)
    if isinstance(_uv_of(file).get("workspace"), dict):
        return file
    project = path.parent.absolute()
    for folder in project.parents:
        root = _read(folder / "pyproject.toml")
        workspace = _uv_of(root).get("workspace")
        if isinstance(workspace, dict):
            is_member = _is_listed(project, folder, workspace, "members")
            return root if is_member and not _is_listed(project, folder, workspace, "exclude") else None
    return None


def _uv_of(file: TomlFile) -> Mapping[str, Any]:
    uv = file.at("tool", "uv")
    return uv if isinstance(uv, dict) else {}


def _read(path: Path) -> TomlFile:
    """Return a file, with an empty document if it cannot be read."""
    try:
        return read_toml(path)
    except InputError:
        return TomlFile(path, "", {})
