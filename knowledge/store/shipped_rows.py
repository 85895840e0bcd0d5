"""The observations of the shipped files in a knowledge base: new ones are added, those of earlier files deleted.

A version of the program may ship another file in place of an earlier one, without the records that turned out to be
wrong. Each observation has the number of the shipped file that brought it, unless somebody added it, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from itertools import count

from sqlalchemy import Connection, delete, insert, select, update

from knowledge.domain.observation import PUBLISHED_BLOCKS
from knowledge.store import tables
from knowledge.store.ingest import add_shipped_lines
from knowledge.store.removal import delete_observations, delete_unused
from knowledge.store.shipped_files import ShippedFile

_UNRECORDED = 0
"""Number of observations that an earlier program may have brought, which did not record it."""


def update_shipped_rows(connection: Connection, files: Collection[ShippedFile]) -> None:
    """Import the files that are not imported yet, and delete what only files brought that do not ship any more.

    If all files are imported, nothing is deleted: an older version of the program uses a knowledge base as a newer one
    left it.

    Args:
        connection: Connection that holds the write lock.
        files: All files that ship with the program.
    """
    table = tables.shipped_file
    stored = {row.sha256: row for row in connection.execute(select(table))}
    new = [file for file in files if file.sha256 not in stored]
    if not new:
        return
    shipping = {file.sha256 for file in files}
    no_longer_shipped = [row.number for row in stored.values() if row.sha256 not in shipping and row.number is not None]
    if any(row.number is None for row in stored.values()):
        _mark_unrecorded(connection, files)
        no_longer_shipped.append(_UNRECORDED)
    shipped = tables.observation.c.shipped
    deleted = delete_observations(connection, shipped.in_(no_longer_shipped)) if no_longer_shipped else frozenset()
    numbers = _number_files(connection, {row.sha256: (row.name, row.number) for row in stored.values()}, new)
    add_shipped_lines(connection, ((numbers[file.sha256], file.lines()) for file in new))
    if deleted:
        # They may be in a file that was imported before, too. Blocks that the user removed do not come back.
        old = ((numbers[file.sha256], file.lines()) for file in files if file.sha256 in stored)
        add_shipped_lines(connection, old, only=deleted)
        delete_unused(connection)


def _number_files(
    connection: Connection, stored: Mapping[str, tuple[str, int | None]], new: Collection[ShippedFile]
) -> dict[str, int]:
    """Record the new files, and numbers for those that have none; return the number of each, by its hash."""
    table = tables.shipped_file
    numbers = {sha256: number for sha256, (_, number) in stored.items() if number is not None}
    names = {sha256: name for sha256, (name, _) in stored.items()} | {file.sha256: file.name for file in new}
    missing = sorted(names.keys() - numbers.keys())
    numbers |= zip(missing, count(max(numbers.values(), default=_UNRECORDED) + 1), strict=False)
    connection.execute(delete(table).where(table.c.sha256.in_(missing)))
    rows = [{"sha256": sha256, "name": names[sha256], "number": numbers[sha256]} for sha256 in missing]
    connection.execute(insert(table), rows)
    return numbers


def _mark_unrecorded(connection: Connection, files: Collection[ShippedFile]) -> None:
    """Mark the published results of a knowledge base of an earlier program that a shipped file may have brought.

    These are all of the blocks that the files contain, apart from those that the service received. Measurements are not
    marked: a user's own ones may be in a block of the same name.
    """
    entries = (json.loads(line) for file in files for line in file.lines())
    blocks = {entry["record"]["block"] for entry in entries if entry["kind"] == "observation"}
    names = {name for name in blocks if name.startswith(PUBLISHED_BLOCKS)}
    table, block = tables.observation, tables.block
    own = select(block.c.name).where(block.c.name.in_(sorted(names)), block.c.source == "")
    connection.execute(update(table).where(table.c.block.in_(own)).values(shipped=_UNRECORDED))
