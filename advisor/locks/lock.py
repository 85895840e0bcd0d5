"""The current stack of a project, as its lock records it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.project.text_file import UnreadableFileError, check_size
from knowledge.domain.errors import InputError

_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """A file in a lock.

    Attributes:
        name: File name.
        sha256: SHA-256 in lower case; empty if not recorded.
        url: Address, as written; empty if not recorded.
        path: Path on this machine, as written; empty if not recorded.
        size: Size in bytes; `None` if not recorded.
        other_hashes: Hashes by other algorithms, such as ``sha512:...``.
    """

    name: str
    sha256: str = ""
    url: str = ""
    path: str = ""
    size: int | None = None
    other_hashes: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """All recorded values, on one line."""
        return " ".join((self.name, self.url, self.path, self.sha256, str(self.size or ""), *self.other_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVersion:
    """A version of a package in a lock.

    Attributes:
        version: The version.
        line: Line in the lock, from 1; 0 for an environment.
        path: File with the line, if the lock includes other files; else empty.
        index: Address of the index; `None` if not recorded.
        files: Files in the lock.
        hashes: All SHA-256 hashes, in lower case.
        other_hashes: Hashes by other algorithms of files without a name, such as ``sha512:...``.
        direct_reference: Repository, URL or directory that it comes from; empty if it comes from an index.
    """

    version: Version
    line: int = 0
    path: str = ""
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: frozenset[str] = frozenset()
    other_hashes: frozenset[str] = frozenset()
    direct_reference: str = ""

    @property
    def identities(self) -> tuple[str, ...]:
        """All recorded values of its files, and the hashes of files without a name."""
        return (*(file.identity for file in self.files), *sorted(self.hashes), *sorted(self.other_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSource:
    """A package of a lock that comes from a direct reference instead of an index.

    Attributes:
        name: Name of the package.
        address: Repository with revision, URL or directory, as written.
        content: All that the lock records of the direct reference: hashes, size, subdirectory.
        directory: Whether the direct reference is a directory.
        line: Line in the lock, from 1; 0 if not known yet.
        url: The address without commit and subdirectory.
        commit: Commit of a repository; empty if not recorded.
        subdirectory: Directory of the package in it; empty for the top.
        hashes: SHA-256 of the files that may be installed.
    """

    name: NormalizedName
    address: str
    content: str
    directory: bool
    url: str
    line: int = 0
    commit: str = ""
    subdirectory: str = ""
    hashes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The current stack of a project.

    Attributes:
        path: The lock; `None` for an environment.
        packages: Packages that the target would install, by normalised name.
        entries: All versions in the lock, for any platform, extra or group; empty for an environment.
        sources: Packages from direct references, for any platform, extra or group.
        open_entries: Packages without a version for some platforms, each with its line.
        indexes: Addresses of indexes and find-links that apply to all packages, each with its line.
        trusted_hosts: Hosts whose certificates are not verified, each with its line.
        tool: The tool that alone writes locks of this format; empty if there is none.
        obstacles: Why the target cannot install the lock as a whole, each as what follows "the lock", with its line.
        is_project: Whether the requirements of the project come from the lock itself: a pinned requirements file.
    """

    path: Path | None
    packages: Mapping[NormalizedName, LockedVersion]
    entries: tuple[tuple[NormalizedName, LockedVersion], ...] = ()
    sources: tuple[LockedSource, ...] = ()
    open_entries: tuple[tuple[NormalizedName, int], ...] = ()
    indexes: tuple[tuple[str, int], ...] = ()
    trusted_hosts: tuple[tuple[str, int], ...] = ()
    tool: str = ""
    obstacles: tuple[tuple[str, int], ...] = ()
    is_project: bool = False

    @property
    def records_hashes(self) -> bool:
        """Whether it contains a hash of a file."""
        return any(locked.hashes or locked.other_hashes for _, locked in self.entries)

    @property
    def is_edited(self) -> bool:
        """Whether an update changes only versions in the file: a pinned requirements file without hashes."""
        return self.is_project and not self.records_hashes

    @property
    def indexed(self) -> tuple[tuple[NormalizedName, LockedVersion], ...]:
        """Its entries that come from an index."""
        return tuple((name, locked) for name, locked in self.entries if not locked.direct_reference)

    @cached_property
    def versions(self) -> dict[str, Version]:
        """Version by normalised package name."""
        return {name: package.version for name, package in self.packages.items()}


def read_text(
    path: Path,
    *,
    decode: Callable[[bytes], str] = bytes.decode,
    package_at: Callable[[str, int], str] = lambda text, line: "",
) -> str:
    """Return the text of a lock without merge conflicts.

    Args:
        path: The lock.
        decode: Converts the bytes to text; UTF-8 by default.
        package_at: Returns the package that a line of the text belongs to, for messages.

    Raises:
        InputError: If the file does not exist.
        UnreadableFileError: If the file cannot be read, or contains conflict markers.
    """
    try:
        check_size(path)
        text = decode(path.read_bytes()).replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise InputError(f"`{path}` cannot be read: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise UnreadableFileError(f"`{path}` cannot be read: {reason}", path=path) from None
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise UnreadableFileError(
            f"`{path}`, line {line}, contains conflict markers of a merge",
            path=path,
            line=line,
            package=package_at(text, line),
            hint="resolve the conflict, then lock again with the tool that wrote it, or with `advisor advise`",
        )
    return text
