"""Rows into tables, many at a time, each once: how SQLite and PostgreSQL do it fastest."""

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
"""Values of one row, in order of the table's columns."""


def add_observations(
    connection: Connection, observations: Iterable[Observation], *, source: str = ""
) -> tuple[int, int]:
    """Insert what is not there yet, and return how many observations were new and how many known.

    The caller holds the database's writing lock (see :mod:`knowledge.store.engine`), so that what is looked up stays.
    """
    iterator = iter(observations)
    fresh: dict[str, list[str]] = defaultdict(list)
    stored: set[str] = set()
    added = total = 0
    while batch := list(islice(iterator, _BATCH)):
        _add_stacks_and_machines(connection, batch, stored)
        rows = {row[0]: row for row in map(_row, batch)}
        missing = sorted(absent(connection, tables.observation, rows))
        _insert(connection, tables.observation, [rows[identity] for identity in missing])
        for identity in missing:
            fresh[rows[identity][_COLUMNS.index("block")]].append(identity)
        added += len(missing)
        total += len(batch)
    _count_blocks(connection, fresh, source)
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
    """Insert the stacks and machines that are not there; ``stored`` remembers which need no look."""
    stacks: dict[str, Stack] = {o.stack.identity: o.stack for o in batch}
    machines = _described(batch, stored)
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


def _described(batch: Sequence[Observation], stored: set[str]) -> dict[str, tuple[str, str]]:
    """Return microarchitecture and document of each machine.

    A name is no part of a machine's identity. Of several, the first in order of the documents stays, so that it does
    not matter which came first.
    """
    found: dict[str, tuple[str, str]] = {}
    for machine in {(o.hardware.identity, o.hardware.name): o.hardware for o in batch}.values():
        if f"{machine.identity} {machine.name}" not in stored:
            described = machine.cpu.microarchitecture, canonical_json(machine.record())
            found[machine.identity] = min(described, found.get(machine.identity, described))
    return found


def _rename(connection: Connection, machines: dict[str, tuple[str, str]]) -> None:
    """Keep the first of two documents of a machine that differ in what is no part of its identity."""
    table = tables.hardware
    known = connection.execute(select(table.c.id, table.c.document).where(table.c.id.in_(sorted(machines)))).all()
    for identity, document in known:
        # Compared here: databases order text each in their own way.
        if machines[identity][1] < document:
            connection.execute(update(table).where(table.c.id == identity).values(document=machines[identity][1]))


def absent(connection: Connection, table: Table, identities: Iterable[str]) -> set[str]:
    """Return which identities a table does not have."""
    asked = list(identities)
    if not asked:
        return set()
    if connection.dialect.name == "postgresql":
        # One array instead of thousands of parameters.
        query = f"SELECT id FROM {table.name} WHERE id = ANY(%s)"
        found = connection.exec_driver_sql(query, (asked,))
    else:
        marks = ",".join("?" * len(asked))
        found = connection.exec_driver_sql(f"SELECT id FROM {table.name} WHERE id IN ({marks})", tuple(asked))
    return set(asked) - {row[0] for row in found}


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


def _count_blocks(connection: Connection, fresh: dict[str, list[str]], source: str) -> None:
    """Add new observations, by block, to the blocks' counts and digests; a new block is its source's."""
    table = tables.block
    known = {
        row.name: row
        for row in connection.execute(select(table).where(table.c.name.in_(sorted(fresh))) if fresh else select(table))
    }
    changed = [
        {
            "name": name,
            "observations": len(ids) + (known[name].observations if name in known else 0),
            "digest": combine(known[name].digest if name in known else EMPTY, ids),
        }
        for name, ids in sorted(fresh.items())
    ]
    if new := [{**row, "source": source} for row in changed if row["name"] not in known]:
        connection.execute(insert(table), new)
    if old := [{**row, "key": row["name"]} for row in changed if row["name"] in known]:
        statement = update(table).where(table.c.name == bindparam("key"))
        statement = statement.values(observations=bindparam("observations"), digest=bindparam("digest"))
        connection.execute(statement, old)
