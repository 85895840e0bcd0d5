"""Opens a knowledge base: creates it on first use, brings its tables up to date, fills in what ships."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tables import HEAD

_WRITING_LOCK = 5351  # Any number that is ours: PostgreSQL's advisory locks are numbers.


def open_knowledge_base(address: str, *, shipped: bool = True) -> SqlKnowledgeBase:
    """Open a knowledge base.

    Args:
        address: A database address (``sqlite:///...``, ``postgresql://...``) or the path of a SQLite file.
        shipped: Whether to take in the observations that ship with the program, where that was not done yet.

    Raises:
        KnowledgeBaseError: If it cannot be opened, or was made by a newer version of the program.
    """
    engine, writable = _engine(address)
    shown = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            revision = _revision(connection)
            writable = writable and _may_write(connection)
        if revision is not None and revision > HEAD:
            raise KnowledgeBaseError(
                f"the knowledge base `{shown}` has tables of revision {revision}, newer than this program's {HEAD}",
                hint="upgrade `seshat`",
            )
        if revision != HEAD and not writable:
            raise KnowledgeBaseError(
                f"the knowledge base `{shown}` is read-only, and its tables of revision {revision} are older than this "
                f"program's {HEAD}",
                hint="open it once where it can be written, or copy it there",
            )
        if revision != HEAD:
            _migrate(engine)
        store = SqlKnowledgeBase(engine, writable=writable)
        if writable and shipped:
            _fill(store)
    except SQLAlchemyError as error:
        engine.dispose()
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        raise KnowledgeBaseError(
            f"the knowledge base `{shown}` cannot be opened: {cause}",
            hint="name another one with `--knowledge`, or move a damaged file away and start anew",
        ) from None
    return store


def _engine(address: str) -> tuple[Engine, bool]:
    """Return the engine of an address, and whether its file, where it is one, may be written."""
    if "://" not in address:
        address = f"sqlite:///{address}"
    if address.startswith("postgresql://"):
        address = address.replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        url = make_url(address)
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise KnowledgeBaseError(f"`{url.get_backend_name()}` is not a knowledge base: use SQLite or PostgreSQL")
        writable = True
        if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
            url, writable = _sqlite_file(url)
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError) as error:
        raise KnowledgeBaseError(
            f"`{address}` is not the address of a knowledge base: {' '.join(str(error).split())}",
            hint="write `sqlite:///PATH` or `postgresql://USER@HOST/NAME`",
        ) from None
    except ImportError:
        raise KnowledgeBaseError(
            "the PostgreSQL driver is not installed", hint="install it with `pip install 'seshat[postgresql]'`"
        ) from None
    except OSError as error:
        raise KnowledgeBaseError(f"the knowledge base `{address}` cannot be created: {error}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgresql)
    return engine, writable


def _sqlite_file(url: URL) -> tuple[URL, bool]:
    """Return the address to open a file by: one that may not be written is opened for reading."""
    if url.query.get("mode") == "ro":
        return url, False
    path = Path(str(url.database))
    if path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return url.set(database=f"file:{quote(str(path.absolute()))}", query={"mode": "ro", "uri": "true"}), False
    path.parent.mkdir(parents=True, exist_ok=True)
    return url, True


def _may_write(connection: Connection) -> bool:
    """Whether a PostgreSQL server takes writes from this user; SQLite's files were looked at before."""
    if connection.dialect.name != "postgresql":
        return True
    if connection.execute(text("SHOW transaction_read_only")).scalar() == "on":
        return False
    if not inspect(connection).has_table("observation"):
        return True
    return bool(connection.execute(text("SELECT has_table_privilege('observation', 'INSERT')")).scalar())


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Let writers wait for each other, references hold, and this program say where transactions begin."""
    # Python's own handling would commit each CREATE TABLE by itself: a killed first use would leave half the tables.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("busy_timeout=60000", "foreign_keys=ON", "cache_size=-65536"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its lock at once: two that had both read first could only fail.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    # One writer at a time, as in SQLite: those that insert the same rows in another order would else lock each other
    # out, and what a writer has looked up must stay.
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITING_LOCK})")


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables, or none where there are none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _migrate(engine: Engine) -> None:
    """Bring the tables to the newest revision, all in one transaction."""
    import logging

    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", "knowledge.store:migrations")
    with engine.execution_options(writes=True).begin() as connection:
        # Another process may have done it while this one waited for its turn.
        if _revision(connection) != HEAD:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _fill(store: SqlKnowledgeBase) -> None:
    """Take in the observations that ship with the program, each file once."""
    taken_in = store.shipped()
    for file in sorted(importlib.resources.files("knowledge.data").iterdir(), key=lambda f: f.name):
        if not file.name.endswith((".jsonl", ".jsonl.gz")):
            continue
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in taken_in:
            observations = read_observations(read_lines(content, where=file.name), where=file.name)
            store.add_shipped(digest, file.name, observations)
