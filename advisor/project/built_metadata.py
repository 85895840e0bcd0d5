"""Requirements of a project that are only known after a build of its metadata (`--build-sdists`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.domain.words import quoted
from advisor.index.cache import DiskCache
from advisor.index.metadata import CoreMetadata, header_of, parse_metadata
from advisor.project.copy import copied_project, list_files
from advisor.project.interface import ProjectRequirements, UnbuiltProjectError, parse_root
from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash

ProjectBuilder = Callable[[Path], CoreMetadata]
"""Builds the metadata of the project in a directory, which runs its code."""

_EXTRA = re.compile(r'extra == "([^"]*)"')
_ALWAYS, _NEVER = 'python_version >= "3"', 'python_version < "3"'


def project_builder(cache: DiskCache) -> ProjectBuilder:
    """Return a function that builds the metadata of a project; it is built again after a change of a file.

    Args:
        cache: Cache of what was built.
    """

    def build(directory: Path) -> CoreMetadata:
        from advisor.index.build import build_tree_metadata
        from advisor.index.build_environment import BuildError

        key = f"{sys.version_info[:2]} {directory.absolute()} {_state(directory)}"
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
            error.hint = error.hint or "pass the file that lists the requirements with `--requirements FILE`"
            raise
        cache.write("built-project", key, header.encode())
        return metadata

    return build


def built_requirements(
    path: Path, reason: str, *, extras: Iterable[str] = (), build: ProjectBuilder | None
) -> ProjectRequirements:
    """Return the requirements of a project from a build.

    Args:
        path: The file that computes the requirements.
        reason: Why they are only known after a build.
        extras: Extras of the project to include.
        build: Builds the metadata; none if builds were not allowed.

    Raises:
        UnbuiltProjectError: If builds were not allowed.
        InputError: If the project does not have an extra.
        BuildError: If the build fails.
    """
    if build is None:
        raise UnbuiltProjectError(reason, path=path)
    metadata = build(path.parent)
    selected = frozenset(map(canonicalize_name, extras))
    if unknown := sorted(selected - metadata.extras):
        available = quoted(sorted(metadata.extras)) if metadata.extras else "none"
        raise InputError(f"`{path}` has no extra `{unknown[0]}`", hint=f"it has {available}")
    roots = tuple(
        parse_root(str(_without_extras(requirement, selected)), f"{path.name} (built)", path.parent)
        for requirement in metadata.requires
    )
    return ProjectRequirements(
        roots=roots,
        requires_python=str(metadata.requires_python) if metadata.requires_python else None,
        files=(str(path),),
    )


def _without_extras(requirement: Requirement, selected: frozenset[str]) -> Requirement:
    """Return a requirement whose marker no longer depends on extras."""
    if requirement.marker is None:
        return requirement
    plain = Requirement(str(requirement))
    plain.marker = Marker(
        _EXTRA.sub(
            lambda match: _ALWAYS if canonicalize_name(match[1]) in selected else _NEVER, str(requirement.marker)
        )
    )
    return plain


def _state(directory: Path) -> str:
    """Return the hash of the names, times and sizes of the files of a project."""
    try:
        states = [(name, (directory / name).lstat()) for name in list_files(directory)]
    except OSError as error:
        raise InputError(f"`{error.filename}` cannot be read: {error.strerror}") from None
    return content_hash([[ascii(name), state.st_mtime_ns, state.st_size] for name, state in states])
