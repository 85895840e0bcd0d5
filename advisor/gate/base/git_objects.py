"""Reading of commits, trees and files from git's objects, as bytes: without checkout, filters or attributes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from knowledge.domain.errors import InputError

_LINK = "120000"
_SHA1_LENGTH = 40
"""Number of digits of an identifier in a repository whose objects are identified by SHA-1."""
_SUBMODULE = b"160000 "
_MAX_LINKS = 40
"""Maximum number of links that are followed for one path, as on Linux (man 7 path_resolution)."""


class CommitTree:
    """The files of one commit: identifiers of their contents, by path from the repository's top."""

    def __init__(self, revision: str, directory: Path) -> None:
        """Read the tree of a commit, by its identifier.

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
            # A handcrafted tree may contain names that lead out of it.
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
        """Return the identifier of the file at a path, with links followed; `None` if the commit has no such file."""
        resolved = _resolved(path, self.links)
        return None if resolved is None else self.files.get(resolved)

    def differs(self, name: str, path: Path) -> bool:
        """Whether a file of the commit has another content than a file on disk, also if that cannot be read."""
        try:
            content = path.read_bytes()
        except OSError:
            return True
        identifier = self.files.get(name, "")
        kind = "sha1" if len(identifier) == _SHA1_LENGTH else "sha256"
        blob = hashlib.new(kind, b"blob %d\0" % len(content) + content, usedforsecurity=False)
        return blob.hexdigest() != identifier

    def contents(self, identifiers: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of each identifier.

        Raises:
            InputError: If the repository does not have one.
        """
        with tempfile.TemporaryFile() as requests:
            requests.write("".join(f"{identifier}\n" for identifier in identifiers).encode("ascii"))
            count = requests.tell()
            requests.seek(0)
            if not count:
                return
            command = _git(self._directory, "cat-file", "--batch")
            with subprocess.Popen(command, stdin=requests, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:
                assert git.stdout is not None
                try:
                    while header := git.stdout.readline():
                        identifier, _, rest = header.decode("ascii").strip().partition(" ")
                        if not rest.startswith("blob "):
                            raise InputError(f"the repository does not have the object `{identifier}`: {rest}")
                        content = git.stdout.read(int(rest.split()[1]) + 1)
                        yield content[:-1]
                finally:
                    git.kill()


def commit_of(reference: str, directory: Path) -> str | None:
    """Return the identifier of a commit by its name; `None` if there is no such commit, or no repository."""
    if reference.startswith("-"):
        return None
    try:
        result = _run(directory, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    except InputError:
        return None
    return result.stdout.decode().strip() if result.returncode == 0 else None


def prefix_of(directory: Path) -> str:
    """Return the path of a directory relative to the top of its repository; empty if it is the top."""
    return os.fsdecode(_run(directory, "rev-parse", "--show-prefix").stdout).removesuffix("\n").removesuffix("/")


def repository_error(directory: Path) -> str | None:
    """Return why git cannot read the repository of a directory; `None` if it can.

    Raises:
        InputError: If git is not installed.
    """
    top = _run(directory, "rev-parse", "--show-toplevel")
    if not top.returncode:
        return None
    return (top.stderr.decode(errors="replace").strip().splitlines() or ["git gives no reason"])[0]


def tracked_files(directory: Path, path: Path) -> tuple[str, ...]:
    """Return the tracked files at or below a path, also if the path is a link to them."""
    tracked: dict[str, None] = {}
    for place in (os.path.abspath(path), os.path.realpath(path)):
        listed = _run(directory, "--literal-pathspecs", "ls-files", "-z", "--", place)
        tracked |= dict.fromkeys(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
    return tuple(tracked)


def submodule_of(directory: Path, path: Path) -> str | None:
    """Return the submodule of a directory's repository that a path is in; `None` if it is in none."""
    top = os.fsdecode(_run(directory, "rev-parse", "--show-toplevel").stdout.removesuffix(b"\n"))
    if not top:
        return None
    listed = _run(Path(top), "ls-files", "--stage", "-z").stdout.split(b"\0")
    names = [os.fsdecode(entry.partition(b"\t")[2]) for entry in listed if entry.startswith(_SUBMODULE)]
    submodules = {os.path.realpath(os.path.join(top, name)): name for name in names}
    places = [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
    ancestors = (os.path.realpath(ancestor) for place in places for ancestor in (place, *place.parents))
    return next((submodules[ancestor] for ancestor in ancestors if ancestor in submodules), None)


def _resolved(path: str, links: Mapping[str, str]) -> str | None:
    """Return a path with its links resolved, from the top of a tree; `None` if it leads out of it or is circular."""
    pending = path.split("/")[::-1]
    resolved_parts: list[str] = []
    followed = 0
    if path.startswith("/"):
        return None
    while pending:
        part = pending.pop()
        if part == "..":
            if not resolved_parts:
                return None
            resolved_parts.pop()
        elif part not in ("", "."):
            resolved_parts.append(part)
            target = links.get("/".join(resolved_parts))
            if target is not None:
                followed += 1
                if target.startswith("/") or followed > _MAX_LINKS:
                    return None
                resolved_parts.pop()
                pending += target.split("/")[::-1]
    return "/".join(resolved_parts)


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
