"""The project as a commit has it: what a change is compared with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from advisor.gate.git_objects import CommitTree, commit_of, prefix_of, repository_error
from knowledge.domain.errors import InputError

_NAMES = ("*.toml", "*.lock", "Pipfile", "*.txt", "*.in", "*.cdx.json", "*bom.json", "*.yaml", "*.yml")


@contextmanager
def exported(
    reference: str, directory: Path, *, also: Collection[Path] = (), warn: Callable[[str], None]
) -> Iterator[Path]:
    """Lay out what a commit says about a project's packages in a folder of its own; nothing of it is executed.

    The files are regular ones: a symbolic link becomes the file that it leads to in the same commit.

    Args:
        reference: A commit, a branch or a tag.
        directory: The project's directory, inside a repository.
        also: Further files that are wanted, relative to that directory.
        warn: Gets what was left out.

    Yields:
        The project's directory in that folder.

    Raises:
        InputError: If there is no repository, or no such commit.
    """
    if (reason := repository_error(directory)) is not None:
        raise InputError(
            f"`--base {reference}` needs the repository of `{directory}`, and git does not read it: {reason}",
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
    further = {str(PurePosixPath(prefix) / path.as_posix()) for path in also}
    wanted: dict[str, str] = {}
    astray: list[str] = []
    for name in sorted({*tree.files, *tree.links}):
        if name in further or any(PurePosixPath(name).match(pattern) for pattern in _NAMES):
            identifier = tree.file_at(name)
            if identifier is None:
                astray.append(name)
            else:
                wanted[name] = identifier
    if astray:
        warn(
            f"the base `{reference}` has {len(astray)} symbolic links that lead to no file of the repository, such as "
            f"`{astray[0]}`: they are not read"
        )
    with tempfile.TemporaryDirectory(prefix="advisor-base-") as folder:
        for name, content in zip(wanted, tree.contents(wanted.values()), strict=True):
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        place = Path(folder) / prefix
        place.mkdir(parents=True, exist_ok=True)
        yield place


def content_at(reference: str, directory: Path, path: Path) -> bytes | None:
    """Return what a commit has at a path below a project's directory; none where it has no file there."""
    revision = commit_of(reference, directory)
    if revision is None:
        return None
    tree = CommitTree(revision, directory)
    identifier = tree.file_at(str(PurePosixPath(prefix_of(directory)) / path.as_posix()))
    return None if identifier is None else next(tree.contents([identifier]))


def has_commit(directory: Path) -> bool:
    """Whether the repository of a directory has a commit; whether it is one at all is told by :func:`exported`."""
    return repository_error(directory) is not None or commit_of("HEAD", directory) is not None
