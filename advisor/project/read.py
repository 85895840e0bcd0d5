"""Reads a project: the files that the user named, or those of its directory."""

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
    """Read what a project asks for.

    Args:
        directory: The project's directory.
        requirements: Requirements files; where given, nothing else is read but the project's ``[tool.advisor]``.
        constraints: Constraints files.
        overrides: Requirements files whose lines replace every requirement on their packages.
        extras: Extras of the project to include.
        groups: Dependency groups to include.

    Raises:
        InputError: If there is nothing to read, or something cannot be read.
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
        declared = any(part.roots for part in parts)
        stated = directory / "requirements.in"
        if stated.is_file() and not declared:
            parts.append(read_requirements(stated))
            declared = True
        for path in sorted(directory.glob("requirements*.txt")):
            if path.name == PINNED and (declared or stated.is_file()) and is_pinned(path):
                continue  # It is the lock of what another file requires.
            if declared or path.name != PINNED:
                reason = (
                    "another file lists the requirements" if declared else "only `requirements.txt` is read by itself"
                )
                skipped.append(f"`{path.name}` was not read: {reason}; name it with `--requirements` to use it")
            else:
                parts.append(read_requirements(path))
        pipfile = directory / "Pipfile"
        if pipfile.is_file() and any(part.roots for part in parts):
            skipped.append("`Pipfile` was not read: another file lists the requirements")
        elif pipfile.is_file():
            parts.append(read_pipfile(pipfile, groups=() if pyproject.is_file() else groups))
    elif extras or groups:
        raise InputError("`--extra` and `--group` name parts of `pyproject.toml`, which `--requirements` replaces")
    if not parts:
        raise InputError(
            f"`{directory}` has no `pyproject.toml`, `requirements.txt` or `Pipfile`",
            hint="name a file with `--requirements FILE`",
        )
    if requirements and pyproject.is_file():
        parts[0] = replace(parts[0], settings=read_settings(pyproject))
    parts += [read_requirements(path, constraint=True) for path in constraints]
    overriding = tuple(root for path in overrides for root in read_requirements(path).roots)
    skipped += [reason for part in parts for reason in part.skipped]
    return replace(_joined(parts), overrides=overriding, skipped=tuple(skipped))


def _joined(parts: Sequence[ProjectRequirements]) -> ProjectRequirements:
    first = replace(parts[0], roots=_placed(parts[0]))
    for part in parts[1:]:
        first = replace(
            first,
            roots=first.roots + _placed(part),
            requires_python=first.requires_python or part.requires_python,
            index_url=part.index_url or first.index_url,
            extra_index_urls=first.extra_index_urls + part.extra_index_urls,
            find_links=first.find_links + part.find_links,
            trusted_hosts=first.trusted_hosts + part.trusted_hosts,
            bindings={**first.bindings, **part.bindings},
            only_binary=first.only_binary + part.only_binary,
            no_binary=first.no_binary + part.no_binary,
            prereleases=first.prereleases or part.prereleases,
            settings={**first.settings, **part.settings},
            files=first.files + part.files,
        )
    return first


def _placed(part: ProjectRequirements) -> tuple[RootRequirement, ...]:
    """Return the requirements of a file with its path, where their reader did not tell."""
    return tuple(root if root.path or not part.files else replace(root, path=part.files[0]) for root in part.roots)
