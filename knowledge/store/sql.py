"""The knowledge base in a SQL database: SQLite or PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select
from sqlalchemy.exc import SQLAlchemyError

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.exchange.records import hardware_from, observation_from, stack_from
from knowledge.store import tables
from knowledge.store.base import Block, Content, Ingest, KnowledgeBaseError
from knowledge.store.checking import find_damages
from knowledge.store.digest import EMPTY, combine
from knowledge.store.writing import add_observations


class SqlKnowledgeBase:
    """A knowledge base over one database engine; see :mod:`knowledge.store.base` for the contract."""

    def __init__(self, engine: Engine, *, writable: bool = True) -> None:
        self._engine = engine
        self._writing = engine.execution_options(writes=True)
        self._writable = writable

    @property
    def address(self) -> str:
        """Where it is, without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    def add(self, observations: Iterable[Observation]) -> Ingest:
        """Store observations in one transaction."""
        with self._write() as connection:
            added, known = add_observations(connection, observations)
        return Ingest(added=added, known=known)

    def observations(
        self,
        *,
        frameworks: Iterable[str] | None = None,
        block: str | None = None,
        indicator: str | None = None,
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
        if indicator is not None:
            query = query.where(table.c.indicator == indicator)
        stacks: dict[str, Stack] = {}
        machines: dict[str, HardwareProfile] = {}
        with self._read() as connection:
            for document, stack_id, hardware_id in connection.execute(query):
                if stack_id not in stacks:
                    stacks[stack_id] = stack_from(_document(connection, tables.stack, stack_id))
                if hardware_id not in machines:
                    machines[hardware_id] = hardware_from(_document(connection, tables.hardware, hardware_id))
                yield observation_from(json.loads(document), stack=stacks[stack_id], hardware=machines[hardware_id])

    def blocks(self) -> tuple[Block, ...]:
        """Return what blocks there are, by name."""
        table = tables.block
        with self._read() as connection:
            rows = connection.execute(select(table)).all()
        # Databases sort text each in their own way.
        return tuple(Block(name=n, observations=o, digest=d) for n, o, d in sorted(map(tuple, rows)))

    def remove(self, blocks: Collection[str]) -> int:
        """Remove whole blocks in one transaction, and return how many observations went."""
        kept = tables.observation
        with self._write() as connection:
            gone = int(connection.execute(delete(kept).where(kept.c.block.in_(sorted(blocks)))).rowcount)
            connection.execute(delete(tables.block).where(tables.block.c.name.in_(sorted(blocks))))
            used = select(kept.c.stack_id)
            connection.execute(delete(tables.stack_package).where(tables.stack_package.c.stack_id.not_in(used)))
            connection.execute(delete(tables.stack).where(tables.stack.c.id.not_in(used)))
            machines = select(kept.c.hardware_id)
            connection.execute(delete(tables.hardware).where(tables.hardware.c.id.not_in(machines)))
            connection.execute(delete(tables.derived))
        return gone

    def damages(self) -> Iterator[str]:
        """Read everything, and tell one by one what is not as it was stored."""
        with self._read() as connection:
            yield from find_damages(connection)

    def recall(self, kind: str, seen: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the derived values of a kind by key, of those keys that were worked out of the state that is asked."""
        table = tables.derived
        asked = dict(seen)
        query = select(table.c.key, table.c.seen, table.c.document).where(table.c.kind == kind)
        if len(asked) == 1:
            query = query.where(table.c.key == next(iter(asked)))
        with self._read() as connection:
            rows = connection.execute(query).all()
        return {key: json.loads(document) for key, digest, document in rows if asked.get(key) == digest}

    def remember(self, kind: str, values: Iterable[tuple[str, str, Any]]) -> None:
        """Leave derived values, by key and digest of what they saw; nothing where it cannot be written."""
        rows = [{"kind": kind, "key": k, "seen": s, "document": canonical_json(v)} for k, s, v in values]
        if not (rows and self._writable):
            return
        table = tables.derived
        # Whoever worked them out has them: a full disk or a busy writer costs only the time to do so again.
        with suppress(KnowledgeBaseError), self._write() as connection:
            gone = delete(table).where(table.c.kind == kind, table.c.key.in_([row["key"] for row in rows]))
            connection.execute(gone)
            connection.execute(insert(table), rows)

    def content(self) -> Content:
        """Count what is there."""
        table = tables.observation
        name = table.c.indicator + " " + table.c.backend + "/" + table.c.device
        blocks = self.blocks()
        digest = EMPTY
        for block in blocks:
            digest = combine(digest, [block.digest])
        with self._read() as connection:

            def count(of: Table) -> int:
                return int(connection.execute(select(func.count()).select_from(of)).scalar_one())

            by_status = connection.execute(select(table.c.status, func.count()).group_by(table.c.status)).all()
            by_indicator = connection.execute(select(name, func.count()).group_by(name)).all()
            return Content(
                address=self.address,
                revision=tables.HEAD,
                digest=digest,
                observations=tuple(sorted((str(s), int(n)) for s, n in by_status)),
                stacks=count(tables.stack),
                hardware=count(tables.hardware),
                blocks=len(blocks),
                indicators=tuple(sorted((str(i), int(n)) for i, n in by_indicator)),
            )

    def shipped(self) -> frozenset[str]:
        """Return the hashes of the files of shipped observations that were taken in already."""
        with self._read() as connection:
            return frozenset(connection.execute(select(tables.shipped_file.c.sha256)).scalars())

    def add_shipped(self, sha256: str, name: str, observations: Iterable[Observation]) -> None:
        """Take in a file of shipped observations, and remember that in the same transaction."""
        table = tables.shipped_file
        with self._write() as connection:
            # Another process may have done it while this one waited for its turn.
            if connection.execute(select(table.c.sha256).where(table.c.sha256 == sha256)).first() is None:
                add_observations(connection, observations)
                connection.execute(insert(table), [{"sha256": sha256, "name": name}])

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

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """Begin a transaction with the database's writing lock."""
        if not self._writable:
            raise KnowledgeBaseError(
                f"the knowledge base `{self.address}` is read-only", hint="name another one with `--knowledge`"
            )
        try:
            with self._writing.begin() as connection:
                yield connection
        except Exception as error:
            # The PostgreSQL driver's own errors pass SQLAlchemy by where rows are copied.
            if isinstance(error, SQLAlchemyError) or _of_driver(error):
                raise self._failure("written", error) from None
            raise

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._failure("read", error) from None

    def _failure(self, verb: str, error: Exception) -> KnowledgeBaseError:
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        return KnowledgeBaseError(
            f"the knowledge base `{self.address}` could not be {verb}: {cause}",
            hint="check that it is reachable, and not read-only, locked or full; nothing was half written",
        )


def _of_driver(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] == "psycopg"


def _document(connection: Connection, table: Table, identity: str) -> Any:
    return json.loads(connection.execute(select(table.c.document).where(table.c.id == identity)).scalar_one())
