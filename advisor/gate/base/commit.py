"""The files of a project in a commit, which a change is compared with."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from advisor.gate.base.git_objects import CommitTree, commit_of, prefix_of, repository_error
from advisor.locks.registry import lock_formats
from advisor.project.code.files import FILE_PATTERNS, is_project_file
from advisor.project.formats.requirements import included_files
from knowledge.domain.errors import InputError

_NAMES = ("*.toml", "*.lock", "Pipfile", "*.txt", "*.in", "*.yaml", "*.yml", "setup.py", "setup.cfg", "*.ipynb")
_REQUIREMENTS = (".txt", ".in")


@contextmanager
def export_commit(
    reference: str, directory: Path, *, extra_files: Collection[Path] = (), warn: Callable[[str], None]
) -> Iterator[Path]:
    """Write the files of a commit that concern a project's packages to a temporary folder; nothing is executed.

    Files that may contain run-time settings are written if they differ from the project's. A symbolic link is
    written as a regular file with the content that it leads to in the same commit. The files that requirements files
    include are written, too, whatever their names are, and so are `extra_files`, relative to the project's directory.
    `warn` is called with a message about files that are skipped.

    Yields:
        The project's directory in the temporary folder.

    Raises:
        InputError: If there is no repository, or no such commit.
    """
    tree = _tree(reference, directory)
    prefix = prefix_of(directory)
    extra_names = {posixpath.normpath(posixpath.join(prefix, path.as_posix())) for path in extra_files}
    names = [n for n in sorted({*tree.files, *tree.links}) if n in extra_names or _is_read(tree, n, prefix, directory)]
    if broken_links := [name for name in names if tree.file_at(name) is None]:
        warn(
            f"the base `{reference}` has {len(broken_links)} symbolic links that lead to no file of the repository, "
            f"such as `{broken_links[0]}`: they are skipped"
        )
    with tempfile.TemporaryDirectory(prefix="advisor-base-") as folder:
        _write(tree, names, extra_names, Path(folder))
        project = Path(folder) / prefix
        project.mkdir(parents=True, exist_ok=True)
        yield project


def _tree(reference: str, directory: Path) -> CommitTree:
    """Return the files of a commit; raise an error if there is no repository, or no such commit."""
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
    return CommitTree(revision, directory)


def _write(tree: CommitTree, names: Iterable[str], requirements: Collection[str], folder: Path) -> None:
    """Write files of a commit, and what requirements files include; those may be named without their usual suffix."""
    written: set[str] = set()
    requirement_names = set(requirements)
    pending = set(names)
    while identifiers := {n: identifier for n in sorted(pending) if (identifier := tree.file_at(n)) is not None}:
        written.update(pending)
        included: set[str] = set()
        for name, content in zip(identifiers, tree.contents(identifiers.values()), strict=True):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if name in requirement_names or name.endswith(_REQUIREMENTS):
                included |= _included_names(name, content)
        requirement_names |= included
        pending = included - written


def _is_read(tree: CommitTree, name: str, prefix: str, directory: Path) -> bool:
    """Whether a file concerns the packages of the project in a directory, or may contain other settings than there."""
    if any(PurePosixPath(name).match(pattern) for pattern in _NAMES):
        return True
    if any(lock_format.reads(Path(name)) for lock_format in lock_formats()):
        return True
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
    """Return the content of a file below a project's directory in a commit; `None` if the commit has no such file."""
    revision = commit_of(reference, directory)
    if revision is None:
        return None
    tree = CommitTree(revision, directory)
    identifier = tree.file_at(str(PurePosixPath(prefix_of(directory)) / path.as_posix()))
    return None if identifier is None else next(tree.contents([identifier]))


def has_commit(directory: Path) -> bool:
    """Whether the repository of a directory has a commit; true if git cannot read it, see :func:`export_commit`."""
    return repository_error(directory) is not None or commit_of("HEAD", directory) is not None
