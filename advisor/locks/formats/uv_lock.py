"""Parser of `uv.lock`: its packages, and which of them a target would install."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from advisor.domain.target import Target
from advisor.locks.entries import Document, Entry, content_of, holds, kind_of_source, locked_file, package_of

_DIRECTORIES = ("virtual", "editable", "directory")
_OTHERS = ("registry", "git", "url", "path")


def read_uv(document: Document, target: Target) -> Iterator[Entry]:
    """Yield the packages of a `uv.lock`. The target installs those that the packages of the project depend on.

    Raises:
        EntryError: If a package is malformed.
    """
    packages = document["package"]
    required = _required_packages(packages, target)
    for place, package in enumerate(packages):
        with package_of(package, place):
            source = package.get("source", {})
            kind = kind_of_source(source, (*_DIRECTORIES, *_OTHERS))
            directory = kind if kind in _DIRECTORIES else ""
            if directory and ("sdist" in package or package.get("wheels")):
                raise ValueError(f"it has files in addition to the directory `{source[directory]}`")
            registry = source.get("registry")
            # `https://host/name?subdirectory=...&rev=...#commit`
            git = urlsplit(str(source.get("git", "")))
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
            yield Entry(
                name=package["name"],
                version=package.get("version", "") if directory else package["version"],
                index=registry,
                # If the index is a directory, paths are relative to it.
                files=tuple(locked_file(file, folder=registry or "") for file in files),
                direct_reference="" if kind == "registry" else str(source[kind]) if kind else str(dict(source)),
                content=content_of(package, "source", "sdist", "wheels"),
                directory=bool(directory),
                url=urlunsplit((*git[:3], "", "")),
                commit=git.fragment,
                subdirectory=str(source.get("subdirectory") or dict(parse_qsl(git.query)).get("subdirectory", "")),
                on_target=not directory and id(package) in required,
            )


def _required_packages(packages: Iterable[Document], target: Target) -> set[int]:
    """Return the ids of the packages that the project depends on; markers choose among several versions of one."""
    by_name: dict[str, list[Document]] = {}
    for place, package in enumerate(packages):
        with package_of(package, place):
            markers = package.get("resolution-markers", ())
            if not markers or any(holds(marker, target) for marker in markers):
                by_name.setdefault(package["name"], []).append(package)
    candidates = [package for same_name in by_name.values() for package in same_name]
    queue: list[tuple[Document, str | None]] = [
        (p, None) for p in candidates if any(kind in p.get("source", {}) for kind in _DIRECTORIES)
    ]
    required: set[int] = set()
    visited: set[tuple[str, str, str | None]] = set()
    while queue:
        package, extra = queue.pop()
        key = (package["name"], package.get("version", ""), extra)
        if key in visited:
            continue
        visited.add(key)
        required.add(id(package))
        with package_of(package, None):
            dependencies = package.get("dependencies", ())
            for dependency in package.get("optional-dependencies", {}).get(extra, ()) if extra else dependencies:
                if holds(dependency.get("marker"), target):
                    same_name = by_name.get(dependency["name"], [])
                    matches = [p for p in same_name if dependency.get("version") in (None, p.get("version"))]
                    for match in matches[:1]:
                        queue += [(match, None), *((match, e) for e in dependency.get("extra", ()))]
    return required
