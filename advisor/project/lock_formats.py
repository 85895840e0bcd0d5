"""What each format of lock records of a package, for one target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from packaging.markers import Marker
from packaging.pylock import Pylock
from packaging.specifiers import SpecifierSet

from advisor.resolve.target import Target

Document = Mapping[str, Any]

_SHA256 = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A package as a lock records it.

    Attributes:
        name: Its name, as written.
        version: Its version, as written.
        index: Address of the index it is recorded from, or none.
        files: SHA-256 by file name.
        hashes: SHA-256 hashes of files that are not named.
        elsewhere: Where it comes from, where that is no index: a repository, an address, a directory.
    """

    name: str
    version: str
    index: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    hashes: tuple[str, ...] = ()
    elsewhere: str = ""


def holds(marker: str | None, target: Target) -> bool:
    """Whether an environment marker holds on a target; an absent one does."""
    return not marker or Marker(marker).evaluate({**target.markers, "extra": ""})


def read_pylock(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pylock.toml` (PEP 751)."""
    for package in Pylock.from_dict(document).packages:
        if package.version is not None and (package.marker is None or holds(str(package.marker), target)):
            kept = [*(package.wheels or ()), *((package.sdist,) if package.sdist else ())]
            files = {
                file.name or _basename(file.url or file.path or ""): file.hashes["sha256"]
                for file in kept
                if "sha256" in file.hashes
            }
            source = package.vcs or package.directory or package.archive
            elsewhere = "" if source is None else str(getattr(source, "url", None) or getattr(source, "path", ""))
            version = str(package.version)
            yield Entry(name=package.name, version=version, index=package.index, files=files, elsewhere=elsewhere)


def read_uv(document: Document, target: Target) -> Iterator[Entry]:
    """Walk from the packages of the project; of several versions of one package the markers leave one."""
    by_name: dict[str, list[Document]] = {}
    for package in document["package"]:
        markers = package.get("resolution-markers", ())
        if not markers or any(holds(marker, target) for marker in markers):
            by_name.setdefault(package["name"], []).append(package)
    own = ("virtual", "editable", "directory")
    roots = [p for packages in by_name.values() for p in packages if any(key in p.get("source", {}) for key in own)]
    queue: list[tuple[Document, str | None]] = [(root, None) for root in roots]
    seen: set[tuple[str, str, str | None]] = set()
    while queue:
        package, extra = queue.pop()
        key = (package["name"], package.get("version", ""), extra)
        if key in seen:
            continue
        seen.add(key)
        if not any(name in package.get("source", {}) for name in own):
            yield _uv_entry(package)
        required = package.get("optional-dependencies", {}).get(extra, ()) if extra else package.get("dependencies", ())
        for dependency in required:
            if holds(dependency.get("marker"), target):
                found = by_name.get(dependency["name"], [])
                named = [p for p in found if dependency.get("version") in (None, p.get("version"))]
                for other in named[:1]:
                    queue += [(other, None), *((other, e) for e in dependency.get("extra", ()))]


def _uv_entry(package: Document) -> Entry:
    kept = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    files = {
        file.get("filename") or _basename(file.get("url") or file.get("path") or ""): file["hash"].removeprefix(_SHA256)
        for file in kept
        if str(file.get("hash", "")).startswith(_SHA256)
    }
    source = package.get("source", {})
    elsewhere = next((str(source[kind]) for kind in ("git", "url", "path") if kind in source), "")
    return Entry(
        name=package["name"],
        version=package["version"],
        index=source.get("registry"),
        files=files,
        elsewhere=elsewhere,
    )


def read_poetry(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `poetry.lock`'s main group."""
    return _packages(document, target)


def read_pdm(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `pdm.lock`'s default group."""
    return _packages(document, target)


def _packages(document: Document, target: Target) -> Iterator[Entry]:
    for package in document["package"]:
        groups = package.get("groups", ["main"])
        marker = package.get("marker", package.get("markers"))
        if isinstance(marker, dict):
            marker = marker.get("main")
        python = str(package.get("python-versions", package.get("requires_python", "")))
        admitted = (
            python in ("", "*") or "||" in python or SpecifierSet(python).contains(target.python, prereleases=True)
        )
        if {"main", "default"} & set(groups) and not package.get("optional") and admitted and holds(marker, target):
            source = package.get("source", {})
            source = source if isinstance(source, dict) else {}
            address = str(source.get("url", ""))
            yield Entry(
                name=package["name"],
                version=package["version"],
                index=address if source.get("type") == "legacy" else None,
                elsewhere=address if source.get("type") in ("git", "url", "file", "directory") else "",
                files={
                    file.get("file") or _basename(file.get("url", "")): file["hash"].removeprefix(_SHA256)
                    for file in package.get("files", ())
                    if str(file.get("hash", "")).startswith(_SHA256)
                },
            )


def read_pipfile(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the default packages of a `Pipfile.lock`."""
    sources = {source.get("name"): source.get("url") for source in document.get("_meta", {}).get("sources", ())}
    # As Pipenv: what names no source comes from the first.
    first = next(iter(sources.values()), None)
    for name, entry in document["default"].items():
        if "version" in entry and holds(entry.get("markers"), target):
            yield Entry(
                name=name,
                version=entry["version"].removeprefix("=="),
                index=sources.get(entry.get("index"), first),
                hashes=_sha256(entry.get("hashes", ())),
            )


def read_sbom(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the Python packages of a bill of materials (CycloneDX)."""
    for component in document["components"]:
        if str(component.get("purl", "")).startswith("pkg:pypi/"):
            hashes = [h["content"] for h in component.get("hashes", ()) if h.get("alg") == "SHA-256"]
            yield Entry(name=component["name"], version=component["version"], hashes=tuple(hashes))


def _sha256(hashes: Iterable[str]) -> tuple[str, ...]:
    return tuple(h.removeprefix(_SHA256) for h in hashes if h.startswith(_SHA256))


def _basename(address: str) -> str:
    return PurePosixPath(urlsplit(address).path).name
