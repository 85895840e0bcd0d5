"""`pdm.lock`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.domain.direct_reference import VCS
from advisor.domain.target import Target
from advisor.locks.documents import (
    Document,
    DocumentFormat,
    Entry,
    content_of,
    is_default,
    kind_of_source,
    locked_file,
    package_of,
    source_of,
)

_SOURCES = (*VCS, "url", "path")


class _PdmLock(DocumentFormat):
    name = "pdm.lock"
    order = 4
    tool = "PDM"
    header = "[metadata]"

    def pythons(self, document: Document) -> Mapping[str, str]:
        """Return `requires_python` of the `targets`, whose platforms are not compared."""
        targets = document.get("metadata", {}).get("targets", ())
        return {stated: stated for stated in (str(other.get("requires_python", "")) for other in targets)}

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages. The target installs the default group."""
        for place, package in enumerate(document["package"]):
            with package_of(package, place):
                kind = kind_of_source(package, _SOURCES)
                yield Entry(
                    name=package["name"],
                    version=package["version"],
                    files=tuple(map(locked_file, package.get("files", ()))),
                    source=source_of(
                        package["name"],
                        str(package.get(kind, "")),
                        str(package.get("revision") or ""),
                        content=content_of(package, *_SOURCES, "revision", "subdirectory", "editable", "files"),
                        directory=kind == "path",
                        subdirectory=package.get("subdirectory"),
                    ),
                    on_target=is_default(package, target),
                )


FORMAT = _PdmLock()
