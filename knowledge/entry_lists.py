"""YAML files that are lists of entries, one fact each: rules and builds."""

from __future__ import annotations

import importlib.resources
from collections import Counter
from typing import TYPE_CHECKING, Protocol, TypeVar

from knowledge.domain.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter


class IdentifiedEntry(Protocol):
    """An entry of a catalogue."""

    @property
    def id(self) -> str:
        """The identity of the entry, unique in its catalogue."""


Entry = TypeVar("Entry", bound=IdentifiedEntry)
AnyEntry = TypeVar("AnyEntry")


def shipped_entries(package: str, read: Callable[[str, str], tuple[Entry, ...]], *, noun: str) -> tuple[Entry, ...]:
    """Return the entries of all YAML files in the folder ``catalogue`` of a package, sorted by identity.

    Args:
        package: The import name of the package.
        read: Returns the entries of a text and the name of its file.
        noun: What an entry describes, for messages: ``rule``.

    Raises:
        InputError: If an entry is malformed or two entries have the same identity.
    """
    folder = importlib.resources.files(package) / "catalogue"
    entries: list[Entry] = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            entries += read(file.read_text(encoding="utf-8"), file.name)
    if duplicates := [name for name, count in Counter(entry.id for entry in entries).items() if count > 1]:
        raise InputError(f"the {noun} catalogue contains `{min(duplicates)}` twice")
    return tuple(sorted(entries, key=lambda entry: entry.id))


def read_entries(text: str, *, where: str, noun: str, adapter: TypeAdapter[AnyEntry]) -> tuple[AnyEntry, ...]:
    """Read the entries of one YAML file.

    Args:
        text: The contents of the file.
        where: The name of the file, for messages.
        noun: What an entry describes, for messages: ``rule``.
        adapter: The parser of one entry.

    Raises:
        InputError: If it is not a list of entries; the message names the entry and the field.
    """
    import yaml
    from pydantic import ValidationError

    try:
        records = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise InputError(f"the {noun} file `{where}` is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"the {noun} file `{where}` is not a list of {noun}s")
    entries = []
    for number, record in enumerate(records, start=1):
        try:
            entries.append(adapter.validate_python(record))
        except ValidationError as error:
            first = error.errors()[0]
            # An entry of an unknown kind has an empty location.
            field = ".".join(str(part) for part in first["loc"]) or "kind"
            raise InputError(
                f"the {noun} file `{where}`, entry {number} (`{record.get('id', 'no id')}`): "
                f"field `{field}`: {first['msg'].lower()}"
            ) from None
    return tuple(entries)
