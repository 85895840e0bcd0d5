"""What a format of locks does: it names its files, reads them, and writes a stack into them.

A format is one module of :mod:`advisor.locks.formats` with a value ``FORMAT``; nothing else lists it. The gate checks
what :meth:`LockFormat.read` returns: the files and hashes of packages, sources that are no index, obstacles of the lock
as a whole (``ADV012``), packages without a version (``ADV023``), and hosts without a certificate (``ADV030``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Protocol

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.target import Target
from advisor.index.configuration import IndexConfiguration
from advisor.index.pages.page import DistributionFile
from advisor.index.variants.metadata import VariantMetadata
from advisor.locks.certificate import Certificate
from advisor.locks.lock import Lock
from advisor.locks.setting_value import AppliedSetting
from advisor.project.formats.pyproject import ProjectIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageToLock:
    """A package of a stack, with what a lock records about it.

    Attributes:
        name: Normalised name.
        version: Version.
        file: The file to install, with size and hash; `None` for a repository or a directory.
        direct: Repository, archive or directory that it comes from, without a password; `None` for an index.
        variants: The variants of its version, if its file is a variant wheel.
    """

    name: NormalizedName
    version: Version
    file: DistributionFile | None
    direct: DirectReference | None = None
    variants: VariantMetadata | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the file; empty if it has none."""
        return (self.file.sha256 if self.file else None) or ""

    @property
    def is_sdist(self) -> bool:
        """Whether the file must be built before it is installed."""
        return self.file is not None and not self.file.filename.endswith(".whl")


class StackDetails(Protocol):
    """Details of a stack that only some formats record; a method may read the index."""

    def requirers(self, folder: Path) -> Mapping[NormalizedName, Sequence[str]]:
        """Return, for each package, the files and packages that require it, as lines of a lock in a folder."""

    def no_deps_reasons(self) -> Sequence[str]:
        """Return why pip needs `--no-deps` for the stack, one line each; empty if it does not need it."""

    def dependencies(self) -> Mapping[NormalizedName, Iterable[NormalizedName]]:
        """Return the packages that each package requires; the project itself has an empty name."""

    def licenses(self) -> Mapping[NormalizedName, Sequence[str]]:
        """Return what each package states as its licences."""

    def project(self, folder: Path) -> ProjectIdentity:
        """Return the identity of the project that a lock in a folder belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackToLock:
    """A stack for one target, with everything that a lock may record.

    Attributes:
        target: The target.
        packages: The packages, sorted by name.
        configuration: The indexes.
        details: Details that only some formats record.
        settings: Run-time settings; `None` if they are not recommended at all.
        certificate: What an experiment says about the stack; `None` if none was made.
    """

    target: Target
    packages: Sequence[PackageToLock]
    configuration: IndexConfiguration
    details: StackDetails
    settings: Sequence[AppliedSetting] | None = None
    certificate: Certificate | None = None


class LockFormat(ABC):
    """A format of locks.

    Attributes:
        name: Name of the file in a project's directory.
        order: Place among the formats; the first lock in the directory of a project is its current one.
        patterns: Patterns of the names of files that are read; by default only the name.
        written_names: Names of files that are written, for messages; empty if this program does not write the format.
        target_name: Name of the lock of one of several targets, with ``{}`` for the name of the target; empty if the
            name of a lock in this format says nothing about its target.
        suffix: End of the names of locks that the name of their settings file leaves out.
        tool: The tool that alone writes the format; empty if there is none.
        holds_settings: Whether a lock contains run-time settings; else they are in a file next to it.
        depends_on_files: Whether the text of a lock depends on other files than those with the project's requirements.
    """

    name: str
    order: int
    patterns: tuple[str, ...] = ()
    written_names: tuple[str, ...] = ()
    target_name: str = ""
    suffix: str = ""
    tool: str = ""
    holds_settings = False
    depends_on_files = True

    def reads(self, path: Path) -> bool:
        """Whether a file has a name of the format."""
        return any(fnmatchcase(path.name, pattern) for pattern in self.patterns or (self.name,))

    def writes(self, path: Path) -> bool:
        """Whether a lock of this name is written."""
        return bool(self.written_names) and self.reads(path)

    def current(self, directory: Path) -> Path | None:
        """Return the project's lock of the format; `None` if there is none.

        Raises:
            InputError: If a file that may be a lock cannot be read.
        """
        path = directory / self.name
        return path if path.is_file() else None

    def all(self, directory: Path) -> Iterable[Path]:
        """Return all files in a project's directory that may be locks of the format."""
        path = self.current(directory)
        return () if path is None else (path,)

    @abstractmethod
    def read(self, path: Path, target: Target) -> Lock:
        """Return the packages of a lock for a target: from a lock for several targets, those that apply to it.

        Raises:
            InputError: If the file does not exist.
            UnreadableFileError: If it cannot be read or is malformed.
        """

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return the text of a lock.

        Args:
            path: The file that will be written; paths in the text are relative to its folder.
            stacks: The stack for each target; only one, unless the format has :meth:`target_markers`.

        Raises:
            InputError: If a file that the text depends on cannot be read.
        """
        raise NotImplementedError

    def target_markers(self, targets: Sequence[Target]) -> Sequence[str] | None:
        """Return the markers by which one lock distinguishes targets; `None` if a lock is for one target only.

        Raises:
            InputError: If two targets have the same environment.
        """
        return None

    def python(self, text: str) -> str | None:
        """Return `major.minor` of the interpreter that a lock of this program is for; `None` if it does not state one.

        Raises:
            ValueError: If the text is malformed.
        """
        return None

    def update_command(self, pins: Sequence[str]) -> str:
        """Return the command of the tool that sets packages to pins such as ``torch==2.9.1``; empty if it has none."""
        return ""

    def install_commands(self, path: str) -> Sequence[str]:
        """Return the commands that install a lock without looking at dependencies; empty if none has to do so."""
        return ()


def relative_path(reference: DirectReference, folder: Path) -> str:
    """Return the path of a local reference relative to the folder of a lock, with slashes; ``.`` for the folder."""
    return PurePath(os.path.relpath(reference.url, folder.absolute())).as_posix()


def relative_address(reference: DirectReference, folder: Path) -> str:
    """Return a reference for a requirements file in a folder: a relative path, or an address with the commit."""
    if not reference.is_local:
        return reference.address
    path = relative_path(reference, folder)
    path = path if path.startswith("..") else f"./{path}"
    return f"{path}#subdirectory={reference.subdirectory}" if reference.subdirectory else path
