"""The catalogue of builds that ships with the program: indexes, families, extras and replacements."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from knowledge.builds.model import CatalogueEntry
from knowledge.domain.identity import content_hash
from knowledge.entry_lists import read_entries, shipped_entries

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=1)
def shipped_builds() -> tuple[CatalogueEntry, ...]:
    """Return every entry of the catalogue, sorted by identity.

    Raises:
        InputError: If an entry is malformed or two entries have the same identity.
    """
    return shipped_entries("knowledge.builds", lambda text, where: read_builds(text, where=where), noun="build")


def builds_digest() -> str:
    """Return a hash of the shipped entries."""
    return content_hash([asdict(entry) for entry in shipped_builds()])


def read_builds(text: str, *, where: str) -> tuple[CatalogueEntry, ...]:
    """Read the entries of one YAML file.

    Raises:
        InputError: If it is not a list of entries; the message names the entry and the field.
    """
    return read_entries(text, where=where, noun="build", adapter=_adapter())


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[CatalogueEntry]:
    """Return the parser of entries, cached because its construction is slow."""
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[CatalogueEntry, Field(discriminator="kind")])
