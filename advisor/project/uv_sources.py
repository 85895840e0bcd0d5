"""Rejects packages that uv takes from another source than an index; they are not supported.

If such a package were looked up by its name on an index, anybody could have uploaded it (dependency confusion).
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
    """A table of sources in a file.

    Attributes:
        path: The file.
        text: Content of the file, for line numbers.
        name: Full name of the table.
        entries: Contents of the table.
    """

    path: Path
    text: str
    name: str
    entries: Mapping[str, Any]

    def place_of(self, key: str) -> str:
        """Return the file and line of an entry."""
        header = f"[{self.name}.{key}]"
        parts = (header,) if header in self.text else (f"[{self.name}]", f"\n{key}", key)
        return f"{self.path.name}:{line_in(self.text, *parts)}"


def check_uv_sources(path: Path, text: str, document: Mapping[str, Any], required: Collection[str]) -> tuple[str, ...]:
    """Check that every required package comes from an index.

    Args:
        path: The `pyproject.toml`.
        text: Its content, for line numbers.
        document: Its content, parsed.
        required: Normalised names of the required packages.

    Returns:
        Messages about ignored sources, of packages that no selected requirement needs.

    Raises:
        InputError: At the first required package with another source; the message contains file and line.
    """
    tool = document.get("tool", {})
    bound = {canonicalize_name(name) for name in tool.get("advisor", {}).get("package-index", {})}
    ignored: list[str] = []
    for table in _uv_sources(path, text, tool.get("uv", {})):
        for key, source in table.entries.items():
            name = canonicalize_name(key)
            error = _refusal(table, key, source, of_workspace=table.path != path)
            if error is None or (name in bound and _is_index(source)):
                continue
            if name in required:
                raise error
            ignored.append(f"{error.message}; no selected requirement needs it, so it is ignored")
    for key in _UV_REQUIREMENTS:
        for line in tool.get("uv", {}).get(key, ()):
            if _has_address(line):
                raise not_supported(line, f"{path.name}:{line_in(text, key, line)}")
    return tuple(ignored)


def _refusal(table: _SourceTable, key: str, source: Any, *, of_workspace: bool) -> InputError | None:
    """Return the error for a source of uv that is not supported; none if it is supported."""
    place = table.place_of(key)
    if not _is_index(source):
        alternative = source[0] if isinstance(source, list) and source else source
        kinds = [k for k in ("git", "url", "path", "workspace") if isinstance(alternative, dict) and k in alternative]
        kind = kinds[0] if kinds else "unknown"
        return InputError(
            f"{place}: `{key}` has a source of kind `{kind}` in `{table.name}`, which is not supported",
            hint="an index may have an unrelated package of this name: leave it out with `--requirements FILE`",
        )
    conditional = isinstance(source, list) or any(condition in source for condition in _CONDITIONS)
    if conditional or of_workspace:
        what = "an index with conditions" if conditional else "an index of its workspace"
        return InputError(
            f"{place}: `{key}` comes from {what} in `{table.name}`, which is not supported",
            hint=f'set its index in `[tool.advisor.package-index]`: `{key} = "https://..."`',
        )
    return None


def _is_index(source: Any) -> bool:
    """Whether every alternative of a source is an index."""
    alternatives = source if isinstance(source, list) else [source]
    return bool(alternatives) and all(isinstance(one, dict) and "index" in one for one in alternatives)


def _uv_sources(path: Path, text: str, uv: Mapping[str, Any]) -> Iterator[_SourceTable]:
    """Yield the sources of a project, and those of its workspace, which apply to the project too."""
    own_sources = uv.get("sources", {})
    yield _SourceTable(path=path, text=text, name="tool.uv.sources", entries=own_sources)
    if "workspace" in uv:
        return
    project = path.parent.absolute()
    for folder in project.parents:
        root = folder / "pyproject.toml"
        workspace_root = _workspace(root)
        if workspace_root is None:
            continue
        content, settings = workspace_root
        below = project.relative_to(folder).as_posix()
        workspace = settings["workspace"]
        member = any(fnmatch.fnmatchcase(below, str(glob)) for glob in workspace.get("members", ()))
        if member and not any(fnmatch.fnmatchcase(below, str(glob)) for glob in workspace.get("exclude", ())):
            inherited = {key: source for key, source in settings.get("sources", {}).items() if key not in own_sources}
            yield _SourceTable(path=root, text=content, name="tool.uv.sources", entries=inherited)
        return


def _workspace(path: Path) -> tuple[str, Mapping[str, Any]] | None:
    """Return the content and the uv settings of a workspace root; none if the file is not a workspace root."""
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
