"""What the gate compares a project with: a commit or a lock, with its project, policy and lock."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from advisor.api.context import TargetContext, load_project
from advisor.api.options import ProjectFiles
from advisor.gate.base.commit import export_commit, has_commit, read_file_at
from advisor.gate.base.git_objects import commit_of
from advisor.gate.base.policy import BasePolicy, profiles, read_base_policy
from advisor.locks.current import read_current, within
from advisor.locks.lock import Lock
from advisor.locks.registry import read_lock
from advisor.project.interface import ProjectRequirements, UnbuiltProjectError
from advisor.project.metadata.built_metadata import without_requirements
from advisor.project.settings.project_settings import ProjectSettings
from knowledge.domain.errors import InputError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a project is compared with.

    Attributes:
        reference: Its name for git, or the path of the lock.
        files: The files of a commit, in the directory to which it was exported; ``None`` for a lock.
        project: What they require; ``None`` if it could not be read.
        requirements_known: Whether its requirements are known; not if that needs a build.
        lock: The lock; ``None`` for a commit.
    """

    reference: str
    files: ProjectFiles | None = None
    project: ProjectRequirements | None = None
    requirements_known: bool = True
    lock: Path | None = None

    @property
    def name(self) -> str:
        """Its name, for people."""
        return f"`{self.reference}`"


def read_base(files: ProjectFiles, base: str, project_settings: ProjectSettings, stack: ExitStack) -> Base:
    """Return a commit or the lock of a path to compare a project with; the stack removes the exported files.

    The files of the commit that set the same run-time settings as those of the project are read, too.

    Raises:
        InputError: If there is no repository, or no such commit.
    """
    # A file of the change must not be taken for the commit of the same name.
    if commit_of(base, files.directory) is None and Path(base).is_file():
        return Base(reference=base, lock=Path(base))
    return _commit(files, base, project_settings, stack)


def policy_source(
    files: ProjectFiles, base: Base | None, project_settings: ProjectSettings, stack: ExitStack
) -> Base | None:
    """Return the commit whose policy is in force: the base if it is one, else the last; ``None`` if there is none."""
    if base is not None and base.files is not None:
        return base
    if not has_commit(files.directory):
        logger.warning("the repository has no commit yet: the policy is the project's own")
        return None
    return _commit(files, "HEAD", project_settings, stack)


def policy_of_base(source: Base, directory: Path, own: Path) -> BasePolicy:
    """Read the policy of a commit, and lay out the hardware profiles that it names in the directory of its files."""
    base_policy = read_base_policy(source.name, directory)
    for name in profiles(base_policy.settings):
        content = None if (directory / name).exists() else read_file_at(source.reference, own, Path(name))
        if content is not None and (directory / name).resolve().is_relative_to(directory.resolve()):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    return base_policy


def lock_of_base(directory: Path, project: ProjectRequirements, context: TargetContext, lock: Lock) -> Lock | None:
    """Return the base's lock of the same name as the project's, else any lock of the base; ``None`` without one.

    Raises:
        UnreadableFileError: If the lock cannot be read.
    """
    base_lock = None
    if lock.path is not None:
        below = Path(os.path.relpath(lock.path, context.files.directory))
        same = directory / below
        base_lock = read_lock(same, context.target) if ".." not in below.parts and same.is_file() else None
    base_lock = base_lock or read_current(None, directory, context.target, names_unpinned=True)
    return None if base_lock is None else within(base_lock, project.roots)


def _commit(files: ProjectFiles, base: str, project_settings: ProjectSettings, stack: ExitStack) -> Base:
    current = [Path(files.current)] if files.current and Path(files.current).is_file() else []
    paths = (*project_settings.paths, *files.requirements, *files.constraints, *files.overrides, *current)
    extra_files = {Path(os.path.relpath(path, files.directory)) for path in paths}
    directory = stack.enter_context(export_commit(base, files.directory, extra_files=extra_files, warn=logger.warning))
    base_files = files.moved_to(directory)
    try:
        # What is not read of the base is not read of the project either, and was reported there.
        return Base(reference=base, files=base_files, project=load_project(base_files, report=False))
    except UnbuiltProjectError:
        # Its settings and indexes are known, and apply; its code is not run.
        logger.warning("the base `%s` is not built: its requirements are unknown", base)
        project = load_project(base_files, report=False, build=without_requirements)
        return Base(reference=base, files=base_files, project=project, requirements_known=False)
    except InputError as error:
        message = error.message.replace(f"{directory}{os.sep}", "")
        logger.warning("the base `%s` has no project that can be read: %s", base, message)
        return Base(reference=base, files=base_files)
