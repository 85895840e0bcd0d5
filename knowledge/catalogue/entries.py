"""YAML files that are lists of entries, one fact each: rules and builds."""

from __future__ import annotations

import importlib.resources
from collections import Counter
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.domain.errors import InputError
from knowledge.records import RecordError, parse_yaml, value_from, yaml_files

FOLDER = importlib.resources.files("knowledge.catalogue") / "data"
"""Folder with a folder for each catalogue."""


def admits(specifier: str, version: Version) -> bool:
    """Whether a specifier admits the public part of a version, also of a pre-release; an empty one admits all."""
    return _specifiers(specifier).contains(Version(version.public), prereleases=True)


@lru_cache(maxsize=4096)
def _specifiers(text: str) -> SpecifierSet:
    """Return a parsed specifier, cached because it is compared with all versions of its package."""
    return SpecifierSet(text)


def shipped_entries(folder: Traversable, kinds: Any, *, noun: str) -> tuple[Any, ...]:
    """Return the entries of all YAML files in a folder, sorted by identity.

    Args:
        folder: The folder.
        kinds: The union of the dataclasses of entries; their field ``kind`` says which of them an entry is.
        noun: What an entry describes, for messages: ``rule``.

    Raises:
        InputError: If an entry is malformed or two entries have the same identity.
    """
    entries: list[Any] = []
    for file in yaml_files(folder):
        entries += read_entries(file.read_text(encoding="utf-8"), kinds, where=file.name, noun=noun)
    if duplicates := [name for name, count in Counter(entry.id for entry in entries).items() if count > 1]:
        raise InputError(f"the {noun} catalogue contains `{min(duplicates)}` twice")
    return tuple(sorted(entries, key=lambda entry: entry.id))


def read_entries(text: str, kinds: Any, *, where: str, noun: str) -> tuple[Any, ...]:
    """Read the entries of one YAML file.

    Args:
        text: The contents of the file.
        kinds: The union of the dataclasses of entries.
        where: The name of the file, for messages.
        noun: What an entry describes, for messages: ``rule``.

    Raises:
        InputError: If it is not a list of entries; the message names the entry and the field.
    """
    try:
        records = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"the {noun} file `{where}` is not YAML: {error}") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"the {noun} file `{where}` is not a list of {noun}s")
    entries = []
    for number, record in enumerate(records, start=1):
        try:
            entries.append(value_from(kinds, record, discriminator="kind"))
        except RecordError as error:
            # An entry of an unknown kind has no place.
            raise InputError(
                f"the {noun} file `{where}`, entry {number} (`{record.get('id', 'no id')}`): "
                f"field `{error.place or 'kind'}`: {error.reason}"
            ) from None
    return tuple(entries)
