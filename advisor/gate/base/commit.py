"""The files of a project in a commit, which a change is compared with."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from advisor.gate.base.git_objects import CommitTree, commit_of, prefix_of, repository_error
from advisor.locks.registry import lock_formats
from advisor.project.code.files import FILE_PATTERNS, is_project_file
from advisor.project.formats.requirements import included_files
from knowledge.domain.errors import InputError

_NAMES = (*("*.toml", "*.lock", "Pipfile", "*.txt", "*.in", "*.yaml", "*.yml", "setup.py", "setup.cfg", "*.ipynb"),)
_REQUIREMENTS = (".txt", ".in")


@contextmanager
def export_commit(
    reference: str, directory: Path, *, extra_files: Collection[Path] = (), warn: Callable[[str], None]
) -> Iterator[Path]:
    """Write the files of a commit that concern a project's packages to a temporary folder; nothing is executed.

    Files that may contain run-time settings are written if they differ from those of the project. A symbolic link is
    written as a regular file with the content that it leads to in the same commit. The files that
    requirements files include are written, too, whatever their names are.

    Args:
        reference: A commit, a branch or a tag.
        directory: The project's directory, inside a repository.
        extra_files: Further files to write, relative to that directory.
        warn: Called with a message about files that are skipped.

    Yields:
        The project's directory in the temporary folder.

    Raises:
        InputError: If there is no repository, or no such commit.
    """
    if (reason := repository_error(directory)) is not None:
        raise InputError(
            f"`--base {reference}` needs the git repository of `{directory}`, but git cannot read it: {reason}",
            hint="name a lock file instead, or run it in a clone that git trusts",
        )
    revision = commit_of(reference, directory)
    if revision is None:
        raise InputError(
            f"the base `{reference}` is neither a file nor a commit of the repository of `{directory}`",
            hint=f"in CI, fetch it first: `git fetch --depth=1 origin {reference}`, then `--base FETCH_HEAD`",
        )
    tree = CommitTree(revision, directory)
    prefix = prefix_of(directory)
    extra_names = {posixpath.normpath(posixpath.join(prefix, path.as_posix())) for path in extra_files}
    identifiers: dict[str, str] = {}
    broken_links: list[str] = []
    for name in sorted({*tree.files, *tree.links}):
        is_named = name in extra_names or any(PurePosixPath(name).match(pattern) for pattern in _NAMES)
        is_lock = any(lock_format.reads(Path(name)) for lock_format in lock_formats())
        if is_named or is_lock or _may_differ_in_settings(tree, name, prefix, directory):
            identifier = tree.file_at(name)
            if identifier is None:
                broken_links.append(name)
            else:
                identifiers[name] = identifier
    if broken_links:
        warn(
            f"the base `{reference}` has {len(broken_links)} symbolic links that lead to no file of the repository, "
            f"such as `{broken_links[0]}`: they are skipped"
        )
    with tempfile.TemporaryDirectory(prefix="advisor-base-") as folder:
        written: set[str] = set()
        while identifiers:
            written.update(identifiers)
            included: set[str] = set()
            for name, content in zip(identifiers, tree.contents(identifiers.values()), strict=True):
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                if name in extra_names or name.endswith(_REQUIREMENTS):
                    included |= _included_names(name, content)
            extra_names |= included
            pending = {name: tree.file_at(name) for name in sorted(included - written)}
            identifiers = {name: identifier for name, identifier in pending.items() if identifier is not None}
        project = Path(folder) / prefix
        project.mkdir(parents=True, exist_ok=True)
        yield project


def _may_differ_in_settings(tree: CommitTree, name: str, prefix: str, directory: Path) -> bool:
    """Whether a file is one that is searched for settings, and the project has another one or none."""
    below = name.removeprefix(f"{prefix}/") if prefix else name
    is_below = not prefix or below != name
    return is_below and is_project_file(below, FILE_PATTERNS) and tree.differs(name, directory / below)


def _included_names(name: str, content: bytes) -> set[str]:
    """Return the paths of the files that a requirements file includes, from the top of the repository."""
    try:
        included = included_files(content)
    except ValueError:
        return set()  # Not a requirements file: it is in no encoding that pip reads.
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), file)) for file in included}


def read_file_at(reference: str, directory: Path, path: Path) -> bytes | None:
    """Return the content of a file below a project's directory in a commit; none if the commit has no such file."""
    revision = commit_of(reference, directory)
    if revision is None:
        return None
    tree = CommitTree(revision, directory)
    identifier = tree.file_at(str(PurePosixPath(prefix_of(directory)) / path.as_posix()))
    return None if identifier is None else next(tree.contents([identifier]))


def has_commit(directory: Path) -> bool:
    """Whether the repository of a directory has a commit; true if git cannot read it, see :func:`export_commit`."""
    return repository_error(directory) is not None or commit_of("HEAD", directory) is not None
