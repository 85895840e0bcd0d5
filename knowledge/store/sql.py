"""The knowledge base in a SQL database: SQLite or PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, func, select
from sqlalchemy.exc import SQLAlchemyError

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.exchange.records import hardware_from, observation_from, stack_from
from knowledge.store import tables
from knowledge.store.base import Content, Ingest, KnowledgeBaseError

_BATCH = 500


class SqlKnowledgeBase:
    """A knowledge base over one database engine; see :mod:`knowledge.store.base` for the contract."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(writes=True)

    def add(self, observations: Iterable[Observation]) -> Ingest:
        """Store observations in one transaction."""
        added = known = 0
        iterator = iter(observations)
        try:
            with self._writing.begin() as connection:
                while batch := list(islice(iterator, _BATCH)):
                    fresh = self._add_batch(connection, batch)
                    added += fresh
                    known += len(batch) - fresh
        except SQLAlchemyError as error:
            raise self._failure("written", error) from None
        return Ingest(added=added, known=known)

    def observations(
        self, *, frameworks: Iterable[str] | None = None, block: str | None = None
    ) -> Iterator[Observation]:
        """Yield observations in order of block, round, slot and indicator."""
        table = tables.observation
        query = select(table.c.document, table.c.stack_id, table.c.hardware_id).order_by(
            table.c.block, table.c.round, table.c.slot, table.c.indicator, table.c.id
        )
        if frameworks is not None:
            query = query.where(table.c.framework.in_(sorted(frameworks)))
        if block is not None:
            query = query.where(table.c.block == block)
        stacks: dict[str, Stack] = {}
        machines: dict[str, HardwareProfile] = {}
        try:
            with self._engine.connect() as connection:
                for document, stack_id, hardware_id in connection.execute(query):
                    if stack_id not in stacks:
                        stacks[stack_id] = stack_from(_document(connection, tables.stack, stack_id))
                    if hardware_id not in machines:
                        machines[hardware_id] = hardware_from(_document(connection, tables.hardware, hardware_id))
                    yield observation_from(json.loads(document), stack=stacks[stack_id], hardware=machines[hardware_id])
        except SQLAlchemyError as error:
            raise self._failure("read", error) from None

    def content(self) -> Content:
        """Count what is there."""
        table = tables.observation
        name = table.c.indicator + " " + table.c.backend + "/" + table.c.device
        try:
            with self._engine.connect() as connection:

                def count(of: Table) -> int:
                    return int(connection.execute(select(func.count()).select_from(of)).scalar_one())

                by_status = connection.execute(
                    select(table.c.status, func.count()).group_by(table.c.status).order_by(table.c.status)
                )
                by_indicator = connection.execute(select(name, func.count()).group_by(name).order_by(name))
                blocks = connection.execute(select(func.count(table.c.block.distinct()))).scalar_one()
                return Content(
                    address=self._engine.url.render_as_string(hide_password=True),
                    revision=tables.HEAD,
                    observations=tuple((str(s), int(n)) for s, n in by_status),
                    stacks=count(tables.stack),
                    hardware=count(tables.hardware),
                    blocks=int(blocks),
                    indicators=tuple((str(i), int(n)) for i, n in by_indicator),
                )
        except SQLAlchemyError as error:
            raise self._failure("read", error) from None

    def has_shipped(self, sha256: str) -> bool:
        """Whether a file of shipped observations was taken in already."""
        query = select(tables.shipped_file.c.sha256).where(tables.shipped_file.c.sha256 == sha256)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def note_shipped(self, sha256: str, name: str) -> None:
        """Remember that a file of shipped observations was taken in."""
        with self._writing.begin() as connection:
            self._insert(connection, tables.shipped_file, [{"sha256": sha256, "name": name}])

    def close(self) -> None:
        """Give the connection back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        """Return the knowledge base itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _add_batch(self, connection: Connection, batch: list[Observation]) -> int:
        stacks: dict[str, Stack] = {o.stack.identity: o.stack for o in batch}
        machines: dict[str, HardwareProfile] = {o.hardware.identity: o.hardware for o in batch}
        self._insert(
            connection,
            tables.hardware,
            [
                {"id": i, "microarchitecture": m.cpu.microarchitecture, "document": canonical_json(m.record())}
                for i, m in sorted(machines.items())
            ],
        )
        self._insert(
            connection,
            tables.stack,
            [
                {"id": i, "python": s.python, "platform": s.platform, "document": canonical_json(s.record())}
                for i, s in sorted(stacks.items())
            ],
        )
        packages = [
            {"stack_id": i, "name": p.name, "version": p.version} for i, s in sorted(stacks.items()) for p in s.packages
        ]
        self._insert(connection, tables.stack_package, packages)
        return self._insert(connection, tables.observation, [_row(o) for o in batch])

    def _insert(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
        """Insert rows that are not there yet, and return how many were not."""
        # Sorted by key: two writers that lock the same rows in the same order cannot deadlock.
        keys = [column.name for column in table.primary_key]
        rows = sorted({tuple(row[k] for k in keys): row for row in rows}.values(), key=lambda r: [r[k] for k in keys])
        inserted = 0
        # Loading both dialects takes longer than reading what advice needs.
        from sqlalchemy.dialects import postgresql, sqlite

        insert = postgresql.insert if self._engine.dialect.name == "postgresql" else sqlite.insert
        for start in range(0, len(rows), _BATCH):
            # `ON CONFLICT DO NOTHING` lets the database decide, so that writers cannot race each other.
            statement = insert(table).values(rows[start : start + _BATCH]).on_conflict_do_nothing()
            inserted += len(connection.execute(statement.returning(table.primary_key.columns.values()[0])).all())
        return inserted

    def _failure(self, verb: str, error: SQLAlchemyError) -> KnowledgeBaseError:
        address = self._engine.url.render_as_string(hide_password=True)
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        return KnowledgeBaseError(
            f"the knowledge base `{address}` could not be {verb}: {cause}",
            hint="check that it is not read-only, locked or full; nothing was half written",
        )


def _document(connection: Connection, table: Table, identity: str) -> Any:
    return json.loads(connection.execute(select(table.c.document).where(table.c.id == identity)).scalar_one())


def _row(observation: Observation) -> dict[str, Any]:
    return {
        "id": observation.identity,
        "indicator": observation.indicator.name,
        "backend": observation.indicator.backend,
        "framework": observation.framework,
        "device": observation.indicator.device,
        "stack_id": observation.stack.identity,
        "hardware_id": observation.hardware.identity,
        "block": observation.block,
        "round": observation.round,
        "slot": observation.slot,
        "reference": observation.reference,
        "status": observation.status,
        "started_at": observation.started_at,
        "median_seconds": observation.median,
        "document": canonical_json(observation.record()),
    }
