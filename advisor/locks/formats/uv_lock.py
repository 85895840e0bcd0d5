"""`uv.lock`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from advisor.domain.target import Target
from advisor.locks.documents import Document, DocumentFormat, Entry, content_of, kind_of_source, locked_file, package_of
from advisor.locks.lock import LockedSource

_DIRECTORIES = ("virtual", "editable", "directory")
_OTHERS = ("registry", "git", "url", "path")


class _UvLock(DocumentFormat):
    name = "uv.lock"
    order = 2
    tool = "uv"

    def update_command(self, pins: Sequence[str]) -> str:
        """Return the command that sets packages to versions."""
        return " ".join(["uv lock", *(f"--upgrade-package {pin}" for pin in pins)])

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages. The target installs those that the packages of the project depend on."""
        packages = document["package"]
        required = _required_packages(packages, target)
        for place, package in enumerate(packages):
            with package_of(package, place):
                registry = package.get("source", {}).get("registry")
                source = _source(package)
                directory = source is not None and source.directory
                files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
                yield Entry(
                    name=package["name"],
                    version=package.get("version", "") if directory else package["version"],
                    index=registry,
                    # If the index is a directory, paths are relative to it.
                    files=tuple(locked_file(file, folder=registry or "") for file in files),
                    source=source,
                    on_target=not directory and id(package) in required,
                )


def _source(package: Document) -> LockedSource | None:
    """Return the source of a package; `None` if it comes from an index."""
    source = package.get("source", {})
    kind = kind_of_source(source, (*_DIRECTORIES, *_OTHERS))
    directory = kind in _DIRECTORIES
    if directory and ("sdist" in package or package.get("wheels")):
        raise ValueError(f"it has files in addition to the directory `{source[kind]}`")
    if kind == "registry":
        return None
    address = str(source[kind]) if kind else str(dict(source))
    # `https://host/name?subdirectory=...&rev=...#commit`
    git = urlsplit(str(source.get("git", "")))
    return LockedSource(
        name=canonicalize_name(package["name"]),
        address=address,
        content=content_of(package, "source", "sdist", "wheels"),
        directory=directory,
        url=urlunsplit((*git[:3], "", "")) or address,
        commit=git.fragment,
        subdirectory=str(source.get("subdirectory") or dict(parse_qsl(git.query)).get("subdirectory", "")),
    )


def _required_packages(packages: Iterable[Document], target: Target) -> set[int]:
    """Return the ids of the packages that the project depends on; markers choose among several versions of one."""
    by_name: dict[str, list[Document]] = {}
    for place, package in enumerate(packages):
        with package_of(package, place):
            markers = package.get("resolution-markers", ())
            if not markers or any(target.satisfies(marker) for marker in markers):
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
                if target.satisfies(dependency.get("marker")):
                    same_name = by_name.get(dependency["name"], [])
                    matches = [p for p in same_name if dependency.get("version") in (None, p.get("version"))]
                    for match in matches[:1]:
                        queue += [(match, None), *((match, e) for e in dependency.get("extra", ()))]
    return required


FORMAT = _UvLock()
