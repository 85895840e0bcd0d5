"""Copies of a project: the files that git tracks or does not ignore, without virtual environments and caches.

An `InputError` is raised for a directory that cannot be read, and a file that cannot be copied.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from knowledge.domain.errors import InputError, UnavailableError

_CACHES = frozenset(
    (
        *(".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", "node_modules"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".cache"),
    )
)
"""Directories that are left out if git does not list the files."""
_PRIVATE = frozenset({"config", "config.worktree", "hooks", "logs", "FETCH_HEAD", "modules", "worktrees", "lfs"})
"""Parts of a repository that may contain credentials or commands."""


def list_files(directory: Path) -> tuple[str, ...]:
    """Return the files of a project: those that git tracks, and untracked ones that it does not ignore.

    Without git or a repository, these are all files except virtual environments and caches.

    Returns:
        Paths relative to the directory, sorted; links to files are files.
    """
    try:
        names: set[str] = set()
        for name in _listed_by_git(directory) or _walk(directory):
            path = directory / name
            if path.is_dir() and not path.is_symlink():
                # A submodule.
                names.update(f"{name.rstrip('/')}/{below}" for below in _walk(path))
            elif path.is_symlink() or path.is_file():
                # A tracked file may be deleted.
                names.add(name)
    except OSError as error:
        raise InputError(f"`{error.filename or directory}` cannot be read: {error.strerror}") from None
    return tuple(sorted(names))


def copy_files(directory: Path, names: Iterable[str], target: Path) -> int:
    """Copy files of a project to a new directory, and return their size in bytes.

    A symbolic link to something outside the project stays a link to it.
    """
    total = 0
    try:
        target.mkdir(parents=True)
        for name in names:
            source, copy = directory / name, target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copy.symlink_to(_link_target(source, directory))
            else:
                shutil.copy2(source, copy)
                total += copy.stat().st_size
    except OSError as error:
        raise InputError(
            f"the project cannot be copied: `{error.filename or target}`: {error.strerror}",
            hint="set TMPDIR to a directory with more space, or let git ignore large files",
        ) from None
    return total


def pack_copy(copy: Path, archive: Path) -> None:
    """Write a copy of a project to a ZIP archive, in which links stay links, for :func:`unpack_copy`."""
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
            for path in sorted(copy.rglob("*")):
                name = path.relative_to(copy).as_posix()
                if path.is_symlink():
                    link = zipfile.ZipInfo(name)
                    link.external_attr = (stat.S_IFLNK | 0o777) << 16
                    packed.writestr(link, os.fsencode(os.readlink(path)))
                elif path.is_file():
                    packed.write(path, name)
    except OSError as error:
        raise InputError(f"the project cannot be packed: `{error.filename or archive}`: {error.strerror}") from None
    except UnicodeEncodeError:
        raise InputError(f"the project cannot be packed: the name of `{name!a}` is not valid UTF-8") from None


def unpack_copy(archive: Path, target: Path) -> None:
    """Unpack the copy of a project into a directory; no file is written outside it.

    Raises:
        InputError: If the archive is damaged.
        UnavailableError: If it cannot be read, or the files cannot be written.
    """
    links = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                # Paths that lead outside the directory are changed by `extract`.
                path, mode = Path(packed.extract(member, target)), member.external_attr >> 16
                if stat.S_ISLNK(mode):
                    links.append(path)
                else:
                    path.chmod(stat.S_IMODE(mode) & 0o777)
        # After all files, so that none is written through a link.
        for path in links:
            link_target = os.fsdecode(path.read_bytes())
            path.unlink()
            path.symlink_to(link_target)
    except OSError as error:
        raise UnavailableError(
            f"the project cannot be unpacked: `{error.filename or archive}`: {error.strerror}",
            hint="free disk space on this machine, or name another folder for environments",
        ) from None
    except (zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise InputError(f"`{archive}` is not the archive of a project: {error}") from None


@contextmanager
def copied_project(directory: Path) -> Iterator[Path]:
    """Yield a copy of a directory that a build may change, with its repository, which may contain the version."""
    with tempfile.TemporaryDirectory(prefix="seshat-source-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder, "source")
        copy_files(directory, list_files(directory), copy)
        if (directory / ".git").is_dir():
            _copy_history(directory / ".git", copy / ".git")
        yield copy


def _copy_history(source: Path, copy: Path) -> None:
    """Copy a repository without what may contain credentials or commands: its configuration, hooks and logs."""
    shutil.copytree(
        source, copy, symlinks=True, ignore=lambda folder, _: _PRIVATE if Path(folder) == source else frozenset()
    )
    settings = "[core]\nrepositoryformatversion = 0\nbare = false\n"
    if "sha256" in (source / "config").read_text(encoding="utf-8", errors="replace").split():
        settings = "[core]\nrepositoryformatversion = 1\nbare = false\n[extensions]\nobjectformat = sha256\n"
    (copy / "config").write_text(settings, encoding="utf-8")


def _listed_by_git(directory: Path) -> list[str]:
    """Return the paths that git tracks or does not ignore; nothing without git or a repository."""
    # The repository's own configuration may not run a program.
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    command = ["git", *safe, "-C", str(directory), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return []
    return [] if result.returncode else [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]


def _walk(top: Path, below: str = "") -> Iterator[str]:
    """Yield the files in a directory and its directories, without virtual environments and caches."""
    with os.scandir(top / below) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield below + entry.name
            elif entry.name not in _CACHES and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _walk(top, f"{below}{entry.name}/")


def _link_target(link: Path, directory: Path) -> Path:
    """Return what the copy of a link points to: the copy of a file in the project, or a file outside it."""
    target = Path(os.readlink(link))
    try:
        is_inside = not target.is_absolute() and link.resolve().is_relative_to(directory.resolve())
        return target if is_inside else link.resolve()
    except RuntimeError:
        # Links that lead to each other, before Python 3.13.
        return target
