"""Metadata that a project states for packages (`[[tool.advisor.metadata]]`) instead of what their files state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.index.metadata.core import CoreMetadata
from knowledge.domain.documents import requirement_from, specifiers_from
from knowledge.domain.errors import InputError, suggest

FIELDS = ("name", "version", "requires-dist", "requires-python", "provides-extra")
"""Keys of an entry: https://docs.astral.sh/uv/reference/settings/#dependency-metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedMetadata:
    """What a project states about one version of a package, or about all of them.

    Attributes:
        version: The version; `None` for all.
        metadata: The metadata, of any version.
    """

    version: Version | None
    metadata: CoreMetadata

    def of(self, version: Version) -> CoreMetadata:
        """Return the metadata of a version."""
        return replace(self.metadata, version=version)


def read_stated_metadata(entries: Iterable[Mapping[str, Any]]) -> tuple[StatedMetadata, ...]:
    """Read the entries of ``[[tool.advisor.metadata]]``.

    Raises:
        InputError: If one is malformed.
    """
    return tuple(_read(entry, f"`tool.advisor.metadata` of `{entry.get('name', '')}`") for entry in entries)


def uv_metadata(uv: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries that ``[tool.uv]`` has, with the fields that count here."""
    entries = uv.get("dependency-metadata", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError("`tool.uv.dependency-metadata` is not a list of tables")
    return [{key: entry[key] for key in FIELDS if key in entry} for entry in entries]


def _read(entry: Mapping[str, Any], where: str) -> StatedMetadata:
    for key in entry:
        if key not in FIELDS:
            raise InputError(f"{where} has no key `{key}`", hint=suggest(key, FIELDS))
    for key in ("name", "version", "requires-python"):
        if not isinstance(entry.get(key, ""), str) or (key == "name" and not entry.get(key)):
            raise InputError(f"{where} has no valid `{key}`", hint=f'write it as `{key} = "..."`')
    for key in ("requires-dist", "provides-extra"):
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise InputError(f"{where} has no valid `{key}`", hint=f'write it as `{key} = ["..."]`')
    try:
        metadata = CoreMetadata(
            name=canonicalize_name(entry["name"]),
            version=Version(entry.get("version", "0")),
            requires=tuple(map(requirement_from, entry.get("requires-dist", ()))),
            extras=frozenset(map(canonicalize_name, entry.get("provides-extra", ()))),
            requires_python=specifiers_from(entry["requires-python"]) if "requires-python" in entry else None,
        )
    except (InvalidVersion, InvalidRequirement, InvalidSpecifier) as error:
        raise InputError(f"{where} is malformed: {str(error).splitlines()[0]}") from None
    return StatedMetadata(version=metadata.version if "version" in entry else None, metadata=metadata)
