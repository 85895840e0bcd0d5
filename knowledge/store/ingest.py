"""Bulk insertion of observations that are not stored yet, in the fastest way for SQLite and for PostgreSQL."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, select, update

from knowledge.domain.identity import canonical_json, hash_of_text
from knowledge.domain.observation import Observation
from knowledge.store import tables
from knowledge.store.coverage import KindCounts, add_to_coverage
from knowledge.store.removal import change_blocks, forget_removal

_BATCH = 2000
COLUMNS = tuple(column.name for column in tables.observation.columns)
"""Columns of an observation; the last one is the number of the shipped file."""
_BLOCK = COLUMNS.index("block")

Row = tuple[Any, ...]
"""Values of one row, in the order of the table's columns."""


class _StackRows(NamedTuple):
    """Row of a stack, and names and versions of its packages."""

    row: Row
    packages: tuple[tuple[str, str], ...]


_Entry = tuple[Row, _StackRows, Row]
"""Row of an observation, with the rows of its stack and its machine."""


def add_observations(
    connection: Connection, observations: Iterable[Observation], *, source: str = ""
) -> tuple[int, int]:
    """Insert observations that are not stored yet.

    The caller must hold the write lock of the database (see :mod:`knowledge.store.transactions`), so that rows that
    were looked up do not change.

    Without a source, they are the user's own: they stay when the program no longer ships them, and their blocks no
    longer count as removed. What others deliver does not change this, because they deliver shipped observations, too.

    Returns:
        The number of new observations, and of those that were already stored.
    """
    return _add(connection, _entries(observations), source, own=not source)


def add_shipped_lines(
    connection: Connection, files: Iterable[tuple[int, Iterable[str]]], *, without: Collection[str] = ()
) -> tuple[int, int]:
    """Insert the observations in shipped files that are not stored yet.

    The files are parts of the program, written by :func:`knowledge.exchange.files.write_observations`: their checksums
    (gzip) detect damage, and tests check each record and hash. So the records are stored as they are, which is faster.

    Args:
        connection: Connection that holds the write lock.
        files: Number and lines of each file.
        without: Names of the blocks to leave out.

    Returns:
        The number of new observations, and of those that were already stored.
    """
    entries = (entry for number, lines in files for entry in _shipped_entries(lines, number))
    return _add(connection, (entry for entry in entries if entry[0][_BLOCK] not in without), "", own=False)


def _shipped_entries(lines: Iterable[str], number: int) -> Iterator[_Entry]:
    # Twice as fast as the module json.
    from pydantic_core import from_json

    stacks: dict[str, _StackRows] = {}
    machines: dict[str, Row] = {}
    for line in lines:
        entry = from_json(line)
        record = entry["record"]
        document = line.partition('"record":')[2][:-1]
        # Only observations may have no hash in the file.
        identity = entry.get("id") or hash_of_text(document)
        if entry["kind"] == "stack":
            stacks[identity] = _stack_rows(identity, record, document)
        elif entry["kind"] == "hardware":
            machines[identity] = _machine_row(identity, record, document)
        else:
            row = row_of(identity, record, document, shipped=number)
            yield row, stacks[record["stack"]], machines[record["hardware"]]


def _add(connection: Connection, entries: Iterable[_Entry], source: str, *, own: bool) -> tuple[int, int]:
    """Insert rows that are not stored yet, with their stacks and machines; return the numbers of new and old ones."""
    iterator = iter(entries)
    new_by_block: dict[str, list[str]] = defaultdict(list)
    counts = KindCounts()
    stored: set[str] = set()
    # Without stored observations, only those of this call need to be looked up.
    has_rows = connection.execute(select(tables.observation.c.id).limit(1)).first() is not None
    added_here: set[str] | None = None if has_rows else set()
    added = total = 0
    while batch := list(islice(iterator, _BATCH)):
        stacks = {stack.row[0]: stack for _, stack, _ in batch}
        _add_stacks_and_machines(connection, stacks, {machine for _, _, machine in batch}, stored)
        rows = {row[0]: row for row, _, _ in batch}
        if added_here is None:
            missing = sorted(absent(connection, tables.observation, rows))
            if own:
                mark_as_own(connection, rows.keys() - set(missing))
        else:
            missing = sorted(rows.keys() - added_here)
            added_here.update(missing)
        new = [rows[identity] for identity in missing]
        _insert(connection, tables.observation, new)
        counts.add(new)
        for identity in missing:
            new_by_block[rows[identity][_BLOCK]].append(identity)
        added += len(missing)
        total += len(batch)
    change_blocks(connection, new_by_block, source=source)
    add_to_coverage(connection, counts)
    if own:
        forget_removal(connection, new_by_block)
    return added, total - added


def mark_as_own(connection: Connection, identities: Iterable[str]) -> None:
    """Record that the user added stored observations, too, not only a shipped file or another source.

    Their blocks no longer count as removed.
    """
    table = tables.observation
    remaining = iter(sorted(identities))
    while batch := list(islice(remaining, _BATCH)):
        condition = table.c.id.in_(batch), table.c.shipped.is_not(None)
        connection.execute(update(table).where(*condition).values(shipped=None))
        forget_removal(connection, select(table.c.block).where(table.c.id.in_(batch)))


def _entries(observations: Iterable[Observation]) -> Iterator[_Entry]:
    stacks: dict[str, _StackRows] = {}
    machines: dict[tuple[str, str], Row] = {}
    for o in observations:
        stack, hardware = o.stack, o.hardware
        machine = hardware.identity, hardware.name
        if stack.identity not in stacks:
            record = stack.record()
            stacks[stack.identity] = _stack_rows(stack.identity, record, canonical_json(record))
        if machine not in machines:
            record = hardware.record()
            machines[machine] = _machine_row(hardware.identity, record, canonical_json(record))
        yield row_of(o.identity, o.record(), o.document), stacks[stack.identity], machines[machine]


def row_of(identity: str, record: Mapping[str, Any], document: str, *, shipped: int | None = None) -> Row:
    """Return the row of an observation, by its record; ``shipped`` is the number of the shipped file with it."""
    run, samples = record["indicator"], record["samples"]
    return (
        identity,
        run["name"],
        run["backend"],
        record["framework"],
        run["device"],
        record["stack"],
        record["hardware"],
        record["block"],
        record["round"],
        record["slot"],
        record["reference"],
        record["status"],
        record["started_at"],
        statistics.median(samples) if samples else None,
        document,
        shipped,
    )


def _stack_rows(identity: str, record: Mapping[str, Any], document: str) -> _StackRows:
    row = identity, record["python"], record["platform"], document
    return _StackRows(row, tuple((package["name"], package["version"]) for package in record["packages"]))


def _machine_row(identity: str, record: Mapping[str, Any], document: str) -> Row:
    return identity, record["cpu"]["microarchitecture"], document


def _add_stacks_and_machines(
    connection: Connection, stacks: Mapping[str, _StackRows], machines: Collection[Row], stored: set[str]
) -> None:
    """Insert the stacks and machines that are not stored.

    Args:
        connection: Connection that holds the write lock.
        stacks: The stacks, by identity.
        machines: Rows of the machines.
        stored: Cache of the identities of stacks, and the documents of machines, that are known to be stored.
    """
    documents = _first_documents(row for row in machines if row[2] not in stored)
    new_machines = sorted(absent(connection, tables.hardware, documents))
    _rename(connection, {i: row[2] for i, row in documents.items() if i not in set(new_machines)})
    new_stacks = sorted(absent(connection, tables.stack, stacks.keys() - stored))
    _insert(connection, tables.hardware, [documents[i] for i in new_machines])
    _insert(connection, tables.stack, [stacks[i].row for i in new_stacks])
    packages = {(i, name): version for i in new_stacks for name, version in stacks[i].packages}
    _insert(connection, tables.stack_package, [(*key, version) for key, version in sorted(packages.items())])
    stored |= stacks.keys() | {row[2] for row in machines}


def _first_documents(machines: Iterable[Row]) -> dict[str, Row]:
    """Return the row of each machine, by identity.

    The name is not part of a machine's identity. Of several documents of one machine the alphabetically first is
    stored, so that the result does not depend on the order of insertion.
    """
    rows: dict[str, Row] = {}
    for row in machines:
        rows[row[0]] = min(row, rows.get(row[0], row))
    return rows


def _rename(connection: Connection, machines: Mapping[str, str]) -> None:
    """Replace the document of a machine by an alphabetically smaller one, which has another name."""
    table = tables.hardware
    stored = connection.execute(select(table.c.id, table.c.document).where(table.c.id.in_(sorted(machines)))).all()
    for identity, document in stored:
        # Compared here: databases sort text differently.
        if machines[identity] < document:
            connection.execute(update(table).where(table.c.id == identity).values(document=machines[identity]))


def absent(connection: Connection, table: Table, identities: Iterable[str]) -> set[str]:
    """Return the identities that are not in a table."""
    candidates = list(identities)
    if not candidates:
        return set()
    if connection.dialect.name == "postgresql":
        # One array instead of thousands of parameters.
        query = f"SELECT id FROM {table.name} WHERE id = ANY(%s)"
        rows = connection.exec_driver_sql(query, (candidates,))
    else:
        marks = ",".join("?" * len(candidates))
        rows = connection.exec_driver_sql(f"SELECT id FROM {table.name} WHERE id IN ({marks})", tuple(candidates))
    return set(candidates) - {row[0] for row in rows}


def _insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    if not rows:
        return
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return
    marks = ",".join("?" * len(table.columns))
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", list(rows))
