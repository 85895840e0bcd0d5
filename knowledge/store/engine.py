"""Opening of a knowledge base: creates it, migrates its tables, and imports the shipped observations if necessary."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from knowledge.domain.extras import needs_extra
from knowledge.store import sqlite_file
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.shipped_files import shipped_files, shipped_version
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tables import FIRST, HEAD, create_tables
from knowledge.store.transactions import (
    FILE_STATE,
    GRANT_HINT,
    MIGRATION_HINT,
    begin,
    for_writing,
    lacks_rights,
    may_migrate,
    may_write,
)

_OPENING_HINTS = {
    "sqlite": "if the file is damaged, move it away and run the command again; or name another knowledge base with "
    "`--knowledge`",
    "postgresql": "check the address, that the server is running and reachable from here, and the user name and "
    "password; or name another knowledge base with `--knowledge`",
}
REVISIONS = "knowledge.store.migrations:versions"
"""Folders with the revisions of the tables, as Alembic writes them."""
_MIGRATION_HINTS = {
    "sqlite": "open it once with write access, or copy it to a place where you can write",
    "postgresql": MIGRATION_HINT,
}


def open_knowledge_base(address: str, *, shipped: bool = True, migrate: bool = True) -> SqlKnowledgeBase:
    """Open a knowledge base.

    Args:
        address: A database address (``sqlite:///...``, ``postgresql://...``) or the path of a SQLite file.
        shipped: Whether to import the observations that ship with the program, if they are not imported yet.
        migrate: Whether to create the tables, or to migrate them to the newest revision, if necessary.

    Raises:
        KnowledgeBaseError: If it cannot be opened, or a newer version of the program created it.
        MissingExtraError: If the driver of PostgreSQL is not installed.
    """
    engine, writable = _engine(address)
    name = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            revision = _revision(connection)
            migrate = migrate and writable and (connection.dialect.name == "sqlite" or may_migrate(connection))
        if revision is not None and revision < FIRST:
            raise KnowledgeBaseError(
                f"the knowledge base `{name}` has tables of revision {revision}, which no release of this program made",
                hint="export your own measurements with the program that wrote it (`advisor knowledge export FILE`), "
                "then move it away: the next command makes a new one",
            )
        if revision is not None and revision > HEAD:
            raise KnowledgeBaseError(
                f"the knowledge base `{name}` has tables of revision {revision}, newer than this program's {HEAD}",
                hint="upgrade `seshat-advisor`",
            )
        if revision != HEAD and not migrate:
            age = f"its tables of revision {revision} are older than this program's {HEAD}"
            state = "it has no tables" if revision is None else age
            raise KnowledgeBaseError(
                f"the knowledge base `{name}` is opened read-only, and {state}",
                hint=_MIGRATION_HINTS[engine.dialect.name],
            )
        file = _file(engine.url)
        if revision != HEAD:
            _migrate(engine)
        if engine.dialect.name == "postgresql":
            with engine.connect() as connection:
                writable = may_write(connection)
        store = SqlKnowledgeBase(engine, writable=writable)
        if writable and shipped:
            store.add_shipped(shipped_files(), version=shipped_version())
        if writable and file is not None:
            # After the import: with a write-ahead log, all pages of a new file would be written twice.
            sqlite_file.set_journal_mode(engine, file)
    except (SQLAlchemyError, sqlite3.Error) as error:
        engine.dispose()
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        raise KnowledgeBaseError(
            f"the knowledge base `{name}` cannot be opened: {cause}",
            hint=GRANT_HINT if lacks_rights(error) else _OPENING_HINTS[engine.dialect.name],
        ) from None
    return store


@contextmanager
def open_import_source(address: str) -> Iterator[SqlKnowledgeBase]:
    """Open a knowledge base whose observations are imported into another one, without migrating its tables.

    The program that wrote it can read it afterwards, too. Older tables of a SQLite file are migrated in a copy.

    Raises:
        KnowledgeBaseError: If it cannot be opened, or it is a PostgreSQL database with older tables.
        MissingExtraError: If the driver of PostgreSQL is not installed.
    """
    with ExitStack() as resources:
        file = _file(_url(address))
        if file is not None and not file.exists():
            raise KnowledgeBaseError(f"the knowledge base `{file}` cannot be imported: there is no such file")
        copy = None
        if file is not None and _has_older_tables(address):
            try:
                folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="advisor-"))
                copy = _copy(address, Path(folder) / "knowledge.sqlite")
            except (OSError, SQLAlchemyError, sqlite3.Error) as error:
                raise KnowledgeBaseError(
                    f"the knowledge base `{file}` cannot be copied to migrate its tables: {error}",
                    hint="check that the directory for temporary files is writable and not full, or set `TMPDIR`",
                ) from None
        yield resources.enter_context(
            open_knowledge_base(address if copy is None else str(copy), shipped=False, migrate=copy is not None)
        )


def _has_older_tables(address: str) -> bool:
    """Whether a SQLite file has tables of an older revision; an unreadable file fails when it is opened."""
    engine, _ = _engine(address)
    try:
        with engine.connect() as connection:
            revision = _revision(connection)
    except (SQLAlchemyError, sqlite3.Error):
        return False
    finally:
        engine.dispose()
    return revision is not None and revision < HEAD


def _copy(address: str, path: Path) -> Path:
    """Copy a SQLite file with its log, and return the path of the copy."""
    engine, _ = _engine(address)
    try:
        with engine.connect() as connection, closing(sqlite3.connect(path)) as copy:
            driver: Any = connection.connection.driver_connection
            driver.backup(copy)
            state: sqlite_file.FileState | None = connection.info.get(FILE_STATE)
            if state is not None:
                state.check()
    finally:
        engine.dispose()
    return path


def _url(address: str) -> URL:
    """Return the parts of an address."""
    if "://" not in address:
        address = f"sqlite:///{address}"
    try:
        url = make_url(address)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        raise _invalid(address, error) from None
    if backend not in ("sqlite", "postgresql"):
        raise KnowledgeBaseError(f"`{backend}` is not a knowledge base: use SQLite or PostgreSQL")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _file(url: URL) -> Path | None:
    """Return the file of a SQLite address; ``None`` for other databases."""
    return sqlite_file.path_of(url) if url.get_backend_name() == "sqlite" else None


def _invalid(address: str, error: Exception) -> KnowledgeBaseError:
    return KnowledgeBaseError(
        f"`{address}` is not the address of a knowledge base: {' '.join(str(error).split())}",
        hint="write `sqlite:///PATH` or `postgresql://USER@HOST/NAME`",
    )


def _engine(address: str) -> tuple[Engine, bool]:
    """Return the engine of an address, and whether the file system permits writing to the database."""
    url = _url(address)
    try:
        file = _file(url)
        is_writable_file = file is not None and (not file.exists() or sqlite_file.may_write(file))
        writable = file is None or (url.query.get("mode") != "ro" and is_writable_file)
        if file is not None and writable:
            file.parent.mkdir(parents=True, exist_ok=True)
        # A read-only file is opened for each read: how depends on whether another process has it open.
        with needs_extra("postgresql", "a PostgreSQL knowledge base"):
            engine = create_engine(url) if writable else create_engine(url.set(query={}), poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError) as error:
        raise _invalid(address, error) from None
    except OSError as error:
        raise KnowledgeBaseError(f"the knowledge base `{address}` cannot be created: {error}") from None
    if file is not None and not writable:
        event.listen(engine, "do_connect", lambda _, record, *__: _open_read_only(file, record))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", begin)
    return engine, writable


def _open_read_only(file: Path, record: Any) -> Any:
    connection, record.info[FILE_STATE] = sqlite_file.connect_read_only(file)
    return connection


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Configure a connection: waiting for locks, foreign keys, and explicit transactions."""
    # Python's own transactions commit each CREATE TABLE separately: a kill during the first use would leave some
    # tables.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        # Of a new file. On the default page of 4096 bytes, one observation of 2 KB leaves no space for a second one.
        "page_size=8192",
        f"busy_timeout={sqlite_file.BUSY_MS}",
        "foreign_keys=ON",
        "cache_size=-65536",
        # Commits survive a power failure; builds of SQLite have different defaults.
        "synchronous=FULL",
        # See knowledge.store.sqlite_file.
        "wal_autocheckpoint=0",
        f"journal_size_limit={sqlite_file.MOST_JOURNAL_BYTES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables, or ``None`` if there are no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if revision is None else str(revision)


def _migrate(engine: Engine) -> None:
    """Create the tables, or migrate them to the newest revision, in one transaction."""
    with for_writing(engine).begin() as connection:
        # Another process may have done it while this one waited for the write lock.
        revision = _revision(connection)
        if revision is None:
            create_tables(connection)
        elif revision != HEAD:
            _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    """Run the migrations that the tables lack."""
    from alembic import command, config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    options = config.Config()
    options.set_main_option("script_location", "knowledge.store:migrations")
    options.set_main_option("version_locations", REVISIONS)
    options.set_main_option("path_separator", "space")
    options.attributes["connection"] = connection
    command.upgrade(options, "head")
