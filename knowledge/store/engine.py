"""Opening of a knowledge base: creates it, migrates its tables, and imports the shipped observations if necessary."""

from __future__ import annotations

import sqlite3
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
from knowledge.store.tables import HEAD, create_tables
from knowledge.store.transactions import FILE_STATE, begin, for_writing

_OPENING_HINTS = {
    "sqlite": "if the file is damaged, move it away and run the command again; or name another knowledge base with "
    "`--knowledge`",
    "postgresql": "check the address, that the server is running and reachable from here, and the user name and "
    "password; or name another knowledge base with `--knowledge`",
}


def open_knowledge_base(address: str, *, shipped: bool = True) -> SqlKnowledgeBase:
    """Open a knowledge base.

    Args:
        address: A database address (``sqlite:///...``, ``postgresql://...``) or the path of a SQLite file.
        shipped: Whether to import the observations that ship with the program, if they are not imported yet.

    Raises:
        KnowledgeBaseError: If it cannot be opened, or a newer version of the program created it.
        MissingExtraError: If the driver of PostgreSQL is not installed.
    """
    engine, writable = _engine(address)
    name = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            revision = _revision(connection)
            writable = writable and _may_write(connection)
        if revision is not None and revision > HEAD:
            raise KnowledgeBaseError(
                f"the knowledge base `{name}` has tables of revision {revision}, newer than this program's {HEAD}",
                hint="upgrade `seshat-advisor`",
            )
        if revision != HEAD and not writable:
            raise KnowledgeBaseError(
                f"the knowledge base `{name}` is read-only, and its tables of revision {revision} are older than this "
                f"program's {HEAD}",
                hint="open it once with write access, or copy it to a place where you can write",
            )
        file = sqlite_file.path_of(engine.url) if engine.dialect.name == "sqlite" else None
        if revision != HEAD:
            _migrate(engine)
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
            f"the knowledge base `{name}` cannot be opened: {cause}", hint=_OPENING_HINTS[engine.dialect.name]
        ) from None
    return store


def _engine(address: str) -> tuple[Engine, bool]:
    """Return the engine of an address, and whether the file system permits writing to the database."""
    if "://" not in address:
        address = f"sqlite:///{address}"
    if address.startswith("postgresql://"):
        address = address.replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        url = make_url(address)
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise KnowledgeBaseError(f"`{url.get_backend_name()}` is not a knowledge base: use SQLite or PostgreSQL")
        file = sqlite_file.path_of(url) if url.get_backend_name() == "sqlite" else None
        writable = file is None or _may_write_file(url, file)
        if file is not None and writable:
            file.parent.mkdir(parents=True, exist_ok=True)
        # A read-only file is opened for each read: how depends on whether another process has it open.
        with needs_extra("postgresql", "a PostgreSQL knowledge base"):
            engine = create_engine(url) if writable else create_engine(url.set(query={}), poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError) as error:
        raise KnowledgeBaseError(
            f"`{address}` is not the address of a knowledge base: {' '.join(str(error).split())}",
            hint="write `sqlite:///PATH` or `postgresql://USER@HOST/NAME`",
        ) from None
    except OSError as error:
        raise KnowledgeBaseError(f"the knowledge base `{address}` cannot be created: {error}") from None
    if file is not None and not writable:
        event.listen(engine, "do_connect", lambda _, record, *__: _open_read_only(file, record))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", begin)
    return engine, writable


def _may_write_file(url: URL, file: Path) -> bool:
    return url.query.get("mode") != "ro" and (not file.exists() or sqlite_file.may_write(file))


def _open_read_only(file: Path, record: Any) -> Any:
    connection, record.info[FILE_STATE] = sqlite_file.connect_read_only(file)
    return connection


def _may_write(connection: Connection) -> bool:
    """Whether a PostgreSQL server permits this user to write; files of SQLite were checked before.

    An account that may only insert opens the knowledge base read-only: the import of shipped files also updates and
    deletes rows.
    """
    if connection.dialect.name != "postgresql":
        return True
    if connection.execute(text("SHOW transaction_read_only")).scalar() == "on":
        return False
    if not inspect(connection).has_table("observation"):
        return True
    # One call for each: of a list, PostgreSQL checks whether the user has any.
    privileges = ", ".join(f"has_table_privilege('observation', '{name}')" for name in ("INSERT", "UPDATE", "DELETE"))
    return all(connection.execute(text(f"SELECT {privileges}")).one())


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
    """Return the revision of the tables, or none if there are no tables yet."""
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
    import logging

    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", "knowledge.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
