"""Parsers of lock formats: the packages of a lock, and which of them a target would install."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.pylock import PylockValidationError
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from advisor.domain.target import Target
from advisor.index.pages.filenames import version_of
from advisor.project.formats.pipfile import required_python

Document = Mapping[str, Any]

_SHA256 = "sha256:"
_MOST_CHARACTERS = 100
"""Characters of a malformed text that a message repeats."""
"""What a specifier begins with."""
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
"""Exceptions that a malformed document causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """A file in a lock.

    Attributes:
        name: File name.
        sha256: SHA-256 in lower case; empty if not recorded.
        url: Address, as written; empty if not recorded.
        path: Path on this machine, as written; empty if not recorded.
        size: Size in bytes; none if not recorded.
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
class Entry:
    """A package in a lock.

    Attributes:
        name: Name, as written.
        version: Version, as written; empty if not recorded, as for a directory.
        index: Address of the index, or none.
        files: Files that the package may be installed from.
        hashes: Hashes of files without a name, as ``algorithm:digest``.
        direct_reference: Repository, URL or directory that it comes from; empty if it comes from an index.
        content: All that the lock records of the direct reference, on one line, for comparison.
        directory: Whether the direct reference is a directory.
        on_target: Whether the target would install the package.
        is_open: Whether the lock has no version for platforms that it was not made for.
        url: Address of the direct reference without commit and subdirectory; empty if the direct reference is that.
        commit: Commit of a repository; empty if not recorded.
        subdirectory: Directory of the package in a repository or archive; empty for the top.
    """

    name: str
    version: str
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: tuple[str, ...] = ()
    direct_reference: str = ""
    content: str = ""
    directory: bool = False
    on_target: bool = True
    is_open: bool = False
    url: str = ""
    commit: str = ""
    subdirectory: str = ""


class EntryError(ValueError):
    """Raised when a package of a lock is malformed.

    Attributes:
        package: Name of the package; empty if it has none.
        place: Position in the lock's list of packages, from 0; none if the format has no list.
        reason: What is malformed.
    """

    def __init__(self, package: str, place: int | None, reason: str) -> None:
        super().__init__(reason)
        self.package = package
        self.place = place
        self.reason = reason


@contextmanager
def package_of(entry: Any, place: int | None) -> Iterator[None]:
    """Convert the exceptions of reading a malformed package to an error that names the package.

    Args:
        entry: The package in the lock, or its name.
        place: Position in the lock's list of packages, from 0; none if the format has no list.

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
    """Return the reason that an exception gives for a malformed document, on one line."""
    if isinstance(error, KeyError):
        return f"field {error} is absent"
    if isinstance(error, (AttributeError, TypeError)):
        return "a field has a value of another type than this format has"
    return " ".join(str(error).split())


def holds(marker: str | None, target: Target) -> bool:
    """Whether an environment marker is true on a target; an absent marker is."""
    return not marker or Marker(marker).evaluate({**target.markers, "extra": ""})


def unmet_conditions(document: Document, target: Target) -> Iterator[tuple[str, str]]:
    """Yield each requirement of a lock as a whole that a target does not satisfy: the text in the lock, and a phrase.

    An installer refuses such a lock: `requires-python` and `environments` of a `pylock.toml` (PEP 751, installing),
    `requires-python` of a `uv.lock`, `python-versions` of a `poetry.lock`, `requires_python` of the `targets` of a
    `pdm.lock`, and `requires` of a `Pipfile.lock` (`pipenv install --deploy`). The platforms of the `targets` of PDM
    are not compared.

    Raises:
        ValueError: If what it requires is malformed.
    """
    pythons = _stated_pythons(document)
    if pythons and not any(_admits(specifier, stated, target) for specifier, stated in pythons.items()):
        admitted = " or ".join(f"`{specifier}`" for specifier in pythons)
        yield next(iter(pythons.values())), f"requires Python {admitted}, and the target has {target.python}"
    environments = [str(marker) for marker in document.get("environments", ())]
    if environments and not any(holds(marker, target) for marker in environments):
        others = " or ".join(f"`{marker}`" for marker in environments)
        yield (
            environments[0],
            f"is for environments with {others}, and the target is Python {target.python} on " + (target.platform),
        )


def _stated_pythons(document: Document) -> dict[str, str]:
    """Return the specifiers of interpreters, each with its text in the lock; one of them must admit the target's."""
    metadata = document.get("metadata", {})
    required = document.get("_meta", {}).get("requires", {})
    if (python := required_python(required)) is not None:
        return dict([python])
    specifiers = [document.get("requires-python"), metadata.get("python-versions")]
    specifiers += [other.get("requires_python", "") for other in metadata.get("targets", ())]
    return {str(specifier): str(specifier) for specifier in specifiers if specifier is not None}


def _admits(specifier: str, stated: str, target: Target) -> bool:
    """Whether a specifier, or a constraint of Poetry such as `^3.9`, admits the interpreter of a target.

    If the target states no patch release, one that is admitted is enough.

    Args:
        specifier: The specifier or constraint.
        stated: Its text in the lock.
        target: The target.

    Raises:
        ValueError: If it is neither.
    """
    try:
        specifiers = SpecifierSet(specifier)
    except InvalidSpecifier:
        from advisor.project.formats.poetry import admits_python
    else:
        if target.states_patch:
            return specifiers.contains(target.python, prereleases=True)
        return not (specifiers & SpecifierSet(f"=={target.python_minor}.*")).is_unsatisfiable()
    try:
        return admits_python(specifier, f"=={target.python if target.states_patch else f'{target.python_minor}.*'}")
    except (ValueError, RecursionError):
        raise ValueError(f"`{stated[:_MOST_CHARACTERS]}` does not state versions of Python") from None


def content_of(entry: Document, *keys: str) -> str:
    """Return the values of some keys of a package as one line of JSON."""
    return json.dumps({key: entry[key] for key in keys if key in entry}, sort_keys=True, default=str)


def kind_of_source(source: Document, kinds: Iterable[str]) -> str:
    """Return the kind of source that a package has; empty if it has none.

    Raises:
        ValueError: If it has several: tools differ in which one they use.
    """
    present = [kind for kind in kinds if kind in source]
    if len(present) > 1:
        raise ValueError(f"it has several sources: {', '.join(f'`{kind}`' for kind in present)}")
    return present[0] if present else ""


def locked_file(file: Document, *, folder: str = "") -> LockedFile:
    """Return a file of a `uv.lock`, `poetry.lock` or `pdm.lock`.

    Args:
        file: The file in the lock.
        folder: Directory that its path is relative to; by default that of the lock.
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
    """Yield the packages of a `poetry.lock`. The target installs the main group.

    Raises:
        EntryError: If a package is malformed.
    """
    packages = document["package"]
    for place, package in enumerate(packages):
        with package_of(package, place):
            source = package.get("source", {})
            kind, address = source.get("type"), str(source.get("url", ""))
            revision = source.get("resolved_reference")
            from_index = not source or kind == "legacy"
            files, hashes = _poetry_files(package, document)
            yield Entry(
                name=package["name"],
                version=package["version"],
                index=address if kind == "legacy" else None,
                files=files,
                hashes=hashes,
                direct_reference="" if from_index else f"{address}@{revision}" if revision else address or str(kind),
                content=content_of({**package, "hashes": hashes, "files": [f.identity for f in files]}, *_POETRY),
                directory=kind == "directory",
                on_target=_is_default(package, target),
                url=address,
                commit=str(revision or ""),
                subdirectory=str(source.get("subdirectory", "")),
            )


_POETRY = ("source", "files", "hashes")


def _poetry_files(package: Document, document: Document) -> tuple[tuple[LockedFile, ...], tuple[str, ...]]:
    """Return the files of a package, and the hashes of files without a name.

    Poetry 1.0 wrote hashes to `[metadata]`, Poetry 1.1 files. Later versions read them there if the package itself has
    no `files` (poetry/packages/locker.py, `_get_locked_package`).
    """
    if "files" in package:
        return tuple(map(locked_file, package["files"])), ()
    metadata, name = document.get("metadata", {}), package["name"]
    if "hashes" in metadata:
        hashes = [str(h) for h in metadata["hashes"].get(name, ())]
        return (), tuple(h if ":" in h else f"{_SHA256}{h}" for h in hashes)
    # The list contains the files of all versions of the package.
    others = {str(p["version"]) for p in document["package"] if p.get("name") == name} - {str(package["version"])}
    versions = {Version(other) for other in others}
    files = map(locked_file, metadata.get("files", {}).get(name, ()))
    return tuple(file for file in files if version_of(file.name) not in versions), ()


def read_pdm(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pdm.lock`. The target installs the default group.

    Raises:
        EntryError: If a package is malformed.
    """
    for place, package in enumerate(document["package"]):
        with package_of(package, place):
            kind = kind_of_source(package, _PDM)
            address = str(package.get(kind, ""))
            revision = package.get("revision")
            yield Entry(
                name=package["name"],
                version=package["version"],
                files=tuple(map(locked_file, package.get("files", ()))),
                direct_reference=f"{address}@{revision}" if revision else address,
                content=content_of(package, *_PDM, "revision", "subdirectory", "editable", "files"),
                directory=kind == "path",
                on_target=_is_default(package, target),
                url=address,
                commit=str(revision or ""),
                subdirectory=str(package.get("subdirectory", "")),
            )


_PDM = ("git", "hg", "svn", "bzr", "url", "path")


def _is_default(package: Document, target: Target) -> bool:
    """Whether a package of a lock of Poetry or PDM is in the main or default group and applies to the target."""
    marker = package.get("marker", package.get("markers"))
    if isinstance(marker, dict):
        marker = marker.get("main")
    python = str(package.get("python-versions", package.get("requires_python", "")))
    admitted = python in ("", "*") or "||" in python or SpecifierSet(python).contains(target.python, prereleases=True)
    default = bool({"main", "default"} & set(package.get("groups", ["main"])))
    return default and not package.get("optional") and admitted and holds(marker, target)


def read_pipfile(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `Pipfile.lock`. The target installs those in `default`.

    Raises:
        EntryError: If a package is malformed.
    """
    sources = {source.get("name"): source.get("url") for source in document.get("_meta", {}).get("sources", ())}
    # As in Pipenv, a package without `index` comes from the first source.
    default_source = next(iter(sources.values()), None)
    for category in ("default", *sorted(set(document) - {"_meta", "default"})):
        for name, entry in document[category].items():
            with package_of(name, None):
                kind = kind_of_source(entry, _PIPENV)
                address = str(entry.get(kind, ""))
                version = str(entry.get("version", ""))
                on_target = category == "default" and bool(version) and holds(entry.get("markers"), target)
                yield Entry(
                    name=name,
                    # Pipenv locks no version for packages that its own platform does not need.
                    version="" if version == "*" and not on_target else version.removeprefix("=="),
                    is_open=version == "*" and not on_target and not address,
                    index=sources.get(entry.get("index"), default_source),
                    hashes=tuple(entry.get("hashes", ())),
                    direct_reference=f"{address}@{entry['ref']}" if "ref" in entry else address,
                    content=content_of(entry, *_PIPENV, "ref", "subdirectory", "editable", "hashes"),
                    directory=kind == "path",
                    on_target=on_target,
                    url=address,
                    commit=str(entry.get("ref", "")),
                    subdirectory=str(entry.get("subdirectory", "")),
                )


_PIPENV = ("git", "hg", "svn", "bzr", "file", "path")


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
