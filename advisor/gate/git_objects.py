"""Reads commits, their trees and their files from git's objects, as bytes: no checkout, no filter, no attribute."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from knowledge.domain.errors import InputError

_LINK = "120000"
_MOST_LINKS = 40
"""Links that are followed for one path, as Linux does (man 7 path_resolution)."""


class CommitTree:
    """The files of one commit.

    Attributes:
        files: Identifier of each file's content, by its path from the repository's top.
    """

    def __init__(self, revision: str, directory: Path) -> None:
        """Read the tree.

        Args:
            revision: Identifier of the commit.
            directory: A directory of the repository.

        Raises:
            InputError: If it cannot be read.
        """
        self._directory = directory
        self.files: dict[str, str] = {}
        self._links: dict[str, str] = {}
        listed = _run(directory, "ls-tree", "-r", "-z", "--full-tree", revision)
        if listed.returncode:
            raise InputError(f"the files of the commit `{revision}` cannot be read from the repository")
        for entry in listed.stdout.split(b"\0"):
            about, _, path = entry.partition(b"\t")
            mode, kind, identifier = (about.decode("ascii").split() + ["", "", ""])[:3]
            name = os.fsdecode(path)
            # A tree that was made by hand may hold names that lead out of it.
            if kind == "blob" and _resolved(name, {}) == name:
                (self._links if mode == _LINK else self.files)[name] = identifier

    @cached_property
    def links(self) -> Mapping[str, str]:
        """Target of each symbolic link, by its path."""
        return {
            name: os.fsdecode(target)
            for name, target in zip(self._links, self.contents(self._links.values()), strict=True)
        }

    def file_at(self, path: str) -> str | None:
        """Return the identifier of the file at a path, after all links; none where the commit has no file there."""
        found = _resolved(path, self.links)
        return None if found is None else self.files.get(found)

    def contents(self, identifiers: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of each identifier.

        Raises:
            InputError: If the repository does not hold one.
        """
        with tempfile.TemporaryFile() as wanted:
            wanted.write("".join(f"{identifier}\n" for identifier in identifiers).encode("ascii"))
            count = wanted.tell()
            wanted.seek(0)
            if not count:
                return
            command = _git(self._directory, "cat-file", "--batch")
            with subprocess.Popen(command, stdin=wanted, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:
                assert git.stdout is not None
                try:
                    while header := git.stdout.readline():
                        identifier, _, rest = header.decode("ascii").strip().partition(" ")
                        if not rest.startswith("blob "):
                            raise InputError(f"the repository does not hold the object `{identifier}`: {rest}")
                        content = git.stdout.read(int(rest.split()[1]) + 1)
                        yield content[:-1]
                finally:
                    git.kill()


def commit_of(reference: str, directory: Path) -> str | None:
    """Return the identifier of the commit that a name means; none where it means none, or there is no repository."""
    if reference.startswith("-"):
        return None
    try:
        found = _run(directory, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    except InputError:
        return None
    return found.stdout.decode().strip() if found.returncode == 0 else None


def prefix_of(directory: Path) -> str:
    """Return the path of a directory from its repository's top; empty where it is the top."""
    return os.fsdecode(_run(directory, "rev-parse", "--show-prefix").stdout).removesuffix("\n").removesuffix("/")


def repository_error(directory: Path) -> str | None:
    """Return why git does not read the repository of a directory; none where it does.

    Raises:
        InputError: If git is not installed.
    """
    top = _run(directory, "rev-parse", "--show-toplevel")
    if not top.returncode:
        return None
    return (top.stderr.decode(errors="replace").strip().splitlines() or ["no reason is given"])[0]


def tracked_files(directory: Path, path: Path) -> tuple[str, ...]:
    """Return the files at or below a path that the repository of a directory tracks, also where a link leads to."""
    found: dict[str, None] = {}
    for place in (os.path.abspath(path), os.path.realpath(path)):
        listed = _run(directory, "--literal-pathspecs", "ls-files", "-z", "--", place)
        found |= dict.fromkeys(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
    return tuple(found)


def _resolved(path: str, links: Mapping[str, str]) -> str | None:
    """Return a path without links, from the top of a tree; none where it leads out of it or never ends."""
    left = path.split("/")[::-1]
    done: list[str] = []
    followed = 0
    if path.startswith("/"):
        return None
    while left:
        part = left.pop()
        if part == "..":
            if not done:
                return None
            done.pop()
        elif part not in ("", "."):
            done.append(part)
            target = links.get("/".join(done))
            if target is not None:
                followed += 1
                if target.startswith("/") or followed > _MOST_LINKS:
                    return None
                done.pop()
                left += target.split("/")[::-1]
    return "/".join(done)


def _git(directory: Path, *arguments: str) -> list[str]:
    """Return a command of git in a directory.

    A commit may hold a folder that git takes for a repository of its own, with objects and programs that it names.
    """
    return ["git", "-c", "safe.bareRepository=explicit", "-C", str(directory), *arguments]


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(_git(directory, *arguments), capture_output=True, check=False)
    except FileNotFoundError:
        raise InputError("`--base` needs `git`, and `git` is not installed", hint="name a lock file instead") from None
    except (OSError, ValueError) as error:
        raise InputError(f"`git` cannot be run: {error}", hint="name a lock file instead") from None
