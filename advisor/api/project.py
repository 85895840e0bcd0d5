"""A project as it is read: its requirements, settings and targets, and what may build its metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.api.configuration import check_table
from advisor.api.options import ProjectFiles, ProjectOptions, TargetOptions
from advisor.index.cache import DiskCache
from advisor.project.benchmark import check_benchmark
from advisor.project.interface import ProjectBuilder, ProjectRequirements, SelectedParts
from advisor.project.metadata.built_metadata import cached_builder
from advisor.project.read import read_project
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, suggest

logger = logging.getLogger(__name__)

TargetTable = tuple[str, Mapping[str, Any]]
"""Name and keys of a target; an empty name for the target that the other settings describe."""


def load_project(
    files: ProjectFiles, *, report: bool = True, build: ProjectBuilder | None = None
) -> ProjectRequirements:
    """Read a project and check its settings.

    Args:
        files: The project's files.
        report: Whether to log what is not read, and why.
        build: Builds the metadata of the project if only a build knows its requirements; ``None`` to refuse this.

    Raises:
        InputError: If a file cannot be read, or the settings are wrong.
        UnbuiltProjectError: If the project must be built, and may not.
        BuildError: If a build fails.
    """
    project = read_project(
        files.directory,
        requirements=files.requirements,
        constraints=files.constraints,
        overrides=files.overrides,
        selection=SelectedParts(extras=tuple(files.extras), groups=tuple(files.groups), build=build),
    )
    if report:
        for reason in project.skipped:
            logger.warning(reason)
        if not any(not root.constraint for root in project.roots):
            has_parts = not all(Path(name).suffix in (".txt", ".in") for name in project.files)
            further = "; `--extra` and `--group` select further ones of it" if has_parts else ""
            logger.warning("the project requires no packages%s", further)
    check_table(project.settings, "pyproject.toml")
    if "benchmark" in project.settings:
        check_benchmark(project.settings["benchmark"])
    return project


def project_builder(options: ProjectOptions) -> ProjectBuilder | None:
    """Return what builds the metadata of a project, which runs its code; ``None`` if the options do not allow it."""
    if not (options.resolution.build_project or options.resolution.build_sdists):
        return None
    return cached_builder(DiskCache(cache_directory(options.indexes.cache_directory)))


def select_targets(options: TargetOptions, project: ProjectRequirements) -> Sequence[TargetTable]:
    """Return the targets that the options name; without names the project's targets, unless options describe one.

    Raises:
        InputError: If the project has no target of a name.
    """
    tables: Mapping[str, Mapping[str, Any]] = project.settings.get("targets", {})
    for name in options.names:
        if name not in tables:
            raise InputError(
                f"the project has no target `{name}`",
                hint=suggest(name, tables) or "define it with `[tool.advisor.targets.NAME]` in `pyproject.toml`",
            )
    if options.names:
        return [(name, tables[name]) for name in dict.fromkeys(options.names)]
    if not tables or options.hardware or options.python or options.platform:
        return [("", {})]
    return list(tables.items())
