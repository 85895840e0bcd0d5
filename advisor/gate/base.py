"""The project as a commit has it: what a change is compared with."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from knowledge.domain.errors import InputError

_NAMES = ("*.toml", "*.lock", "Pipfile", "*.txt", "*.in", "*.cdx.json", "*.yaml", "*.yml")


@contextmanager
def exported(reference: str, directory: Path, *, also: Collection[Path] = ()) -> Iterator[Path]:
    """Lay out what a commit says about a project's packages in a folder of its own; nothing of it is executed.

    Args:
        reference: A commit, a branch or a tag.
        directory: The project's directory, inside a repository.
        also: Further files that are wanted.

    Yields:
        The project's directory in that folder.

    Raises:
        InputError: If there is no repository, or no such commit.
    """
    top = _run(directory, "rev-parse", "--show-toplevel")
    if top.returncode:
        reason = (top.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"])[0]
        raise InputError(
            f"`--base {reference}` needs the repository of `{directory}`, and git does not read it: {reason}",
            hint="name a lock file instead, or run it in a clone that git trusts",
        )
    commit = None
    if not reference.startswith("-"):
        commit = _git(directory, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    if commit is None:
        raise InputError(
            f"the base `{reference}` is neither a file nor a commit of the repository of `{directory}`",
            hint=f"in CI, fetch it first: `git fetch --depth=1 origin {reference}`, then `--base FETCH_HEAD`",
        )
    revision = commit.decode().split()[0]
    prefix = (_git(directory, "rev-parse", "--show-prefix") or b"").decode().strip()
    listed = (_git(directory, "ls-tree", "-r", "-z", "--name-only", "--full-tree", revision) or b"").decode()
    further = {PurePosixPath(prefix) / path.as_posix() for path in also}
    names = [
        name
        for name in listed.split("\0")
        if name and (any(PurePosixPath(name).match(n) for n in _NAMES) or PurePosixPath(name) in further)
    ]
    with tempfile.TemporaryDirectory(prefix="advisor-base-") as folder:
        if names:
            _unpack(directory, revision, names, Path(folder))
        place = Path(folder) / prefix
        place.mkdir(parents=True, exist_ok=True)
        yield place


def content_at(reference: str, directory: Path, path: Path) -> bytes | None:
    """Return what a commit has at a path below a project's directory; none where it has nothing there."""
    return _git(directory, "show", f"{reference}:./{path.as_posix()}")


def has_commit(directory: Path) -> bool:
    """Whether the repository of a directory has a commit; whether it is one at all is told by :func:`exported`."""
    inside = _git(directory, "rev-parse", "--git-dir") is not None
    return not inside or _git(directory, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") is not None


def _unpack(directory: Path, revision: str, names: Collection[str], folder: Path) -> None:
    root = (_git(directory, "rev-parse", "--show-toplevel") or b"").decode().strip()
    spelled = [f":(top,literal){name}" for name in names]
    archive = _git(Path(root), "archive", "--format=tar", revision, "--", *spelled)
    if archive is None:
        raise InputError(f"the files of the base `{revision}` cannot be read from the repository")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")


def _git(directory: Path, *arguments: str) -> bytes | None:
    """Return what git answers, or none where it refuses."""
    done = _run(directory, *arguments)
    return done.stdout if done.returncode == 0 else None


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, check=False)
    except OSError:
        raise InputError("`--base` needs `git`, which is not to be had", hint="name a lock file instead") from None
