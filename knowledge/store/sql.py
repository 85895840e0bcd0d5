"""The knowledge base in a SQL database: SQLite or PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from string import hexdigits
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import canonical_json, hash_of_text
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack
from knowledge.exchange.files import observation_from
from knowledge.records import value_from
from knowledge.store import tables
from knowledge.store.base import (
    Content,
    Coverage,
    IngestResult,
    KnowledgeBase,
    KnowledgeBaseError,
    QuarantinedObservation,
    Source,
    StoredBlock,
)
from knowledge.store.coverage import label_of, read_coverage, stored_label
from knowledge.store.ingest import absent, add_observations, mark_as_own
from knowledge.store.integrity import find_damage
from knowledge.store.quarantine import (
    delete_from_quarantine,
    quarantine_observations,
    read_quarantine,
)
from knowledge.store.removal import delete_observations, delete_unused, record_removal
from knowledge.store.shipped_files import ShippedFile, is_current, update_shipped_rows
from knowledge.store.sqlite_file import FileState, checkpoint, path_of
from knowledge.store.state_hash import EMPTY, combine
from knowledge.store.tokens import Token, new_token, timestamp
from knowledge.store.transactions import FILE_STATE, GRANT_HINT, for_reading, for_writing, lacks_rights

_T = TypeVar("_T")
_BATCH = 2000
_SHORTEST_PREFIX = 8
_COLUMNS = tables.observation.c
_OBSERVATIONS = select(_COLUMNS.document, _COLUMNS.stack_id, _COLUMNS.hardware_id)
_FAILURE_HINT = "check that the database is reachable, writable, unlocked and not full"


class SqlKnowledgeBase(KnowledgeBase):
    """A knowledge base over one database engine; see :mod:`knowledge.store.base` for the contract."""

    def __init__(self, engine: Engine, *, writable: bool = True) -> None:
        self._engine = engine
        self._reading = for_reading(engine)
        self._writing = for_writing(engine)
        self._file = path_of(engine.url) if engine.dialect.name == "sqlite" else None
        self._writable = writable

    @property
    def address(self) -> str:
        """Address of the database, without the password."""
        return self._engine.url.render_as_string(hide_password=True)

    def add(
        self,
        observations: Iterable[Observation],
        *,
        source: str = "",
        quarantine: Iterable[QuarantinedObservation] = (),
        own: Collection[str] = (),
    ) -> IngestResult:
        with self._write() as connection:
            mark_as_own(connection, own)
            added, duplicates = add_observations(connection, observations, source=source)
            quarantine_observations(connection, quarantine)
        return IngestResult(added=added, known=duplicates)

    def known_identities(self, identities: Iterable[str]) -> frozenset[str]:
        ordered = sorted(set(identities))
        with self._read() as connection:
            stored: set[str] = set()
            for start in range(0, len(ordered), _BATCH):
                batch = ordered[start : start + _BATCH]
                stored |= set(batch) - absent(
                    connection, tables.quarantine, absent(connection, tables.observation, batch)
                )
        return frozenset(stored)

    def machines_of(self, block: str) -> frozenset[str]:
        table = tables.observation
        query = select(table.c.hardware_id).where(table.c.block == block).distinct()
        with self._read() as connection:
            return frozenset(connection.execute(query).scalars())

    def quarantined(self) -> tuple[QuarantinedObservation, ...]:
        with self._read() as connection:
            return tuple(read_quarantine(connection))

    def release(self, identities: Collection[str]) -> IngestResult:
        added = duplicates = 0
        with self._write() as connection:
            for entry in tuple(read_quarantine(connection, identities)):
                new, old = add_observations(connection, [entry.observation], source=entry.source)
                added, duplicates = added + new, duplicates + old
            delete_from_quarantine(connection, identities)
        return IngestResult(added=added, known=duplicates)

    def drop(self, identities: Collection[str]) -> int:
        with self._write() as connection:
            return delete_from_quarantine(connection, identities)

    def sources(self) -> tuple[Source, ...]:
        query = select(tables.quarantine.c.source, func.count()).group_by(tables.quarantine.c.source)
        with self._read() as connection:
            trusts = {str(n): float(t) for n, t in connection.execute(select(tables.source)).all()}
            quarantined = {str(name): int(count) for name, count in connection.execute(query).all()}
            blocks = _blocks(connection)
        return tuple(
            Source(
                name=name,
                trust=trusts.get(name, 1.0),
                blocks=sum(b.source == name for b in blocks),
                observations=sum(b.observations for b in blocks if b.source == name),
                quarantined=quarantined.get(name, 0),
            )
            for name in sorted({*trusts, *quarantined, *(b.source for b in blocks)})
        )

    def trust(self, name: str, trust: float) -> None:
        with self._write() as connection:
            connection.execute(delete(tables.source).where(tables.source.c.name == name))
            connection.execute(insert(tables.source), [{"name": name, "trust": trust}])

    def create_token(self, *, role: str, source: str, days: float | None = None) -> tuple[str, Token]:
        """Create a token for the service; return it, which is not stored and cannot be shown again, and its record."""
        secret, token = new_token(role=role, source=source, days=days)
        with self._write() as connection:
            connection.execute(insert(tables.token), [{**asdict(token), "sha256": hash_of_text(secret)}])
        return secret, token

    def find_token(self, secret: str) -> Token | None:
        """Return the record of a token, or ``None`` if the token is unknown."""
        return next(iter(self._tokens(tables.token.c.sha256 == hash_of_text(secret))), None)

    def token(self, identity: str) -> Token | None:
        """Return the record of a token by its identifier, or ``None`` if there is no such token."""
        return next(iter(self._tokens(tables.token.c.id == identity)), None)

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens of the service, oldest first."""
        return self._tokens()

    def _tokens(self, *conditions: ColumnElement[bool]) -> tuple[Token, ...]:
        table = tables.token
        query = select(table).where(*conditions).order_by(table.c.created_at, table.c.id)
        with self._read() as connection:
            rows = connection.execute(query).all()
        return tuple(Token(**{field.name: getattr(row, field.name) for field in fields(Token)}) for row in rows)

    def revoke_token(self, identity: str) -> None:
        """Revoke a token permanently.

        Raises:
            InputError: If there is no such token.
        """
        table = tables.token
        revoked = update(table).where(table.c.id == identity, table.c.revoked_at.is_(None))
        with self._write() as connection:
            count = connection.execute(revoked.values(revoked_at=timestamp(datetime.now(UTC)))).rowcount
        if not count and identity not in {token.id for token in self.tokens()}:
            raise InputError(f"there is no token `{identity}`", hint="`advisor knowledge token list` lists them")

    def observations(
        self,
        *,
        frameworks: Iterable[str] | None = None,
        block: str | None = None,
        indicator: str | None = None,
        rounds: Collection[int] | None = None,
        arms: Collection[int] | None = None,
        label: str | None = None,
    ) -> Generator[Observation, None, None]:
        table = tables.observation
        query = _OBSERVATIONS.order_by(table.c.block, table.c.round, table.c.slot, table.c.indicator, table.c.id)
        if frameworks is not None:
            query = query.where(table.c.framework.in_(sorted(frameworks)))
        if block is not None:
            query = query.where(table.c.block == block)
        if indicator is not None:
            query = query.where(table.c.indicator == indicator)
        if rounds is not None:
            query = query.where(table.c.round.in_(sorted(rounds)))
        if arms is not None:
            query = query.where(table.c.slot.in_(sorted(arms)))
        if label is not None:
            label, summary = stored_label(label), tables.coverage
            names = select(summary.c.indicator).where(summary.c.label == label)
            names = names if block is None else names.where(summary.c.block == block)
            query = query.where(table.c.indicator.in_(names))
        with self._read() as connection:
            yield from _observations(connection, query, label)

    def find_observation(self, identity: str) -> Observation | None:
        if len(identity) < _SHORTEST_PREFIX or not set(identity) <= set(hexdigits.lower()):
            return None
        column = tables.observation.c.id
        # Of the characters of an identity, none comes after `f`.
        query = _OBSERVATIONS.where(column >= identity, column < f"{identity}g").limit(2)
        with self._read() as connection:
            observations = tuple(_observations(connection, query))
        return observations[0] if len(observations) == 1 else None

    def machine(self, identity: str) -> HardwareProfile | None:
        return next(self._values(tables.hardware, HardwareProfile, tables.hardware.c.id == identity), None)

    def stack(self, identity: str) -> Stack | None:
        return next(self._values(tables.stack, Stack, tables.stack.c.id == identity), None)

    def stacks(self) -> Iterator[Stack]:
        """Yield all measured stacks, ordered by identity."""
        return self._values(tables.stack, Stack)

    def machines(self) -> Iterator[HardwareProfile]:
        """Yield the hardware profiles of all machines with observations, ordered by identity."""
        return self._values(tables.hardware, HardwareProfile)

    def _values(self, table: Table, kind: type[_T], *conditions: ColumnElement[bool]) -> Iterator[_T]:
        query = select(table.c.document).where(*conditions).order_by(table.c.id)
        with self._read() as connection:
            for document in connection.execute(query).scalars():
                yield value_from(kind, json.loads(document))

    def coverage(self, by: Sequence[str], **where: str) -> tuple[Coverage, ...]:
        with self._read() as connection:
            # Sorted here: databases sort text differently.
            return tuple(sorted(read_coverage(connection, by, where), key=lambda entry: entry.key))

    def blocks(self, names: Collection[str] | None = None) -> tuple[StoredBlock, ...]:
        with self._read() as connection:
            return _blocks(connection, names)

    def recent_blocks(self, since: str) -> frozenset[str]:
        table = tables.observation
        query = select(table.c.block).where(table.c.shipped.is_(None), table.c.started_at >= since).distinct()
        with self._read() as connection:
            return frozenset(connection.execute(query).scalars())

    def remove(self, blocks: Collection[str]) -> int:
        with self._write() as connection:
            record_removal(connection, (block.name for block in _blocks(connection, blocks)))
            deleted = delete_observations(connection, tables.observation.c.block.in_(sorted(blocks)))
            delete_unused(connection)
        return len(deleted)

    def find_damage(self) -> Iterator[str]:
        with self._read() as connection:
            yield from find_damage(connection)

    def load_derived(self, kind: str, digests: Iterable[tuple[str, str]]) -> dict[str, Any]:
        table = tables.derived
        expected = dict(digests)
        query = select(table.c.key, table.c.seen, table.c.document).where(table.c.kind == kind)
        if len(expected) == 1:
            query = query.where(table.c.key == next(iter(expected)))
        with self._read() as connection:
            rows = connection.execute(query).all()
        return {key: json.loads(document) for key, digest, document in rows if expected.get(key) == digest}

    def store_derived(self, kind: str, values: Iterable[tuple[str, str, Any]]) -> None:
        rows = [
            {"kind": kind, "key": key, "seen": digest, "document": canonical_json(value)}
            for key, digest, value in values
        ]
        if not (rows and self._writable):
            return
        table = tables.derived
        # It is only a cache: if the disk is full or another writer is busy, the values are computed again later.
        with suppress(KnowledgeBaseError), self._write() as connection:
            connection.execute(delete(table).where(table.c.kind == kind, table.c.key.in_([row["key"] for row in rows])))
            connection.execute(insert(table), rows)

    def content(self) -> Content:
        table = tables.coverage
        name = table.c.indicator + " " + table.c.backend + "/" + table.c.device
        number = func.sum(table.c.observations)
        with self._read() as connection:
            blocks = _blocks(connection)
            digest = EMPTY
            for block in blocks:
                digest = combine(digest, [block.digest])

            def count(counted: Table) -> int:
                return int(connection.execute(select(func.count()).select_from(counted)).scalar_one())

            by_status = connection.execute(select(table.c.status, number).group_by(table.c.status)).all()
            by_indicator = connection.execute(select(name, number).group_by(name)).all()
            return Content(
                address=self.address,
                revision=_revision(connection),
                digest=digest,
                observations=tuple(sorted((str(s), int(n)) for s, n in by_status)),
                stacks=count(tables.stack),
                hardware=count(tables.hardware),
                blocks=len(blocks),
                indicators=tuple(sorted((str(i), int(n)) for i, n in by_indicator)),
            )

    def revision(self) -> str:
        """Return the revision of the tables in the database; fast for any amount of content."""
        with self._read() as connection:
            return _revision(connection)

    def shipped(self) -> frozenset[str]:
        """Return the hashes of the shipped observation files that were imported already."""
        with self._read() as connection:
            return frozenset(connection.execute(select(tables.shipped_file.c.sha256)).scalars())

    def shipped_identities(self) -> frozenset[str]:
        """Return the identities of the observations that only a shipped file brought, not the user."""
        table = tables.observation
        with self._read() as connection:
            return frozenset(connection.execute(select(table.c.id).where(table.c.shipped.is_not(None))).scalars())

    def add_shipped(self, files: Collection[ShippedFile], *, version: int) -> None:
        """Import the shipped observation files; see :func:`knowledge.store.shipped_files.update_shipped_rows`."""
        with self._read() as connection:
            if is_current(connection, files, version=version):
                return
        with self._write() as connection:
            # Another process may have imported them while this one waited for the write lock.
            update_shipped_rows(connection, files, version=version)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """Begin a transaction that holds the write lock of the database."""
        if not self._writable:
            other = "name another one with `--knowledge`"
            hint = f"{other}; {GRANT_HINT}" if self._engine.dialect.name == "postgresql" else other
            raise KnowledgeBaseError(f"the knowledge base `{self.address}` is read-only", hint=hint)
        try:
            with self._writing.begin() as connection:
                yield connection
            if self._file is not None:
                checkpoint(self._engine, self._file)
        except Exception as error:
            # SQLAlchemy does not wrap errors of the driver while rows are copied or while waiting for SQLite's lock.
            driver = type(error).__module__.partition(".")[0]
            if isinstance(error, SQLAlchemyError) or driver in ("psycopg", "sqlite3"):
                raise self._failure("written", error) from None
            raise

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        try:
            with self._reading.connect() as connection:
                yield connection
                state: FileState | None = connection.info.get(FILE_STATE)
                if state is not None:
                    state.check()
        except SQLAlchemyError as error:
            raise self._failure("read", error) from None

    def _failure(self, verb: str, error: Exception) -> KnowledgeBaseError:
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        return KnowledgeBaseError(
            f"the knowledge base `{self.address}` could not be {verb}: {cause}",
            hint=f"{GRANT_HINT if lacks_rights(error) else _FAILURE_HINT}; no partial change was stored",
        )


def _revision(connection: Connection) -> str:
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def _blocks(connection: Connection, names: Collection[str] | None = None) -> tuple[StoredBlock, ...]:
    table, source = tables.block, tables.source
    trust = func.coalesce(source.c.trust, 1.0)
    query = select(table.c.name, table.c.observations, table.c.digest, table.c.source, trust)
    query = query.select_from(table.outerjoin(source, source.c.name == table.c.source))
    if names is not None:
        query = query.where(table.c.name.in_(sorted(names)))
    rows = connection.execute(query).all()
    # Sorted here: databases sort text differently.
    return tuple(
        StoredBlock(name=n, observations=o, digest=d, source=s, trust=t) for n, o, d, s, t in sorted(map(tuple, rows))
    )


def _observations(
    connection: Connection, query: Select[tuple[Any, Any, Any]], label: str | None = None
) -> Iterator[Observation]:
    """Yield the observations of a query of ``_OBSERVATIONS``; with a stored label, only those of such runs."""
    stacks: dict[str, Stack] = {}
    machines: dict[str, HardwareProfile] = {}
    for document, stack_id, hardware_id in connection.execute(query):
        if label is not None and label_of(document) != label:
            continue
        if stack_id not in stacks:
            stacks[stack_id] = value_from(Stack, _document(connection, tables.stack, stack_id))
        if hardware_id not in machines:
            record = _document(connection, tables.hardware, hardware_id)
            machines[hardware_id] = value_from(HardwareProfile, record)
        yield observation_from(json.loads(document), stack=stacks[stack_id], hardware=machines[hardware_id])


def _document(connection: Connection, table: Table, identity: str) -> Any:
    return json.loads(connection.execute(select(table.c.document).where(table.c.id == identity)).scalar_one())
