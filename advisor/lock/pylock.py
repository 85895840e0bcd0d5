"""Writes `pylock.toml` (PEP 751)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from packaging.markers import Marker
from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
)
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.target import Target
from advisor.index.page import DistributionFile
from advisor.lock.direct import path_from, without_password
from advisor.resolve.problem import Candidate


def write_pylock(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    target: Target,
    *,
    folder: Path = Path(),
    name: str = "advisor",
) -> str:
    """Return the text of a lock for one target: the exact file of each package, with size and hash.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in; none for repositories and directories.
        target: The target of the lock, written as its environment.
        folder: Folder of the lock, which paths are relative to.
        name: Name of the creator.
    """
    import tomli_w

    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[_environment(target)],
        requires_python=SpecifierSet(f"=={target.python_minor}.*"),
        created_by=name,
        packages=[_package(candidate, files, folder) for candidate in stack],
    )
    lock.validate()
    return tomli_w.dumps(lock.to_dict())


def _environment(target: Target) -> Marker:
    return Marker(
        f"sys_platform == '{target.markers['sys_platform']}' and platform_machine == '{target.architecture}' and "
        f"implementation_name == 'cpython'"
    )


def _package(candidate: Candidate, files: Mapping[NormalizedName, DistributionFile], folder: Path) -> Package:
    if candidate.direct is not None:
        return _direct_package(candidate, candidate.direct, files.get(candidate.name), folder)
    file = files[candidate.name]
    uploaded = datetime.fromisoformat(file.uploaded).astimezone(UTC) if file.uploaded else None
    hashes = {"sha256": file.sha256 or ""}
    index = file.index if file.index.startswith(("http:", "https:")) else None
    wheel = PackageWheel(name=file.filename, upload_time=uploaded, url=file.url, size=file.size, hashes=hashes)
    sdist = PackageSdist(name=file.filename, upload_time=uploaded, url=file.url, size=file.size, hashes=hashes)
    return Package(
        name=candidate.name,
        version=candidate.version,
        index=index,
        wheels=None if candidate.is_sdist else [wheel],
        sdist=sdist if candidate.is_sdist else None,
    )


def _direct_package(
    candidate: Candidate, reference: DirectReference, file: DistributionFile | None, folder: Path
) -> Package:
    """Return a package that comes from no index.

    A package of a source tree has no version: what the tree says may change (PEP 751, `packages.version`).
    """
    reference, subdirectory = without_password(reference), reference.subdirectory or None
    if reference.kind == "vcs":
        vcs = PackageVcs(
            type=reference.vcs,
            url=reference.url,
            requested_revision=reference.revision or None,
            commit_id=reference.commit,
            subdirectory=subdirectory,
        )
        return Package(name=candidate.name, vcs=vcs)
    if reference.kind == "directory":
        directory = PackageDirectory(
            path=path_from(reference, folder), editable=reference.editable or None, subdirectory=subdirectory
        )
        return Package(name=candidate.name, directory=directory)
    archive = PackageArchive(
        url=None if reference.is_local else reference.url,
        path=path_from(reference, folder) if reference.is_local else None,
        size=file.size if file else None,
        hashes={"sha256": (file.sha256 if file else None) or ""},
        subdirectory=subdirectory,
    )
    return Package(name=candidate.name, version=None if candidate.is_sdist else candidate.version, archive=archive)
