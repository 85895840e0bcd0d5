"""`poetry.lock`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from advisor.domain.target import Target
from advisor.index.pages.filenames import version_of
from advisor.locks.documents import (
    Document,
    DocumentFormat,
    Entry,
    content_of,
    is_default,
    locked_file,
    package_of,
    source_of,
)
from advisor.locks.lock import LockedFile


class _PoetryLock(DocumentFormat):
    name = "poetry.lock"
    order = 3
    tool = "Poetry"
    # Packages may state the same as the table of the lock as a whole, which follows them.
    header = "[metadata]"

    def pythons(self, document: Document) -> Mapping[str, str]:
        """Return `python-versions` of the table `metadata`, a constraint of Poetry such as `^3.9`."""
        stated = document.get("metadata", {}).get("python-versions")
        return {} if stated is None else {str(stated): str(stated)}

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages. The target installs the main group."""
        for place, package in enumerate(document["package"]):
            with package_of(package, place):
                source = package.get("source", {})
                kind, address = source.get("type"), str(source.get("url", ""))
                files, hashes = _files(package, document)
                recorded = {**package, "hashes": hashes, "files": [file.identity for file in files]}
                yield Entry(
                    name=package["name"],
                    version=package["version"],
                    index=address if kind == "legacy" else None,
                    files=files,
                    hashes=hashes,
                    source=source_of(
                        package["name"],
                        "" if not source or kind == "legacy" else address or str(kind),
                        str(source.get("resolved_reference") or ""),
                        content=content_of(recorded, "source", "files", "hashes"),
                        directory=kind == "directory",
                        subdirectory=source.get("subdirectory"),
                    ),
                    on_target=is_default(package, target),
                )


def _files(package: Document, document: Document) -> tuple[tuple[LockedFile, ...], tuple[str, ...]]:
    """Return the files of a package, and the hashes of files without a name.

    Poetry 1.0 wrote hashes to `[metadata]`, Poetry 1.1 files. Later versions read them there if the package itself has
    no `files` (poetry/packages/locker.py, `_get_locked_package`).
    """
    if "files" in package:
        return tuple(map(locked_file, package["files"])), ()
    metadata, name = document.get("metadata", {}), package["name"]
    if "hashes" in metadata:
        hashes = [str(h) for h in metadata["hashes"].get(name, ())]
        return (), tuple(h if ":" in h else f"sha256:{h}" for h in hashes)
    # The list contains the files of all versions of the package.
    others = {str(p["version"]) for p in document["package"] if p.get("name") == name} - {str(package["version"])}
    versions = {Version(other) for other in others}
    files = map(locked_file, metadata.get("files", {}).get(name, ()))
    return tuple(file for file in files if version_of(file.name) not in versions), ()


FORMAT = _PoetryLock()
