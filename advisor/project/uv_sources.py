"""Sources that uv takes a package from instead of an index: refused with their line, for they are not supported.

A package that is looked up by name on an index, although its project takes it from elsewhere, can be anybody's
(dependency confusion).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from advisor.config import line_in
from advisor.project.interface import not_supported
from knowledge.domain.errors import InputError
from knowledge.domain.toml import parse_toml

# https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources
_CONDITIONS = ("marker", "extra", "group")
_UV_REQUIREMENTS = ("override-dependencies", "constraint-dependencies")


@dataclass(frozen=True, kw_only=True)
class _SourceTable:
    """A table of a file.

    Attributes:
        path: The file.
        text: Its content, to tell lines.
        name: Full name of the table.
        entries: What it holds.
    """

    path: Path
    text: str
    name: str
    entries: Mapping[str, Any]

    def place_of(self, key: str) -> str:
        """Return the file and line of an entry."""
        own = f"[{self.name}.{key}]"
        parts = (own,) if own in self.text else (f"[{self.name}]", f"\n{key}", key)
        return f"{self.path.name}:{line_in(self.text, *parts)}"


def check_uv_sources(path: Path, text: str, document: Mapping[str, Any], required: Collection[str]) -> tuple[str, ...]:
    """Refuse what takes a required package from anywhere but an index.

    Args:
        path: The `pyproject.toml`.
        text: Its content, to tell lines.
        document: What it holds.
        required: Normalised names of the packages that are required.

    Returns:
        Sources of packages that nothing selected requires, for people.

    Raises:
        InputError: At the first one; the message names file and line.
    """
    tool = document.get("tool", {})
    bound = {canonicalize_name(name) for name in tool.get("advisor", {}).get("package-index", {})}
    passed: list[str] = []
    for table in _uv_sources(path, text, tool.get("uv", {})):
        for key, source in table.entries.items():
            name = canonicalize_name(key)
            error = _refusal(table, key, source, of_workspace=table.path != path)
            if error is None or (name in bound and _is_index(source)):
                continue
            if name in required:
                raise error
            passed.append(f"{error.message}; no selected requirement names it, so it is not looked at")
    for key in _UV_REQUIREMENTS:
        for line in tool.get("uv", {}).get(key, ()):
            if _has_address(line):
                raise not_supported(line, f"{path.name}:{line_in(text, key, line)}")
    return tuple(passed)


def _refusal(table: _SourceTable, key: str, source: Any, *, of_workspace: bool) -> InputError | None:
    """Return why a source of uv is not supported; none where it is."""
    place = table.place_of(key)
    if not _is_index(source):
        first = source[0] if isinstance(source, list) and source else source
        kinds = [k for k in ("git", "url", "path", "workspace") if isinstance(first, dict) and k in first]
        kind = kinds[0] if kinds else "unknown"
        return InputError(
            f"{place}: `{key}` has a source of kind `{kind}` in `{table.name}`, which is not supported",
            hint="a package of this name on an index may be another one: leave it out with `--requirements FILE`",
        )
    conditional = isinstance(source, list) or any(condition in source for condition in _CONDITIONS)
    if conditional or of_workspace:
        what = "an index under conditions" if conditional else "an index of its workspace"
        return InputError(
            f"{place}: `{key}` comes from {what} in `{table.name}`, which is not supported",
            hint=f'name its one index in `[tool.advisor.package-index]`: `{key} = "https://..."`',
        )
    return None


def _is_index(source: Any) -> bool:
    """Whether every alternative of a source is an index."""
    alternatives = source if isinstance(source, list) else [source]
    return bool(alternatives) and all(isinstance(one, dict) and "index" in one for one in alternatives)


def _uv_sources(path: Path, text: str, uv: Mapping[str, Any]) -> Iterator[_SourceTable]:
    """Yield the sources of a project, and those of the workspace that it is a member of, which bind it too."""
    own = uv.get("sources", {})
    yield _SourceTable(path=path, text=text, name="tool.uv.sources", entries=own)
    if "workspace" in uv:
        return
    project = path.parent.absolute()
    for folder in project.parents:
        root = folder / "pyproject.toml"
        found = _workspace(root)
        if found is None:
            continue
        content, settings = found
        below = project.relative_to(folder).as_posix()
        workspace = settings["workspace"]
        member = any(fnmatch.fnmatchcase(below, str(glob)) for glob in workspace.get("members", ()))
        if member and not any(fnmatch.fnmatchcase(below, str(glob)) for glob in workspace.get("exclude", ())):
            left = {key: source for key, source in settings.get("sources", {}).items() if key not in own}
            yield _SourceTable(path=root, text=content, name="tool.uv.sources", entries=left)
        return


def _workspace(path: Path) -> tuple[str, Mapping[str, Any]] | None:
    """Return content and uv's settings of the root of a workspace; none where a file is no such root."""
    try:
        text = path.read_text(encoding="utf-8")
        uv = parse_toml(text).get("tool", {}).get("uv", {})
    except (OSError, ValueError, RecursionError):
        return None
    return (text, uv) if isinstance(uv.get("workspace"), dict) else None


def _has_address(line: Any) -> bool:
    try:
        return Requirement(str(line)).url is not None
    except InvalidRequirement:
        return False
