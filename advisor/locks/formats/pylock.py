"""`pylock.toml` (PEP 751), with variant wheels (PEP 825)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    PylockValidationError,
    is_valid_pylock_path,
)
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from advisor.domain.target import Target
from advisor.index.pages.filenames import split_variant_label, version_of
from advisor.locks.documents import Document, DocumentFormat, Entry, EntryError, content_of, package_of, source_of
from advisor.locks.interface import PackageToLock, StackToLock, relative_path
from advisor.locks.lock import LockedFile, LockedSource
from advisor.locks.setting_value import settings_table
from advisor.project.text_file import toml_text
from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

_MINOR = re.compile(r"==(\d+\.\d+)\.\*")


class _Pylock(DocumentFormat):
    name = "pylock.toml"
    order = 1
    target_name = "pylock.{}.toml"
    written_names = (name, target_name.format("NAME"))
    holds_settings = True
    depends_on_files = False

    def reads(self, path: Path) -> bool:
        """Whether a file has the suffix of TOML: the user may have named it differently."""
        return path.suffix == ".toml"

    def writes(self, path: Path) -> bool:
        """Whether a file has a name that the standard allows."""
        return is_valid_pylock_path(path)

    def all(self, directory: Path) -> Iterable[Path]:
        """Return the lock of the project and those of its targets."""
        return (*super().all(directory), *sorted(directory.glob(self.target_name.format("*"))))

    def python(self, text: str) -> str | None:
        """Return the interpreter in `requires-python`."""
        match = _MINOR.fullmatch(str(parse_toml(text).get("requires-python", "")))
        return match[1] if match else None

    def environments(self, document: Document) -> Sequence[str]:
        """Return `environments` (PEP 751, installing)."""
        return [str(marker) for marker in document.get("environments", ())]

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages; two entries of a package that apply to the target are an error."""
        labelled = _variant_wheels(document)
        lock = _parsed(document, labelled)
        # What installers use if the user names no extras or groups (PEP 751, installing).
        groups = frozenset(map(str, lock.default_groups or ()))
        markers: dict[str, str | Set[str]] = {**target.markers, "extras": frozenset(), "dependency_groups": groups}
        target_names: set[str] = set()
        for place, package in enumerate(lock.packages):
            with package_of(package.name, place):
                version = str(package.version or _version_of_files(package))
                applies = package.marker is None or package.marker.evaluate(markers, context="lock_file")
                on_target = bool(version) and applies
                if on_target and package.name in target_names:
                    # "Installers MUST raise an error about the ambiguity" (PEP 751, installing).
                    raise ValueError("two entries of it apply to the target")
                target_names |= {package.name} if on_target else set()
                yield Entry(
                    name=package.name,
                    version=version,
                    index=package.index,
                    files=tuple(
                        LockedFile(
                            name=labelled.get((place, number), file.filename),
                            sha256=file.hashes.get("sha256", "").lower(),
                            url=file.url or "",
                            path=file.path or "",
                            size=file.size,
                            other_hashes=tuple(f"{k}:{v}" for k, v in sorted(file.hashes.items()) if k != "sha256"),
                        )
                        for number, file in enumerate(_files_of(package))
                    ),
                    source=_source(package, document["packages"][place]),
                    on_target=on_target,
                    hashes=tuple(f"{k}:{v}" for k, v in package.archive.hashes.items()) if package.archive else (),
                )

    def target_markers(self, targets: Sequence[Target]) -> list[str]:
        """Return for each target an environment marker that is true for it alone among them."""
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

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return the text of a lock for one or several targets: the exact file of each package, with size and hash.

        A package that not all targets have, or have at different versions, gets an environment marker. Its run-time
        settings are those that all targets have.

        Raises:
            InputError: If environment markers do not distinguish the targets.
        """
        targets = [stack.target for stack in stacks]
        pythons = sorted({Version(target.python_minor) for target in targets})
        lock = Pylock(
            lock_version=Version("1.0"),
            environments=[Marker(_environment(target, several_pythons=len(pythons) > 1)) for target in targets],
            requires_python=SpecifierSet(f"=={pythons[0]}.*" if len(pythons) == 1 else f">={pythons[0]}"),
            created_by="advisor",
            packages=_merged(stacks, path.parent),
            tool=_tool_table(stacks),
        )
        document = lock.to_dict()
        _parsed(document, _variant_wheels(document))
        _add_variants(document, [package for stack in stacks for package in stack.packages])
        return toml_text(document)


def _source(package: Package, entry: Document) -> LockedSource | None:
    """Return the source of a package, which also is an entry of the document; `None` if it comes from an index."""
    vcs = package.vcs
    source = vcs or package.directory or package.archive
    if source is None:
        return None
    return source_of(
        package.name,
        str(getattr(source, "url", None) or source.path),
        vcs.commit_id if vcs else "",
        content=content_of(entry, "vcs", "directory", "archive"),
        directory=package.directory is not None,
        subdirectory=source.subdirectory,
    )


def _version_of_files(package: Package) -> str:
    """Return the version in the file names of a package; empty if there are no files or their versions differ."""
    versions = {version_of(file.filename) for file in _files_of(package)}
    return str(next(iter(versions)) or "") if len(versions) == 1 else ""


def _files_of(package: Package) -> tuple[PackageWheel | PackageSdist, ...]:
    return (*(package.wheels or ()), *((package.sdist,) if package.sdist else ()))


def _variant_wheels(document: Document) -> dict[tuple[int, int], str]:
    """Return the names of variant wheels (PEP 825), by the places of package and wheel."""
    names = {}
    packages = document.get("packages")
    for place, package in enumerate(packages if isinstance(packages, list) else ()):
        wheels = package.get("wheels") if isinstance(package, Mapping) else None
        for number, wheel in enumerate(wheels if isinstance(wheels, list) else ()):
            values = [wheel.get(key) for key in ("name", "path", "url")] if isinstance(wheel, Mapping) else []
            name = next((unquote(text.rpartition("/")[2]) for text in values if isinstance(text, str) and text), "")
            if split_variant_label(name)[1]:
                names[place, number] = name
    return names


def _without_labels(document: Document, labelled: Mapping[tuple[int, int], str]) -> Document:
    """Return a lock in which variant wheels have names without labels, because `packaging` refuses labels."""
    packages = list(document["packages"])
    for (place, number), name in labelled.items():
        wheels = list(packages[place]["wheels"])
        wheels[number] = {**wheels[number], "name": split_variant_label(name)[0]}
        packages[place] = {**packages[place], "wheels": wheels}
    return {**document, "packages": packages}


def _parsed(document: Document, labelled: Mapping[tuple[int, int], str]) -> Pylock:
    """Parse a document; an error in a package names the package."""
    try:
        return Pylock.from_dict(_without_labels(document, labelled) if labelled else document)
    except PylockValidationError as error:
        context = error.context or ""
        place, _, field = context.removeprefix("packages[").partition("]")
        if not context.startswith("packages[") or not place.isdigit():
            raise
        where = f" in `{field.removeprefix('.')}`" if field else ""
        entry = document["packages"][int(place)]
        name = entry.get("name", "") if isinstance(entry, Mapping) else ""
        raise EntryError(str(name), int(place), f"{error.message}{where}") from None


def _tool_table(stacks: Sequence[StackToLock]) -> dict[str, Any] | None:
    settings = [stack.settings for stack in stacks if stack.settings is not None]
    if len(settings) < len(stacks):
        return None
    common = [setting for setting in settings[0] if all(setting in others for others in settings)]
    # An experiment is about one machine.
    return {"advisor": settings_table(common, stacks[0].certificate if len(stacks) == 1 else None)}


def _environment(target: Target, *, several_pythons: bool) -> str:
    conditions = {
        "sys_platform": target.markers["sys_platform"],
        "platform_machine": target.architecture,
        "implementation_name": "cpython",
    }
    if several_pythons:
        conditions["python_version"] = target.python_minor
    return " and ".join(f"{name} == '{value}'" for name, value in conditions.items())


def _merged(stacks: Sequence[StackToLock], folder: Path) -> list[Package]:
    """Return the packages of all targets: equal ones once, with the files of all targets."""
    markers = FORMAT.target_markers([stack.target for stack in stacks])
    entries: dict[str, list[tuple[Package, str]]] = {}
    for stack, marker in zip(stacks, markers, strict=True):
        for package_to_lock in stack.packages:
            package = _package(package_to_lock, stack, folder)
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


def _package(package: PackageToLock, stack: StackToLock, folder: Path) -> Package:
    file = package.file
    if package.direct is not None or file is None:
        return _direct_package(package, folder)
    uploaded = datetime.fromisoformat(file.uploaded).astimezone(UTC) if file.uploaded else None
    hashes = {"sha256": package.sha256}
    is_index = file.index.startswith(("http:", "https:")) and file.index not in stack.configuration.find_links
    kind: Any = PackageSdist if package.is_sdist else PackageWheel
    locked = kind(name=file.filename, upload_time=uploaded, url=file.url, size=file.size, hashes=hashes)
    return Package(
        name=package.name,
        version=package.version,
        index=file.index if is_index else None,
        wheels=None if package.is_sdist else [locked],
        sdist=locked if package.is_sdist else None,
    )


def _direct_package(package: PackageToLock, folder: Path) -> Package:
    """Return a package that comes from no index.

    A package of a source tree has no version: what the tree says may change (PEP 751, `packages.version`).
    """
    reference = package.direct
    assert reference is not None
    subdirectory = reference.subdirectory or None
    if reference.kind == "vcs":
        vcs = PackageVcs(
            type=reference.vcs,
            url=reference.url,
            requested_revision=reference.revision or None,
            commit_id=reference.commit,
            subdirectory=subdirectory,
        )
        return Package(name=package.name, vcs=vcs)
    if reference.kind == "directory":
        directory = PackageDirectory(
            path=relative_path(reference, folder), editable=reference.editable or None, subdirectory=subdirectory
        )
        return Package(name=package.name, directory=directory)
    archive = PackageArchive(
        url=None if reference.is_local else reference.url,
        path=relative_path(reference, folder) if reference.is_local else None,
        size=package.file.size if package.file else None,
        hashes={"sha256": package.sha256},
        subdirectory=subdirectory,
    )
    return Package(name=package.name, version=None if package.is_sdist else package.version, archive=archive)


def _add_variants(document: Mapping[str, Any], packages: Iterable[PackageToLock]) -> None:
    """Add the description of the locked variants (PEP 825) to each package of a document that has some."""
    variants = {str(package.name): package.variants for package in packages if package.variants is not None}
    for package in document["packages"]:
        labels = [split_variant_label(wheel["name"])[1] for wheel in package.get("wheels", ())]
        if any(labels) and package["name"] in variants:
            package["variants-json"] = variants[package["name"]].restricted_to(filter(None, labels))


FORMAT = _Pylock()
