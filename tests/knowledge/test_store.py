"""The contract of a knowledge base, on every backend: SQLite and a real PostgreSQL server."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from knowledge.store import tables
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import _engine, _upgrade, open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.next_revision import older_knowledge
from tests.knowledge.samples import observation


def test_the_shipped_observations_are_there_from_the_beginning(tmp_path: Path) -> None:
    with open_knowledge_base(str(tmp_path / "k.sqlite")) as store:
        assert sum(number for _, number in store.content().observations) > 300


def test_adding_again_changes_nothing(store: SqlKnowledgeBase) -> None:
    batch = [observation(round=r) for r in range(3)]

    first, again = store.add(batch), store.add(reversed(batch))

    assert (first.added, first.known) == (3, 0)
    assert (again.added, again.known) == (0, 3)
    assert list(store.observations(block="b1")) == batch


def test_observations_come_in_order_of_round_and_arm(store: SqlKnowledgeBase) -> None:
    store.add([observation(round=1), observation(round=0, arm=1, version="1.26.4"), observation(round=0)])

    assert [(o.round, o.arm) for o in store.observations(block="b1")] == [(0, 0), (0, 1), (1, 0)]


def test_failed_observations_are_stored(store: SqlKnowledgeBase) -> None:
    store.add([observation(status="import-error")])

    failed = list(store.observations(block="b1"))

    assert [(o.status, o.failure, o.median) for o in failed] == [("import-error", "made to fail", None)]


def test_only_the_selected_observations_are_read(store: SqlKnowledgeBase) -> None:
    store.add([observation(), observation(block="b2")])

    assert {o.block for o in store.observations(frameworks=["numpy"])} == {"b1", "b2"}
    assert list(store.observations(frameworks=[], block="b1")) == []
    assert [o.block for o in store.observations(block="b2", indicator="matmul")] == ["b2"]
    assert list(store.observations(indicator="conv2d")) == []


def test_a_failing_add_stores_nothing(store: SqlKnowledgeBase) -> None:
    def half() -> Iterator[object]:
        yield observation()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(half())  # type: ignore[arg-type]

    assert list(store.observations(block="b1")) == []


def test_more_than_one_batch_is_stored(store: SqlKnowledgeBase) -> None:
    ingest = store.add(observation(round=r) for r in range(1200))

    assert ingest.added == 1200
    assert sum(1 for _ in store.observations(block="b1")) == 1200


def test_opening_again_finds_what_was_stored(address: str) -> None:
    with open_knowledge_base(address, shipped=False) as first:
        first.add([observation()])
        before = first.content()
    with open_knowledge_base(address, shipped=False) as second:
        assert second.content() == before


def test_the_migrations_make_the_tables_that_the_program_uses(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    engine, _ = _engine(str(older_knowledge(tmp_path / "older.sqlite")))
    with engine.begin() as connection:
        _upgrade(connection)
        differences = compare_metadata(MigrationContext.configure(connection), tables.metadata)

    scripts = ScriptDirectory("knowledge/store/migrations")
    assert differences == []
    assert scripts.get_current_head() == tables.HEAD


def test_the_migrations_make_the_tables_of_a_new_database(tmp_path: Path) -> None:
    engine, _ = _engine(str(older_knowledge(tmp_path / "older.sqlite")))
    with engine.begin() as connection:
        _upgrade(connection)
        migrated = described_tables(connection)
    address = str(tmp_path / "new.sqlite")
    with open_knowledge_base(address, shipped=False) as store, store._engine.connect() as connection:
        created = described_tables(connection)

    assert created == migrated
    assert len(created) == len(tables.metadata.tables) + 1


def described_tables(connection: sa.Connection) -> dict[str, object]:
    """Return columns, keys and indexes of all tables, and the revision, as the database reports them."""
    inspector = sa.inspect(connection)
    described: dict[str, object] = {
        name: (
            [{**column, "type": str(column["type"])} for column in inspector.get_columns(name)],
            inspector.get_pk_constraint(name),
            inspector.get_foreign_keys(name),
            sorted(inspector.get_indexes(name), key=str),
            inspector.get_unique_constraints(name),
        )
        for name in inspector.get_table_names()
    }
    revision = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one()
    assert revision == tables.HEAD
    return described


def test_several_processes_may_create_the_database_at_once(tmp_path: Path, first_knowledge: Path) -> None:
    import subprocess
    import sys

    program = f"from knowledge.store.engine import open_knowledge_base as o; o({str(tmp_path / 'k.sqlite')!r})"

    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]

    assert [process.wait() for process in running] == [0, 0, 0]
    shutil.copy(first_knowledge, tmp_path / "alone.sqlite")
    # Each record has its own hash as its identity, which other tests compare with its content.
    assert rows(tmp_path / "k.sqlite") == rows(tmp_path / "alone.sqlite")
    with (
        open_knowledge_base(str(tmp_path / "k.sqlite")) as store,
        open_knowledge_base(str(tmp_path / "alone.sqlite")) as alone,
    ):
        assert store.content().digest == alone.content().digest


def rows(path: Path) -> list[tuple[object, ...]]:
    """Return all observations of a knowledge base as they are stored, and what SQLite reports about the file."""
    with closing(sqlite3.connect(path)) as connection:
        observations = connection.execute("SELECT * FROM observation ORDER BY id").fetchall()
        return [*observations, *connection.execute("PRAGMA integrity_check")]


def test_tables_of_a_newer_program_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    open_knowledge_base(str(path), shipped=False).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(KnowledgeBaseError, match="revision 9999, newer than this program's"):
        open_knowledge_base(str(path))


@pytest.mark.parametrize("revision", ["0001", "0005"])
def test_tables_from_before_the_first_release_are_refused(revision: str, tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    open_knowledge_base(str(path), shipped=False).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [revision])

    with pytest.raises(KnowledgeBaseError, match=f"revision {revision}, which no release") as caught:
        open_knowledge_base(str(path))

    assert caught.value.hint == (
        "export your own measurements with the program that wrote it (`advisor knowledge export FILE`), then move it "
        "away: the next command makes a new one"
    )


def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    path.write_text("this is not a database, and too long for an empty one" * 9)
    before = path.read_bytes()

    with pytest.raises(KnowledgeBaseError, match="cannot be opened: file is not a database"):
        open_knowledge_base(str(path))

    assert path.read_bytes() == before


@pytest.mark.parametrize("address", ["mysql://x/y", "gopher:hole://", "sqlite:////proc/none/k.sqlite"])
def test_an_invalid_address_is_an_error_message(address: str) -> None:
    with pytest.raises(KnowledgeBaseError) as caught:
        open_knowledge_base(address)

    assert "\n" not in caught.value.message


def test_an_unreachable_postgresql_server_is_not_reported_as_a_damaged_file() -> None:
    pytest.importorskip("psycopg")

    # No program listens on port 9.
    with pytest.raises(KnowledgeBaseError, match="cannot be opened") as refused:
        open_knowledge_base("postgresql://me:secret@127.0.0.1:9/seshat")

    hint = refused.value.hint
    assert all(word in hint for word in ("address", "server is running", "user name", "password", "`--knowledge`"))
    assert "damaged" not in hint
    assert "secret" not in refused.value.message


def test_the_error_names_a_missing_postgresql_database(postgresql: str) -> None:
    with pytest.raises(KnowledgeBaseError, match='database "nowhere" does not exist') as refused:
        open_knowledge_base(postgresql.replace("/postgres?", "/nowhere?"))

    assert "address" in refused.value.hint
