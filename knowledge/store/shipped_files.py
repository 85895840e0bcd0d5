"""The observation files that ship with the program, and their observations in a knowledge base.

A version of the program may ship another file instead of an earlier one, without the records that turned out to be
wrong. Each observation has the number of the shipped file that brought it, unless the user added it, too. The knowledge
base records the version of the shipped data that it has, so that an older program leaves it as it is.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from knowledge.domain.documents import lines_of
from knowledge.store import tables
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.ingest import add_shipped_lines
from knowledge.store.removal import delete_observations, delete_unused

VERSION_FILE = "version.json"
"""Name of the file in ``knowledge/data`` with the version of the shipped data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFile:
    """An observation file that is a part of the program.

    Attributes:
        name: Name of the file in ``knowledge/data``.
        sha256: Hash of its content.
        content: Its content, compressed if the name ends with ``.gz``.
    """

    name: str
    sha256: str
    content: bytes

    def lines(self) -> list[str]:
        """Return the lines of the file.

        Raises:
            KnowledgeBaseError: If the file is damaged.
        """
        try:
            content = gzip.decompress(self.content) if self.name.endswith(".gz") else self.content
        except (OSError, EOFError, zlib.error) as error:
            raise KnowledgeBaseError(
                f"the file `{self.name}` of the program is damaged: {error}", hint="install `seshat-advisor` again"
            ) from None
        return lines_of(content.decode("utf-8"))


def shipped_files() -> tuple[ShippedFile, ...]:
    """Return all observation files that ship with the program, ordered by name."""
    files = sorted(importlib.resources.files("knowledge.data").iterdir(), key=lambda file: file.name)
    contents = [(file.name, file.read_bytes()) for file in files if file.name.endswith((".jsonl", ".jsonl.gz"))]
    return tuple(
        ShippedFile(name=name, sha256=hashlib.sha256(content).hexdigest(), content=content)
        for name, content in contents
    )


def shipped_version() -> int:
    """Return the version of the shipped data: a later one has a higher number."""
    return int(json.loads((importlib.resources.files("knowledge.data") / VERSION_FILE).read_text("utf-8"))["version"])


def is_current(connection: Connection, files: Iterable[ShippedFile], *, version: int) -> bool:
    """Whether a knowledge base has these files, or those of a later version."""
    stored: int | None = connection.execute(select(tables.shipped_data.c.version)).scalar()
    if stored is None:
        return False
    if stored != version:
        return stored > version
    # Two states of the program's source code can have the same version.
    return set(_stored_numbers(connection)) == {file.sha256 for file in files}


def update_shipped_rows(connection: Connection, files: Collection[ShippedFile], *, version: int) -> None:
    """Import the program's files, and delete what only files brought that it does not ship, unless they are newer.

    Blocks that the user removed stay removed.
    """
    if is_current(connection, files, version=version):
        return
    stored = _stored_numbers(connection)
    shipping = {file.sha256: file.name for file in files}
    obsolete = [number for sha256, number in stored.items() if sha256 not in shipping]
    shipped = tables.observation.c.shipped
    deleted = delete_observations(connection, shipped.in_(obsolete)) if obsolete else frozenset()
    numbers = _number_files(connection, shipping, stored)
    removed = frozenset(connection.execute(select(tables.removed_block.c.name)).scalars())
    # All files, not only new ones: deleted observations may be in a file that was imported before, too.
    add_shipped_lines(connection, ((numbers[file.sha256], file.lines()) for file in files), without=removed)
    if deleted:
        delete_unused(connection)
    connection.execute(delete(tables.shipped_data))
    connection.execute(insert(tables.shipped_data), [{"version": version}])


def _stored_numbers(connection: Connection) -> dict[str, int]:
    """Return the numbers of the imported files, by hash."""
    table = tables.shipped_file
    return {row.sha256: row.number for row in connection.execute(select(table.c.sha256, table.c.number))}


def _number_files(connection: Connection, names: Mapping[str, str], stored: Mapping[str, int]) -> dict[str, int]:
    """Record the program's files instead of the stored ones; return the number of each, by its hash.

    Files that were imported before retain their numbers.
    """
    table = tables.shipped_file
    following = max(stored.values(), default=0) + 1
    new = sorted(names.keys() - stored.keys())
    numbers = {**stored, **{sha256: following + i for i, sha256 in enumerate(new)}}
    connection.execute(delete(table))
    if names:
        rows = [{"sha256": sha256, "name": names[sha256], "number": numbers[sha256]} for sha256 in sorted(names)]
        connection.execute(insert(table), rows)
    return numbers
