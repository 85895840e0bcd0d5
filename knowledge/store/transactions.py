"""Transactions: one writer at a time; each reader sees one consistent state."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine

from knowledge.store.sqlite_file import begin_writing

FILE_STATE = "file_state"
"""Key of the state of a file that a connection reads without locks; see :mod:`knowledge.store.sqlite_file`."""
_WRITING_LOCK = 5351  # An arbitrary number of this program: PostgreSQL identifies advisory locks by numbers.


def for_writing(engine: Engine) -> Engine:
    """Return an engine whose transactions hold the write lock of the database from their beginning."""
    if engine.dialect.name == "postgresql":
        # Reads under the lock must see the last writer's changes, whatever the default of the database is. At the other
        # isolation levels a transaction sees the state at its first statement, which is before it had the lock.
        return engine.execution_options(writes=True, isolation_level="READ COMMITTED", postgresql_readonly=False)
    return engine.execution_options(writes=True)


def for_reading(engine: Engine) -> Engine:
    """Return an engine whose transactions see one state of the database in all their queries."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    # Transactions of SQLite always do.
    return engine


def begin(connection: Connection) -> None:
    """Begin a transaction; listener of SQLAlchemy's ``begin`` event."""
    writes = connection.get_execution_options().get("writes", False)
    if connection.dialect.name == "sqlite":
        if writes:
            # A writer takes the lock at the start: two writers that both read first would block each other and fail.
            driver: Any = connection.connection.driver_connection
            begin_writing(driver)
        else:
            connection.exec_driver_sql("BEGIN")
    elif writes:
        # One writer at a time, as in SQLite: two writers that insert the same rows in different order would deadlock,
        # and rows that a writer has read must not change.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITING_LOCK})")
