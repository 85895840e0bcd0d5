"""Requirements of a project that are only known after a build of its metadata (`--build-project`)."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

from packaging.markers import Marker
from packaging.pylock import is_valid_pylock_path
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.index.cache import DiskCache
from advisor.index.metadata.core import CoreMetadata, header_of, parse_metadata
from advisor.project.interface import (
    ProjectBuilder,
    ProjectRequirements,
    SelectedParts,
    UnbuiltProjectError,
    check_available,
    parse_root,
)
from advisor.project.metadata.copy import copied_project, list_files
from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash

_EXTRA = re.compile(r'extra (?P<operator>[=!]=) "(?P<name>[^"]*)"|"(?P<first>[^"]*)" (?P<reverse>[=!]=) extra')
_HOST = ".".join(map(str, sys.version_info[:2]))
"""The interpreter of builds; the target may have another one."""
_ALWAYS, _NEVER = 'python_version >= "3"', 'python_version < "3"'


def cached_builder(cache: DiskCache) -> ProjectBuilder:
    """Return a function that builds the metadata of a project; it is built again after a change of a file."""

    def build(directory: Path) -> CoreMetadata:
        from advisor.index.metadata.build import BuildError, build_tree_metadata

        key = f"{_HOST} {directory.absolute()} {_state(directory)}"
        cached = cache.read("built-project", key)
        try:
            if cached is not None:
                return parse_metadata(cached.decode())
            with copied_project(directory) as copy:
                header = header_of(build_tree_metadata(copy, f"the project in `{directory}`", copy.parent))
            metadata = parse_metadata(header)
        except ValueError as error:
            raise BuildError(f"the built metadata of the project in `{directory}` is malformed: {error}") from None
        except BuildError as error:
            error.hint = error.hint or (
                "pass the file that lists the requirements with `--requirements FILE`; files that git ignores are not "
                "copied for the build"
            )
            raise
        cache.write("built-project", key, header.encode())
        return metadata

    return build


def built_requirements(path: Path, reason: str, selection: SelectedParts) -> ProjectRequirements:
    """Return the requirements of a project from a build; the reason says why the file does not state them.

    Raises:
        UnbuiltProjectError: If builds were not allowed.
        InputError: If the project does not have an extra.
        BuildError: If the build fails.
    """
    if selection.build is None:
        raise UnbuiltProjectError(reason)
    metadata = selection.build(path.parent)
    selected = frozenset(map(canonicalize_name, selection.extras))
    check_available(sorted(selected), metadata.extras, path)
    roots = tuple(
        parse_root(str(_without_extras(requirement, selected)), f"{path.name} (built)", path.parent)
        for requirement in metadata.requires
    )
    return ProjectRequirements(
        roots=roots,
        requires_python=str(metadata.requires_python) if metadata.requires_python else None,
        files=(str(path),),
        skipped=(f"`{path.name}`: the requirements are those that a build with Python {_HOST} states",),
    )


def without_requirements(directory: Path) -> CoreMetadata:
    """Return metadata without requirements instead of a build, to read only what is known without one."""
    return CoreMetadata(name=canonicalize_name(directory.name or "project"), version=Version("0"))


def _without_extras(requirement: Requirement, selected: frozenset[str]) -> Requirement:
    """Return a requirement whose marker no longer depends on extras."""
    if requirement.marker is None:
        return requirement

    def decided(match: re.Match[str]) -> str:
        is_selected = canonicalize_name(match["name"] or match["first"] or "") in selected
        is_equal = (match["operator"] or match["reverse"]) == "=="
        return _ALWAYS if is_selected == is_equal else _NEVER

    plain = Requirement(str(requirement))
    plain.marker = Marker(_EXTRA.sub(decided, str(requirement.marker)))
    return plain


def _state(directory: Path) -> str:
    """Return the hash of names, times and sizes of the files of a project and of linked files, without its locks."""
    names = [name for name in list_files(directory) if not is_valid_pylock_path(Path(name))]
    try:
        return content_hash([[ascii(name), *_times(directory / name)] for name in names])
    except OSError as error:
        raise InputError(f"`{error.filename}` cannot be read: {error.strerror}") from None


def _times(path: Path) -> list[int]:
    """Return time and size of a file, and of the file that it leads to if it is a link."""
    states = [path.lstat()]
    if path.is_symlink():
        with suppress(OSError):
            states.append(path.stat())
    return [number for state in states for number in (state.st_mtime_ns, state.st_size)]
