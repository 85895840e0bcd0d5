"""What a `uv.lock` records of its packages, and which of them one target would install."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from advisor.domain.target import Target
from advisor.project.lock_formats import Document, Entry, content_of, holds, kind_of_source, locked_file, package_of

_DIRECTORIES = ("virtual", "editable", "directory")
_OTHERS = ("registry", "git", "url", "path")


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
            kind = kind_of_source(source, (*_DIRECTORIES, *_OTHERS))
            own = kind if kind in _DIRECTORIES else ""
            if own and ("sdist" in package or package.get("wheels")):
                raise ValueError(f"it names files beside the directory `{source[own]}`")
            registry = source.get("registry")
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
            yield Entry(
                name=package["name"],
                version=package.get("version", "") if own else package["version"],
                index=registry,
                # The files of an index that is a directory are recorded relative to it.
                files=tuple(locked_file(file, folder=registry or "") for file in files),
                elsewhere="" if kind == "registry" else str(source[kind]) if kind else str(dict(source)),
                content=content_of(package, "source", "sdist", "wheels"),
                directory=bool(own),
                on_target=not own and id(package) in reached,
            )


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
