"""What each format of lock records of its packages, for every platform, and which of them one target would install."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from advisor.resolve.target import Target

Document = Mapping[str, Any]

_SHA256 = "sha256:"
_DIRECTORIES = ("virtual", "editable", "directory")
MALFORMED = (
    InvalidMarker,
    InvalidRequirement,
    InvalidSpecifier,
    InvalidVersion,
    PylockValidationError,
    UndefinedEnvironmentName,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What reading a malformed document raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """A file as a lock records it.

    Attributes:
        name: Its name.
        sha256: Its SHA-256 in lower case; empty where the lock does not tell.
        url: Its address, as written; empty where the lock does not tell.
        path: Its place on this machine, as written; empty where the lock does not tell.
        size: Bytes, where the lock tells.
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
        """All that is recorded of it, as one line."""
        return " ".join((self.name, self.url, self.path, self.sha256, str(self.size or ""), *self.other_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A package as a lock records it.

    Attributes:
        name: Its name, as written.
        version: Its version, as written; empty where the lock does not tell, as of a directory.
        index: Address of the index it is recorded from, or none.
        files: The files that it may be installed from.
        hashes: Hashes of files that are not named, as ``algorithm:digest``.
        elsewhere: Where it comes from, where that is no index: a repository, an address, a directory.
        directory: Whether that is a directory.
        on_target: Whether the target would install it.
    """

    name: str
    version: str
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: tuple[str, ...] = ()
    elsewhere: str = ""
    directory: bool = False
    on_target: bool = True


class EntryError(ValueError):
    """Raised when a package of a lock is malformed.

    Attributes:
        package: Its name, where it has one.
        place: Which of the lock's packages it is, from 0; none where the lock does not list them.
        reason: What is wrong with it.
    """

    def __init__(self, package: str, place: int | None, reason: str) -> None:
        super().__init__(reason)
        self.package = package
        self.place = place
        self.reason = reason


@contextmanager
def package_of(entry: Any, place: int | None) -> Iterator[None]:
    """Name the package in what goes wrong while it is read.

    Args:
        entry: The package, as the lock has it, or its name.
        place: Which of the lock's packages it is, from 0.

    Raises:
        EntryError: If it is malformed.
    """
    try:
        yield
    except EntryError:
        raise
    except MALFORMED as error:
        name = entry.get("name", "") if isinstance(entry, Mapping) else entry
        raise EntryError(name if isinstance(name, str) else "", place, reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """Return what an error says of a malformed document, on one line."""
    return f"field {error} is absent" if isinstance(error, KeyError) else " ".join(str(error).split())


def holds(marker: str | None, target: Target) -> bool:
    """Whether an environment marker holds on a target; an absent one does."""
    return not marker or Marker(marker).evaluate({**target.markers, "extra": ""})


def read_pylock(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pylock.toml` (PEP 751).

    Raises:
        EntryError: If a package is malformed, or is there twice for the target.
    """
    seen: set[str] = set()
    for place, package in enumerate(_pylock(document).packages):
        with package_of(package.name, place):
            on_target = package.version is not None and (package.marker is None or holds(str(package.marker), target))
            if on_target and package.name in seen:
                # "Installers MUST raise an error about the ambiguity" (PEP 751, installing).
                raise ValueError("it is there twice for the target")
            seen |= {package.name} if on_target else set()
            elsewhere = _pylock_source(package)
            yield Entry(
                name=package.name,
                version=str(package.version or ""),
                index=package.index,
                files=tuple(
                    LockedFile(
                        name=file.filename,
                        sha256=file.hashes.get("sha256", "").lower(),
                        url=file.url or "",
                        path=file.path or "",
                        size=file.size,
                        other_hashes=tuple(f"{k}:{v}" for k, v in sorted(file.hashes.items()) if k != "sha256"),
                    )
                    for file in (*(package.wheels or ()), *((package.sdist,) if package.sdist else ()))
                ),
                elsewhere=elsewhere,
                directory=package.directory is not None,
                on_target=on_target,
            )


def _pylock(document: Document) -> Pylock:
    """Parse a document, and name the package where that fails in one."""
    try:
        return Pylock.from_dict(document)
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
    """Return where a package comes from that is not from an index; else an empty text."""
    if package.vcs is not None:
        return f"{package.vcs.url or package.vcs.path}@{package.vcs.commit_id}"
    if package.directory is not None:
        return package.directory.path
    return "" if package.archive is None else str(package.archive.url or package.archive.path)


def read_uv(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `uv.lock`; the target installs those that the project's own packages lead to.

    Raises:
        EntryError: If a package is malformed.
    """
    packages = document["package"]
    reached = _reached(packages, target)
    for place, package in enumerate(packages):
        with package_of(package, place):
            source = package.get("source", {})
            own = next((kind for kind in _DIRECTORIES if kind in source), "")
            registry = source.get("registry")
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
            yield Entry(
                name=package["name"],
                version=package.get("version", "") if own else package["version"],
                index=registry,
                # The files of an index that is a directory are recorded relative to it.
                files=tuple(_file(file, folder=registry or "") for file in files),
                elsewhere=source[own] if own else "" if "registry" in source else _uv_source(source),
                directory=bool(own),
                on_target=not own and id(package) in reached,
            )


def _uv_source(source: Document) -> str:
    return next((str(source[kind]) for kind in ("git", "url", "path") if kind in source), str(dict(source)))


def _reached(packages: Iterable[Document], target: Target) -> set[int]:
    """Return the packages that the project's own lead to; of several versions of one the markers leave one."""
    by_name: dict[str, list[Document]] = {}
    for place, package in enumerate(packages):
        with package_of(package, place):
            markers = package.get("resolution-markers", ())
            if not markers or any(holds(marker, target) for marker in markers):
                by_name.setdefault(package["name"], []).append(package)
    found = [package for named in by_name.values() for package in named]
    queue: list[tuple[Document, str | None]] = [
        (p, None) for p in found if any(kind in p.get("source", {}) for kind in _DIRECTORIES)
    ]
    reached: set[int] = set()
    seen: set[tuple[str, str, str | None]] = set()
    while queue:
        package, extra = queue.pop()
        key = (package["name"], package.get("version", ""), extra)
        if key in seen:
            continue
        seen.add(key)
        reached.add(id(package))
        with package_of(package, None):
            dependencies = package.get("dependencies", ())
            for dependency in package.get("optional-dependencies", {}).get(extra, ()) if extra else dependencies:
                if holds(dependency.get("marker"), target):
                    named = by_name.get(dependency["name"], [])
                    fitting = [p for p in named if dependency.get("version") in (None, p.get("version"))]
                    for other in fitting[:1]:
                        queue += [(other, None), *((other, e) for e in dependency.get("extra", ()))]
    return reached


def _file(file: Document, *, folder: str = "") -> LockedFile:
    """Return a file of a `uv.lock`, `poetry.lock` or `pdm.lock`.

    Args:
        file: The file, as the lock has it.
        folder: Directory that a path of it is relative to, where that is not the lock's own.
    """
    hashed, url, path = str(file.get("hash", "")), str(file.get("url", "")), str(file.get("path", ""))
    return LockedFile(
        name=str(file.get("filename") or file.get("file") or _basename(url or path)),
        sha256=hashed.removeprefix(_SHA256).lower() if hashed.startswith(_SHA256) else "",
        url=url,
        path=f"{folder.removesuffix('/')}/{path}" if path and folder else path,
        size=file.get("size"),
        other_hashes=(hashed,) if hashed and not hashed.startswith(_SHA256) else (),
    )


def read_poetry(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `poetry.lock`; the target installs the main group.

    Raises:
        EntryError: If a package is malformed.
    """
    for place, package in enumerate(document["package"]):
        with package_of(package, place):
            source = package.get("source", {})
            kind, address = source.get("type"), str(source.get("url", ""))
            revision = source.get("resolved_reference")
            from_index = kind in (None, "legacy")
            yield Entry(
                name=package["name"],
                version=package["version"],
                index=address if kind == "legacy" else None,
                files=tuple(map(_file, package.get("files", ()))),
                elsewhere="" if from_index else f"{address}@{revision}" if revision else address or str(kind),
                directory=kind == "directory",
                on_target=_is_default(package, target),
            )


def read_pdm(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pdm.lock`; the target installs the default group.

    Raises:
        EntryError: If a package is malformed.
    """
    for place, package in enumerate(document["package"]):
        with package_of(package, place):
            address = next((str(package[k]) for k in ("git", "hg", "svn", "bzr", "url", "path") if k in package), "")
            revision = package.get("revision")
            yield Entry(
                name=package["name"],
                version=package["version"],
                files=tuple(map(_file, package.get("files", ()))),
                elsewhere=f"{address}@{revision}" if revision else address,
                directory="path" in package and not address.endswith((".whl", ".zip", ".gz")),
                on_target=_is_default(package, target),
            )


def _is_default(package: Document, target: Target) -> bool:
    """Whether a package of Poetry's or PDM's lock is in the main or default group, and for the target."""
    marker = package.get("marker", package.get("markers"))
    if isinstance(marker, dict):
        marker = marker.get("main")
    python = str(package.get("python-versions", package.get("requires_python", "")))
    admitted = python in ("", "*") or "||" in python or SpecifierSet(python).contains(target.python, prereleases=True)
    default = bool({"main", "default"} & set(package.get("groups", ["main"])))
    return default and not package.get("optional") and admitted and holds(marker, target)


def read_pipfile(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `Pipfile.lock`; the target installs the default ones.

    Raises:
        EntryError: If a package is malformed.
    """
    sources = {source.get("name"): source.get("url") for source in document.get("_meta", {}).get("sources", ())}
    # As Pipenv: what names no source comes from the first.
    first = next(iter(sources.values()), None)
    for category in ("default", *sorted(set(document) - {"_meta", "default"})):
        for name, entry in document[category].items():
            with package_of(name, None):
                address = next((str(entry[k]) for k in ("git", "hg", "svn", "bzr", "file", "path") if k in entry), "")
                version = str(entry.get("version", ""))
                on_target = category == "default" and bool(version) and holds(entry.get("markers"), target)
                if version == "*" and not on_target:
                    version = ""  # Pipenv locks no version of what its own platform does not need.
                yield Entry(
                    name=name,
                    version=version.removeprefix("=="),
                    index=sources.get(entry.get("index"), first),
                    hashes=tuple(entry.get("hashes", ())),
                    elsewhere=f"{address}@{entry['ref']}" if "ref" in entry else address,
                    directory="path" in entry,
                    on_target=on_target,
                )


def read_sbom(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the Python packages of a bill of materials (CycloneDX).

    Raises:
        EntryError: If a package is malformed.
    """
    for place, component in enumerate(document["components"]):
        with package_of(component, place):
            if str(component.get("purl", "")).startswith("pkg:pypi/"):
                hashes = [h["content"] for h in component.get("hashes", ()) if h.get("alg") == "SHA-256"]
                yield Entry(
                    name=component["name"],
                    version=component["version"],
                    hashes=tuple(f"{_SHA256}{digest}" for digest in hashes),
                )


def _basename(address: str) -> str:
    return unquote(PurePosixPath(urlsplit(address).path).name)
