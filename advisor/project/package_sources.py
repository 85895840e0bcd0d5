"""Where a project says that a package comes from: an index, a repository, an archive or a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.domain.direct_reference import VCS, DirectReference, parse_direct_reference
from advisor.domain.target import Target
from knowledge.domain.errors import InputError

_PATHS = ("path", "file", "url")
_REVISIONS = ("rev", "tag", "branch", "ref")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSource:
    """A place that a package comes from, if a condition holds.

    Attributes:
        reference: Repository, archive or directory; `None` if it is an index.
        index: Address of the index; empty if it is none.
        marker: Environment marker; empty if it always applies.
    """

    reference: DirectReference | None = None
    index: str = ""
    marker: str = ""

    def applies(self, target: Target) -> bool:
        """Whether the condition holds on a target."""
        return target.satisfies(self.marker)


def reference_of(options: Any, folder: Path, place: str) -> DirectReference | None:
    """Return the direct reference in an entry of Poetry, Pipenv, pixi or uv; `None` if it is no table that names one.

    Sources: https://python-poetry.org/docs/dependency-specification/,
    https://pipenv.pypa.io/en/latest/pipfile.html, https://pixi.sh/latest/reference/pixi_manifest/ and
    https://docs.astral.sh/uv/concepts/projects/dependencies/#dependency-sources.

    Args:
        options: The entry, such as ``{git = "https://...", tag = "v1"}``.
        folder: Folder that a relative path starts at.
        place: File and line, for messages.

    Raises:
        InputError: If the address is malformed.
    """
    kind = next((key for key in (*VCS, *_PATHS) if key in options), None) if isinstance(options, Mapping) else None
    if kind is None:
        return None
    address = str(options[kind])
    try:
        if kind in VCS:
            reference = _of_repository(kind, address, folder)
        else:
            reference = parse_direct_reference(address, folder).reference
    except ValueError as error:
        raise InputError(f"{place}: `{address}` is not an address or a path of a package: {error}") from None
    revision = next((str(options[key]) for key in _REVISIONS if key in options), reference.revision)
    return replace(
        reference,
        revision=revision if reference.kind == "vcs" else "",
        subdirectory=str(options.get("subdirectory", reference.subdirectory)).strip("/"),
        editable=bool(options.get("editable", options.get("develop", False))) and reference.kind != "archive",
    )


def _of_repository(kind: str, address: str, folder: Path) -> DirectReference:
    address = address.removeprefix(f"{kind}+")
    if "://" not in address and ":" not in address:
        return DirectReference(kind="vcs", vcs=kind, url=(folder / address).resolve().as_uri())
    return parse_direct_reference(f"{kind}+{address}", folder).reference
