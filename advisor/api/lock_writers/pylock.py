"""Writes `pylock.toml` (PEP 751)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

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

from advisor.api.lock_writers.direct import path_from, without_password
from advisor.api.lock_writers.variants import add_variants, validate
from advisor.domain.direct_reference import DirectReference
from advisor.domain.target import Target
from advisor.index.pages.page import DistributionFile
from advisor.index.variants.metadata import VariantMetadata
from advisor.locks.setting_value import AppliedSetting
from advisor.locks.settings_table import settings_table
from advisor.resolve.candidates.problem import Candidate
from knowledge.domain.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TargetStack:
    """What a lock contains for one target.

    Attributes:
        target: The target.
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in; none for repositories and directories.
        find_links: Pages and directories with links to files, which are no indexes.
        variants: By package, the variants of its version, if its file is a variant wheel.
        settings: Its run-time settings; none if they are not recommended at all.
    """

    target: Target
    stack: Sequence[Candidate]
    files: Mapping[NormalizedName, DistributionFile]
    find_links: Sequence[str] = ()
    variants: Mapping[NormalizedName, VariantMetadata] = field(default_factory=dict)
    settings: Sequence[AppliedSetting] | None = None


def write_pylock(stacks: Sequence[TargetStack], *, folder: Path = Path(), name: str = "advisor") -> str:
    """Return the text of a lock for one or several targets: the exact file of each package, with size and hash.

    A package that not all targets have, or have at different versions, gets an environment marker. Its run-time
    settings are those that all targets have.

    Args:
        stacks: What the lock contains for each target.
        folder: Folder of the lock, which paths are relative to.
        name: Name of the creator.

    Raises:
        InputError: If environment markers do not distinguish the targets.
    """
    import tomli_w

    targets = [stack.target for stack in stacks]
    pythons = sorted({Version(target.python_minor) for target in targets})
    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[Marker(_environment(target, several_pythons=len(pythons) > 1)) for target in targets],
        requires_python=SpecifierSet(f"=={pythons[0]}.*" if len(pythons) == 1 else f">={pythons[0]}"),
        created_by=name,
        packages=_merged(stacks, folder),
        tool=_tool_table(stacks),
    )
    validate(lock)
    document = lock.to_dict()
    add_variants(document, {name: metadata for stack in stacks for name, metadata in stack.variants.items()})
    return tomli_w.dumps(document)


def _tool_table(stacks: Sequence[TargetStack]) -> dict[str, Any] | None:
    settings = [stack.settings for stack in stacks if stack.settings is not None]
    if len(settings) < len(stacks):
        return None
    common = [setting for setting in settings[0] if all(setting in others for others in settings)]
    return {"advisor": settings_table(common)}


def _environment(target: Target, *, several_pythons: bool) -> str:
    conditions = {
        "sys_platform": target.markers["sys_platform"],
        "platform_machine": target.architecture,
        "implementation_name": "cpython",
    }
    if several_pythons:
        conditions["python_version"] = target.python_minor
    return " and ".join(f"{name} == '{value}'" for name, value in conditions.items())


def distinguishing_markers(targets: Sequence[Target]) -> list[str]:
    """Return for each of several targets an environment marker that is true for it alone among them.

    Raises:
        InputError: If two targets have the same environment.
    """
    names = ("sys_platform", "platform_machine", "python_version")
    for size in range(len(names) + 1):
        for subset in combinations(names, size):
            markers = [" and ".join(f"{n} == '{target.markers[n]}'" for n in subset) for target in targets]
            if len(set(markers)) == len(markers):
                return markers
    raise InputError(
        "two targets of one lock have the same operating system, architecture and Python, so that no environment "
        "marker distinguishes them",
        hint="give each of them a `lock` of its own",
    )


def _merged(stacks: Sequence[TargetStack], folder: Path) -> list[Package]:
    """Return the packages of all targets: equal ones once, with the files of all targets."""
    markers = distinguishing_markers([stack.target for stack in stacks])
    entries: dict[str, list[tuple[Package, str]]] = {}
    for stack, marker in zip(stacks, markers, strict=True):
        for candidate in stack.stack:
            package = _package(candidate, stack, folder)
            source = replace(package, wheels=None, sdist=None)
            entries.setdefault(f"{package.name} {source!r}", []).append((package, marker))
    packages = []
    for _, same in sorted(entries.items()):
        wheels = {str(wheel.name): wheel for package, _ in same for wheel in package.wheels or ()}
        sdists = [package.sdist for package, _ in same if package.sdist is not None]
        needed = " or ".join(f"({marker})" if " and " in marker else marker for _, marker in same)
        packages.append(
            replace(
                same[0][0],
                marker=Marker(needed) if len(same) < len(stacks) else None,
                wheels=[wheels[name] for name in sorted(wheels)] or None,
                sdist=sdists[0] if sdists else None,
            )
        )
    return packages


def _package(candidate: Candidate, locked: TargetStack, folder: Path) -> Package:
    if candidate.direct is not None:
        return _direct_package(candidate, candidate.direct, locked.files.get(candidate.name), folder)
    file = locked.files[candidate.name]
    uploaded = datetime.fromisoformat(file.uploaded).astimezone(UTC) if file.uploaded else None
    hashes = {"sha256": file.sha256 or ""}
    is_index = file.index.startswith(("http:", "https:")) and file.index not in locked.find_links
    wheel = PackageWheel(name=file.filename, upload_time=uploaded, url=file.url, size=file.size, hashes=hashes)
    sdist = PackageSdist(name=file.filename, upload_time=uploaded, url=file.url, size=file.size, hashes=hashes)
    return Package(
        name=candidate.name,
        version=candidate.version,
        index=file.index if is_index else None,
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
