"""Reads a project: the files that the user chose, or those of its directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from advisor.domain.requirement import RootRequirement
from advisor.project.current import PINNED, is_pinned
from advisor.project.interface import ProjectRequirements
from advisor.project.pipfile import read_pipfile
from advisor.project.pyproject import read_pyproject, read_settings
from advisor.project.requirements import read_requirements
from knowledge.domain.errors import InputError


def read_project(
    directory: Path,
    *,
    requirements: Sequence[Path] = (),
    constraints: Sequence[Path] = (),
    overrides: Sequence[Path] = (),
    extras: Iterable[str] = (),
    groups: Iterable[str] = (),
) -> ProjectRequirements:
    """Read the requirements of a project.

    Args:
        directory: The directory of the project.
        requirements: Requirements files; if there are any, only ``[tool.advisor]`` is read in addition.
        constraints: Constraints files.
        overrides: Requirements files whose lines replace every requirement on the same packages.
        extras: Extras of the project to include.
        groups: Dependency groups to include.

    Raises:
        InputError: If the project has no requirements file, or a file cannot be read.
    """
    if not directory.is_dir():
        raise InputError(f"`{directory}` is not a directory")
    extras, groups = tuple(extras), tuple(groups)
    pyproject = directory / "pyproject.toml"
    parts = [read_requirements(path) for path in requirements]
    skipped: list[str] = []
    if not parts:
        if pyproject.is_file():
            parts.append(read_pyproject(pyproject, extras=extras, groups=groups))
        has_roots = any(part.roots for part in parts)
        source_file = directory / "requirements.in"
        if source_file.is_file() and not has_roots:
            parts.append(read_requirements(source_file))
            has_roots = True
        for path in sorted(directory.glob("requirements*.txt")):
            if path.name == PINNED and (has_roots or source_file.is_file()) and is_pinned(path):
                continue  # It is the lock of the requirements in another file.
            if has_roots or path.name != PINNED:
                reason = (
                    "another file lists the requirements" if has_roots else "only `requirements.txt` is read by default"
                )
                skipped.append(f"`{path.name}` was not read: {reason}; use it with `--requirements`")
            else:
                parts.append(read_requirements(path))
        pipfile = directory / "Pipfile"
        if pipfile.is_file() and any(part.roots for part in parts):
            skipped.append("`Pipfile` was not read: another file lists the requirements")
        elif pipfile.is_file():
            parts.append(read_pipfile(pipfile, groups=() if pyproject.is_file() else groups))
    elif extras or groups:
        raise InputError("`--extra` and `--group` select parts of `pyproject.toml`, which `--requirements` replaces")
    if not parts:
        raise InputError(
            f"`{directory}` has no `pyproject.toml`, `requirements.txt` or `Pipfile`",
            hint="pass a file with `--requirements FILE`",
        )
    if requirements and pyproject.is_file():
        parts[0] = replace(parts[0], settings=read_settings(pyproject))
    parts += [read_requirements(path, constraint=True) for path in constraints]
    overriding = tuple(root for path in overrides for root in read_requirements(path).roots)
    skipped += [reason for part in parts for reason in part.skipped]
    return replace(_merge(parts), overrides=overriding, skipped=tuple(skipped))


def _merge(parts: Sequence[ProjectRequirements]) -> ProjectRequirements:
    merged = replace(parts[0], roots=_roots_with_path(parts[0]))
    for part in parts[1:]:
        merged = replace(
            merged,
            roots=merged.roots + _roots_with_path(part),
            requires_python=merged.requires_python or part.requires_python,
            index_url=part.index_url or merged.index_url,
            extra_index_urls=merged.extra_index_urls + part.extra_index_urls,
            find_links=merged.find_links + part.find_links,
            trusted_hosts=merged.trusted_hosts + part.trusted_hosts,
            bindings={**merged.bindings, **part.bindings},
            only_binary=merged.only_binary + part.only_binary,
            no_binary=merged.no_binary + part.no_binary,
            prereleases=merged.prereleases or part.prereleases,
            settings={**merged.settings, **part.settings},
            files=merged.files + part.files,
        )
    return merged


def _roots_with_path(part: ProjectRequirements) -> tuple[RootRequirement, ...]:
    """Return the requirements of a file, with the path of the file if the reader did not set one."""
    return tuple(root if root.path or not part.files else replace(root, path=part.files[0]) for root in part.roots)
