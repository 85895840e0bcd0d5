"""Core metadata of packages that come from a repository, an archive or a directory instead of an index."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from advisor.domain.direct_reference import DirectReference
from advisor.domain.target import Target
from advisor.index.cache import SOURCE_FORMAT
from advisor.index.client import IndexClient
from advisor.index.metadata.build import BuildError, build_tree_metadata
from advisor.index.metadata.core import CoreMetadata, header_of, parse_metadata
from advisor.index.metadata.distributions import MetadataError
from advisor.index.pages.page import DistributionFile
from advisor.project.metadata.copy import copied_project
from advisor.project.metadata.source_tree import Locate, read_source_tree
from advisor.resolve.candidates.problem import NoStackError
from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash

_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
"""Files of a directory that determine its metadata, as for uv: it is built again if one of them changes."""
_CONDA_BUILD = re.compile(r"/(feedstock_root|concourse|croot|conda-bld|tmp/build/\d+|tmp/abs_\w+|opt/conda)/")


_Tree = Callable[[bool], AbstractContextManager[Path]]
"""Opens a source tree; the argument says whether with its history."""
_Source = Callable[[], AbstractContextManager[Path]]


class NeedsBuildError(Exception):
    """Raised when the metadata is only known after a build, and builds were not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectDistribution:
    """What a direct reference leads to; the reference has the commit of a repository."""

    reference: DirectReference
    metadata: CoreMetadata

    @property
    def file(self) -> DistributionFile:
        """The archive; for a repository or a directory, a stand-in without hash."""
        return file_of(self.reference)


def file_of(reference: DirectReference) -> DistributionFile:
    """Return the file of a direct reference, which no index lists."""
    url = Path(reference.url).as_uri() if reference.is_local else reference.url
    if reference.kind != "archive":
        url = reference.address
    return DistributionFile(filename=reference.filename, url=url, index="", sha256=reference.sha256 or None)


class DirectReader:
    """Reads the metadata of direct references for one target; `build` allows builds, which run code of packages."""

    def __init__(self, client: IndexClient, target: Target, *, build: bool) -> None:
        self._client = client
        self._target = target
        self._build = build
        # Sources may depend on the target, and a build depends on the interpreter.
        self._environment = content_hash(sorted(target.markers.items()))

    def read(self, reference: DirectReference) -> DirectDistribution:
        """Return the metadata of a direct reference.

        Raises:
            NeedsBuildError: If it is only known after a build, and builds were not allowed.
            InputError: If a directory or a file does not exist, or a version control system is not supported.
            NoStackError: If a wheel is not for the target.
            MetadataError: If the metadata is malformed, or a build fails.
            UnavailableError: If a repository or an archive cannot be read.
        """
        if reference.kind == "vcs":
            return self._of_repository(reference)
        if reference.is_local and not Path(reference.url).exists():
            raise InputError(f"there is no directory or file `{reference.url}`", hint=_hint_about(reference.url))
        if reference.kind == "directory":
            return self._of_directory(reference)
        if reference.filename.endswith(".whl"):
            self._check_tags(reference)
            return DirectDistribution(reference=reference, metadata=self._client.metadata(file_of(reference)))
        return self._of_archive(reference)

    def _of_repository(self, reference: DirectReference) -> DirectDistribution:
        if reference.vcs != "git":
            raise InputError(
                f"`{reference.printable}` is in a repository of `{reference.vcs}`, which is not supported",
                hint="only git is: require an archive or a directory instead",
            )
        commit = self._client.repositories.commit_of(reference.url, reference.revision)
        pinned = replace(reference, commit=commit)

        @contextmanager
        def tree(history: bool) -> Iterator[Path]:
            with tempfile.TemporaryDirectory(prefix="seshat-git-", ignore_cleanup_errors=True) as folder:
                checkout = Path(folder, "source")
                self._client.repositories.check_out(reference.url, commit, checkout, history=history)
                yield checkout

        return self._of_tree(pinned, f"{reference.url} {commit}", tree)

    def _of_archive(self, reference: DirectReference) -> DirectDistribution:
        file = file_of(reference)

        @contextmanager
        def tree(_: bool) -> Iterator[Path]:
            with tempfile.TemporaryDirectory(prefix="seshat-archive-", ignore_cleanup_errors=True) as folder:
                yield self._client.distributions.unpack(file, Path(folder, "source"))

        # An address may have other content tomorrow; the hash says which content this is.
        digest = self._client.pinned(file).sha256
        return self._of_tree(reference, f"{reference.url} {digest}", tree)

    def _of_directory(self, reference: DirectReference) -> DirectDistribution:
        directory = Path(reference.url, reference.subdirectory)
        if not any((directory / name).is_file() for name in _BUILD_FILES):
            hint = "to read a requirements file in it, use `-r`"
            if directory.is_dir() and not any(directory.iterdir()):
                hint = "it is empty: `git submodule update --init` fetches the submodules of a repository"
            raise InputError(
                f"`{directory}` is not a package: it has no `pyproject.toml`, `setup.py` or `setup.cfg`", hint=hint
            )
        header = read_source_tree(directory, self._target, locate=lambda required: required)
        if header is None:
            contents = [(directory / name).read_bytes().hex() for name in _BUILD_FILES if (directory / name).is_file()]
            header = self._built(f"{directory} {content_hash(contents)}", reference, lambda: copied_project(directory))
        return DirectDistribution(reference=reference, metadata=_parsed(header, reference))

    def _of_tree(self, reference: DirectReference, identity: str, tree: _Tree) -> DirectDistribution:
        """Return the metadata of a source tree whose content never changes: stated, else built."""
        key = f"{SOURCE_FORMAT} {identity} {reference.subdirectory} {self._environment}"
        cached = self._client.cache.read("direct", key)
        header = cached.decode() if cached is not None else None
        if header is None:
            with tree(False) as folder:
                locate = _below(folder, reference)
                top = folder / reference.subdirectory
                header = read_source_tree(top, self._target, locate=locate, kind=reference.kind) or ""
            self._client.cache.write("direct", key, header.encode())
        if not header:
            header = self._built(identity, reference, lambda: tree(True))
        return DirectDistribution(reference=reference, metadata=_parsed(header, reference))

    def _built(self, identity: str, reference: DirectReference, source: _Source) -> str:
        """Return the header of the metadata that a build in a copy of the source tree generates; it is cached."""
        if not self._build:
            raise NeedsBuildError
        version = sys.version_info
        key = f"{SOURCE_FORMAT} built by {version.major}.{version.minor} {identity} {reference.subdirectory}"
        cached = self._client.cache.read("direct", key)
        if cached is not None:
            return cached.decode()
        try:
            with source() as folder:
                below = "" if reference.kind == "directory" else reference.subdirectory
                header = header_of(build_tree_metadata(folder / below, f"`{reference.printable}`", folder.parent))
        except (BuildError, ValueError) as error:
            raise MetadataError(f"metadata: {getattr(error, 'message', error)}") from None
        self._client.cache.write("direct", key, header.encode())
        return header

    def _check_tags(self, reference: DirectReference) -> None:
        """Check that the target can install a wheel."""
        try:
            tags = parse_wheel_filename(reference.filename)[3]
        except InvalidWheelFilename as error:
            raise InputError(f"`{reference.filename}` is not the name of a wheel: {error}") from None
        if not any(tag in self._target.tags for tag in tags):
            raise NoStackError(
                f"the wheel `{reference.filename}` is not for Python {self._target.python_minor} on "
                f"{self._target.platform}",
                hint="choose another `--python` or `--platform`, or require another wheel",
            )


def _hint_about(path: str) -> str:
    if _CONDA_BUILD.search(path):
        return (
            "`pip freeze` names the directories in which conda packages were built, on other machines; "
            "`pip list --format=freeze` names their versions"
        )
    return "paths in requirements files start at the directory of the project"


def _below(folder: Path, reference: DirectReference) -> Locate:
    """Return a function that converts a directory below an unpacked tree to a reference to the same tree."""

    def locate(required: DirectReference) -> DirectReference:
        below = Path(required.url).relative_to(folder)
        return replace(reference, subdirectory="" if below == Path() else below.as_posix(), editable=False)

    return locate


def _parsed(header: str, reference: DirectReference) -> CoreMetadata:
    try:
        return parse_metadata(header)
    except ValueError as error:
        raise MetadataError(f"metadata of `{reference.printable}`: {error}") from None
