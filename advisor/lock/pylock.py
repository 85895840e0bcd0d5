"""Writes `pylock.toml` (PEP 751)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from packaging.markers import Marker
from packaging.pylock import Package, PackageSdist, PackageWheel, Pylock
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.target import Target
from advisor.index.page import DistributionFile
from advisor.resolve.problem import Candidate


def write_pylock(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    target: Target,
    *,
    name: str = "advisor",
) -> str:
    """Return the text of a lock for one target: the exact file of each package, with size and hash.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in.
        target: The target of the lock, written as its environment.
        name: Name of the creator.
    """
    import tomli_w

    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[_environment(target)],
        requires_python=SpecifierSet(f"=={target.python_minor}.*"),
        created_by=name,
        packages=[_package(candidate, files[candidate.name]) for candidate in stack],
    )
    lock.validate()
    return tomli_w.dumps(lock.to_dict())


def _environment(target: Target) -> Marker:
    return Marker(
        f"sys_platform == '{target.markers['sys_platform']}' and platform_machine == '{target.architecture}' and "
        f"implementation_name == 'cpython'"
    )


def _package(candidate: Candidate, file: DistributionFile) -> Package:
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
