"""Bulk insertion of observations that are not stored yet, in the fastest way for SQLite and for PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, bindparam, insert, select, update

from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.store import tables
from knowledge.store.digest import EMPTY, combine

_BATCH = 2000
_COLUMNS = tuple(column.name for column in tables.observation.columns)

Row = tuple[Any, ...]
"""Values of one row, in the order of the table's columns."""


def add_observations(
    connection: Connection, observations: Iterable[Observation], *, source: str = ""
) -> tuple[int, int]:
    """Insert observations that are not stored yet.

    The caller must hold the write lock of the database (see :mod:`knowledge.store.transactions`), so that rows that
    were looked up do not change.

    Returns:
        The number of new observations, and of those that were already stored.
    """
    iterator = iter(observations)
    new_by_block: dict[str, list[str]] = defaultdict(list)
    stored: set[str] = set()
    added = total = 0
    while batch := list(islice(iterator, _BATCH)):
        _add_stacks_and_machines(connection, batch, stored)
        rows = {row[0]: row for row in map(_row, batch)}
        missing = sorted(absent(connection, tables.observation, rows))
        _insert(connection, tables.observation, [rows[identity] for identity in missing])
        for identity in missing:
            new_by_block[rows[identity][_COLUMNS.index("block")]].append(identity)
        added += len(missing)
        total += len(batch)
    _update_blocks(connection, new_by_block, source)
    return added, total - added


def _row(o: Observation) -> Row:
    run = o.indicator
    return (
        o.identity,
        run.name,
        run.backend,
        o.framework,
        run.device,
        o.stack.identity,
        o.hardware.identity,
        o.block,
        o.round,
        o.arm,
        o.reference,
        o.status,
        o.started_at,
        o.median,
        o.document,
    )


def _add_stacks_and_machines(connection: Connection, batch: Sequence[Observation], stored: set[str]) -> None:
    """Insert the stacks and machines that are not stored; ``stored`` caches which are known to be."""
    stacks: dict[str, Stack] = {o.stack.identity: o.stack for o in batch}
    machines = _machine_rows(batch, stored)
    new_machines = sorted(absent(connection, tables.hardware, machines))
    _rename(connection, {i: record for i, record in machines.items() if i not in set(new_machines)})
    new_stacks = sorted(absent(connection, tables.stack, stacks.keys() - stored))
    _insert(
        connection,
        tables.hardware,
        [(i, machines[i][0], machines[i][1]) for i in new_machines],
    )
    _insert(
        connection,
        tables.stack,
        [(i, stacks[i].python, stacks[i].platform, canonical_json(stacks[i].record())) for i in new_stacks],
    )
    packages = {(i, p.name): p.version for i in new_stacks for p in stacks[i].packages}
    _insert(connection, tables.stack_package, [(*key, version) for key, version in sorted(packages.items())])
    stored |= stacks.keys() | {f"{i} {o.hardware.name}" for o in batch for i in [o.hardware.identity]}


def _machine_rows(batch: Sequence[Observation], stored: set[str]) -> dict[str, tuple[str, str]]:
    """Return microarchitecture and document of each machine, by identity.

    The name is not part of a machine's identity. Of several documents of one machine the alphabetically first is
    stored, so that the result does not depend on the order of insertion.
    """
    rows: dict[str, tuple[str, str]] = {}
    for machine in {(o.hardware.identity, o.hardware.name): o.hardware for o in batch}.values():
        if f"{machine.identity} {machine.name}" not in stored:
            row = machine.cpu.microarchitecture, canonical_json(machine.record())
            rows[machine.identity] = min(row, rows.get(machine.identity, row))
    return rows


def _rename(connection: Connection, machines: dict[str, tuple[str, str]]) -> None:
    """Replace the document of a machine by an alphabetically smaller one, which has another name."""
    table = tables.hardware
    stored = connection.execute(select(table.c.id, table.c.document).where(table.c.id.in_(sorted(machines)))).all()
    for identity, document in stored:
        # Compared here: databases sort text differently.
        if machines[identity][1] < document:
            connection.execute(update(table).where(table.c.id == identity).values(document=machines[identity][1]))


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


def _update_blocks(connection: Connection, new_by_block: dict[str, list[str]], source: str) -> None:
    """Update the counts and digests of blocks with new observations; a new block belongs to the source."""
    table = tables.block
    stored = {
        row.name: row
        for row in connection.execute(
            select(table).where(table.c.name.in_(sorted(new_by_block))) if new_by_block else select(table)
        )
    }
    changed = [
        {
            "name": name,
            "observations": len(ids) + (stored[name].observations if name in stored else 0),
            "digest": combine(stored[name].digest if name in stored else EMPTY, ids),
        }
        for name, ids in sorted(new_by_block.items())
    ]
    if new := [{**row, "source": source} for row in changed if row["name"] not in stored]:
        connection.execute(insert(table), new)
    if old := [{**row, "key": row["name"]} for row in changed if row["name"] in stored]:
        statement = update(table).where(table.c.name == bindparam("key"))
        statement = statement.values(observations=bindparam("observations"), digest=bindparam("digest"))
        connection.execute(statement, old)
