"""YAML files that are lists of entries, one fact each: rules and builds."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.records import RecordError, parse_yaml, value_from, yaml_files

FOLDER = importlib.resources.files("knowledge.catalogue") / "data"
"""Folder with a folder for each catalogue."""


@lru_cache(maxsize=65536)
def admits(specifier: str, version: Version) -> bool:
    """Whether a specifier admits the public part of a version, also of a pre-release; an empty one admits all."""
    return _specifiers(specifier).contains(Version(version.public), prereleases=True)


@lru_cache(maxsize=4096)
def _specifiers(text: str) -> SpecifierSet:
    """Return a parsed specifier, cached because it is compared with all versions of its package."""
    return SpecifierSet(text)


def shipped_entries(folder: Traversable, kinds: Any) -> tuple[Any, ...]:
    """Return the entries of all YAML files in a folder, sorted by identity.

    The field ``kind`` of an entry says which of ``kinds``, a union of dataclasses, it is.
    """
    entries = (entry for file in yaml_files(folder) for entry in read_entries(file.read_text(encoding="utf-8"), kinds))
    return tuple(sorted(entries, key=lambda entry: entry.id))


def read_entries(text: str, kinds: Any) -> Iterator[Any]:
    """Yield the entries of one YAML file.

    Raises:
        ValueError: If an entry is not one of the kinds; the message names the entry and the field.
    """
    for record in parse_yaml(text):
        try:
            yield value_from(kinds, record, discriminator="kind")
        except RecordError as error:
            raise ValueError(f"entry `{record.get('id', 'no id')}`: {error}") from None
