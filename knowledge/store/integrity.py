"""Integrity check of a knowledge base: every record against its hash, and the summaries against the records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, select

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import hash_of_text
from knowledge.domain.stack import Stack
from knowledge.exchange.files import check_observation, checked, first_line, observation_from
from knowledge.records import value_from
from knowledge.store import tables
from knowledge.store.coverage import KindCounts, blocks_with_other_counts
from knowledge.store.ingest import COLUMNS, row_of
from knowledge.store.state_hash import EMPTY, combine


def find_damage(connection: Connection) -> Iterator[str]:
    """Yield one sentence for each damaged record."""
    if connection.dialect.name == "sqlite":
        for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(20)"):
            if line != "ok":
                yield f"the file is damaged: {line}"
    stacks: dict[str, Any] = {}
    machines: dict[str, Any] = {}
    yield from _read_documents(connection, tables.stack, stacks, Stack)
    yield from _read_documents(connection, tables.hardware, machines, HardwareProfile)
    digests: dict[str, str] = defaultdict(lambda: EMPTY)
    counts: dict[str, int] = defaultdict(int)
    coverage = KindCounts()
    for row in connection.execute(select(tables.observation)):
        digests[row.block] = combine(digests[row.block], [row.id])
        counts[row.block] += 1
        sentences = list(_check(dict(row._mapping), stacks, machines))
        yield from sentences
        if not sentences:
            coverage.add([row])
    recorded = {row.name: (row.observations, row.digest) for row in connection.execute(select(tables.block))}
    for name in sorted(recorded.keys() | counts.keys()):
        if recorded.get(name) != (counts.get(name, 0), digests.get(name, EMPTY)):
            count = recorded.get(name, (0,))[0]
            yield f"block `{name}` is recorded with {count} observations, and has {counts.get(name, 0)}"
    for name in blocks_with_other_counts(connection, coverage):
        yield f"the coverage of block `{name}` does not match its intact observations"


def _read_documents(connection: Connection, table: Table, values: dict[str, Any], kind: Any) -> Iterator[str]:
    """Read the documents of a table into ``values``; yield a sentence for each damaged document."""
    for identity, document in connection.execute(select(table.c.id, table.c.document)):
        try:
            values[identity] = checked(value_from(kind, json.loads(document)), identity)
        except ValueError as error:
            yield f"{table.name} `{identity[:12]}`: {first_line(error)}"


def _check(row: dict[str, Any], stacks: dict[str, Any], machines: dict[str, Any]) -> Iterator[str]:
    where = f"observation `{row['id'][:12]}` of block `{row['block']}`"
    if row["stack_id"] not in stacks or row["hardware_id"] not in machines:
        yield f"{where}: its stack or its machine is missing or damaged"
        return
    if hash_of_text(row["document"]) != row["id"]:
        yield f"{where}: its content does not match its hash"
        return
    try:
        record = json.loads(row["document"])
        o = observation_from(record, stack=stacks[row["stack_id"]], hardware=machines[row["hardware_id"]])
        check_observation(checked(o, row["id"]))
    except ValueError as error:
        yield f"{where}: {first_line(error)}"
        return
    # The last column is not a copy of the record: the number of the shipped file.
    for column, value in zip(COLUMNS[:-1], row_of(row["id"], record, row["document"])[:-1], strict=True):
        if row[column] != value:
            yield f"{where}: column `{column}` is `{row[column]}`, but the record has `{value}`"
