"""Parser of `pylock.toml` (PEP 751): its packages, and which of them a target would install."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from urllib.parse import unquote

from packaging.pylock import Package, PackageSdist, PackageWheel, Pylock, PylockValidationError

from advisor.domain.target import Target
from advisor.index.pages.filenames import split_variant_label, version_of
from advisor.locks.entries import Document, Entry, EntryError, LockedFile, content_of, package_of


def read_pylock(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pylock.toml` (PEP 751).

    Raises:
        EntryError: If a package is malformed, or two entries of it apply to the target.
    """
    labelled = _variant_wheels(document)
    lock = _pylock(document, labelled)
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
            direct_reference = _pylock_source(package)
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
                direct_reference=direct_reference,
                content=content_of(document["packages"][place], "vcs", "directory", "archive"),
                directory=package.directory is not None,
                on_target=on_target,
                url=str(package.vcs.url or package.vcs.path) if package.vcs else "",
                commit=package.vcs.commit_id if package.vcs else "",
                subdirectory=_pylock_subdirectory(package),
                hashes=tuple(f"{k}:{v}" for k, v in package.archive.hashes.items()) if package.archive else (),
            )


def _pylock_subdirectory(package: Package) -> str:
    source = package.vcs or package.archive or package.directory
    return (source.subdirectory if source else None) or ""


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


def _pylock(document: Document, labelled: Mapping[tuple[int, int], str]) -> Pylock:
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


def _pylock_source(package: Package) -> str:
    """Return the direct reference of a package; empty if it comes from an index."""
    if package.vcs is not None:
        return f"{package.vcs.url or package.vcs.path}@{package.vcs.commit_id}"
    if package.directory is not None:
        return package.directory.path
    return "" if package.archive is None else str(package.archive.url or package.archive.path)
