"""Reads where uv takes packages from (`tool.uv.sources`), and its constraints and overrides.

Sources: https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources,
https://docs.astral.sh/uv/concepts/projects/workspaces/ and https://docs.astral.sh/uv/concepts/resolution/.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.domain.words import quoted
from advisor.project.interface import SelectedParts, parse_root
from advisor.project.package_sources import PackageSource, reference_of
from advisor.project.text_file import line_in
from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

_MOST_MEMBERS = 1000
"""Maximum number of directories of a workspace that are read."""


@dataclass(frozen=True, kw_only=True)
class _SourceTable:
    """The sources in one file.

    Attributes:
        path: The file.
        text: Content of the file, for line numbers.
        uv: Its settings of uv.
        entries: The sources that apply to the project.
    """

    path: Path
    text: str
    uv: Mapping[str, Any]
    entries: Mapping[str, Any]

    def place_of(self, key: str) -> str:
        """Return the file and line of an entry."""
        header = f"[tool.uv.sources.{key}]"
        parts = (header,) if header in self.text else ("[tool.uv.sources]", f"\n{key}", key)
        return f"{self.path.name}:{line_in(self.text, *parts)}"


def read_uv_sources(
    path: Path, text: str, document: Mapping[str, Any], selection: SelectedParts
) -> dict[str, tuple[PackageSource, ...]]:
    """Return the places that packages come from, by normalised name.

    Args:
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        document: Its content, parsed.
        selection: What the user selected.

    Raises:
        InputError: If a source is malformed, or its index or its member of the workspace does not exist.
    """
    selected = {
        "extra": {"", *map(canonicalize_name, selection.extras)},
        "group": {"", *map(canonicalize_name, selection.groups)},
    }
    sources: dict[str, tuple[PackageSource, ...]] = {}
    for table in _source_tables(path, text, document.get("tool", {}).get("uv", {})):
        for key, value in table.entries.items():
            alternatives = value if isinstance(value, list) else [value]
            if not alternatives or not all(isinstance(alternative, dict) for alternative in alternatives):
                raise InputError(f"{table.place_of(key)}: the source of `{key}` is not a table or a list of tables")
            sources[canonicalize_name(key)] = tuple(
                _source(table, key, alternative)
                for alternative in alternatives
                if all(canonicalize_name(str(alternative.get(kind, ""))) in names for kind, names in selected.items())
            )
    return sources


def uv_requirements(
    path: Path, text: str, document: Mapping[str, Any]
) -> tuple[tuple[RootRequirement, ...], tuple[RootRequirement, ...]]:
    """Return the constraints and the overrides in the settings of uv.

    Args:
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        document: Its content, parsed.

    Raises:
        InputError: If one is malformed.
    """

    def roots(key: str) -> tuple[RootRequirement, ...]:
        lines = document.get("tool", {}).get("uv", {}).get(key, ())
        return tuple(parse_root(str(line), f"{path.name}:{line_in(text, key, line)}", path.parent) for line in lines)

    constraints = tuple(replace(root, constraint=True) for root in roots("constraint-dependencies"))
    return constraints, roots("override-dependencies")


def _source(table: _SourceTable, key: str, options: Mapping[str, Any]) -> PackageSource:
    place, folder = table.place_of(key), table.path.parent
    marker = str(options.get("marker", ""))
    try:
        marker = str(Marker(marker)) if marker else ""
    except InvalidMarker as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{place}: the source of `{key}` has a malformed marker: {reason}") from None
    if "index" in options:
        urls = {index.get("name"): str(index.get("url", "")) for index in table.uv.get("index", ())}
        if options["index"] not in urls:
            raise InputError(f"{place}: `{key}` comes from the index `{options['index']}`, which is not defined")
        return PackageSource(index=urls[options["index"]], marker=marker)
    if options.get("workspace"):
        return PackageSource(reference=_member(table, key, place), marker=marker)
    reference = reference_of(options, folder, place)
    if reference is None:
        raise InputError(
            f"{place}: the source of `{key}` names no `index`, `git`, `url`, `path` or `workspace`",
            hint="https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources lists the kinds",
        )
    return PackageSource(reference=reference, marker=marker)


def _member(table: _SourceTable, key: str, place: str) -> DirectReference:
    """Return the directory of a member of the workspace.

    Raises:
        InputError: If the workspace has no such member.
    """
    name = canonicalize_name(key)
    root = _workspace_root(table.path)
    members = _members(root) if root is not None else {}
    if name not in members:
        raise InputError(
            f"{place}: `{key}` is not a member of the workspace",
            hint=f"it has {quoted(sorted(members)) or 'no members'}",
        )
    return DirectReference(kind="directory", url=str(members[name].absolute()), editable=True)


def _members(root: Path) -> dict[str, Path]:
    """Return the directories of the projects of a workspace, by name."""
    workspace = _uv_of(root)[1]["workspace"]
    folders = [root.parent]
    for pattern in map(str, workspace.get("members", ())):
        if Path(pattern).is_absolute():
            raise InputError(
                f"`{root}`: the member `{pattern}` of the workspace is an absolute path",
                hint="write it relative to the directory of the workspace",
            )
        folders += sorted(root.parent.glob(pattern))[:_MOST_MEMBERS]
    excluded = [str(pattern) for pattern in workspace.get("exclude", ())]
    members: dict[str, Path] = {}
    for folder in folders:
        below = folder.relative_to(root.parent).as_posix()
        if any(fnmatch.fnmatchcase(below, pattern) for pattern in excluded):
            continue
        name = _document(folder / "pyproject.toml")[1].get("project", {}).get("name")
        if isinstance(name, str):
            members.setdefault(canonicalize_name(name), folder)
    return members


def _source_tables(path: Path, text: str, uv: Mapping[str, Any]) -> Iterator[_SourceTable]:
    """Yield the sources of the workspace of a project, which apply to the project too, and then its own."""
    root = _workspace_root(path)
    if root is not None and root.absolute() != path.absolute():
        content, settings = _uv_of(root)
        yield _SourceTable(path=root, text=content, uv=settings, entries=settings.get("sources", {}))
    yield _SourceTable(path=path, text=text, uv=uv, entries=uv.get("sources", {}))


def _workspace_root(path: Path) -> Path | None:
    """Return the `pyproject.toml` with the workspace that a project belongs to; `None` if it belongs to none."""
    if isinstance(_uv_of(path)[1].get("workspace"), dict):
        return path
    project = path.parent.absolute()
    for folder in project.parents:
        root = folder / "pyproject.toml"
        workspace = _uv_of(root)[1].get("workspace") if root.is_file() else None
        if isinstance(workspace, dict):
            below = project.relative_to(folder).as_posix()

            def matches(key: str, below: str = below, workspace: Mapping[str, Any] = workspace) -> bool:
                return any(fnmatch.fnmatchcase(below, str(pattern)) for pattern in workspace.get(key, ()))

            return root if matches("members") and not matches("exclude") else None
    return None


def _uv_of(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the content of a `pyproject.toml`, and its settings of uv; empty ones if it cannot be read."""
    text, document = _document(path)
    uv = document.get("tool", {}).get("uv", {})
    return text, uv if isinstance(uv, dict) else {}


def _document(path: Path) -> tuple[str, Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, parse_toml(text)
    except (OSError, ValueError, RecursionError):
        return "", {}
