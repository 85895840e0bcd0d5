"""How transactions begin: writers one at a time, readers each on one state."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine

from knowledge.store.sqlite_file import begin_writing

FILE_STATE = "file_state"
"""Key of what a connection remembers of a file that it reads without locks; see :mod:`knowledge.store.sqlite_file`."""
_WRITING_LOCK = 5351  # Any number that is ours: PostgreSQL's advisory locks are numbers.


def for_writing(engine: Engine) -> Engine:
    """Return an engine whose transactions hold the database's writing lock from their beginning."""
    if engine.dialect.name == "postgresql":
        # What is looked up under the lock must be what the last writer left, whatever the database's default is: at
        # the other levels a transaction sees the state at its first statement, which is before it had the lock.
        return engine.execution_options(writes=True, isolation_level="READ COMMITTED", postgresql_readonly=False)
    return engine.execution_options(writes=True)


def for_reading(engine: Engine) -> Engine:
    """Return an engine whose transactions see one state of the database, however many queries they make."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    # SQLite's readers always do.
    return engine


def begin(connection: Connection) -> None:
    """Begin a transaction; a listener of SQLAlchemy's event of that name."""
    writes = connection.get_execution_options().get("writes", False)
    if connection.dialect.name == "sqlite":
        if writes:
            # A writer takes its lock at once: two that had both read first could only fail.
            driver: Any = connection.connection.driver_connection
            begin_writing(driver)
        else:
            connection.exec_driver_sql("BEGIN")
    elif writes:
        # One writer at a time, as in SQLite: those that insert the same rows in another order would else lock each
        # other out, and what a writer has looked up must stay.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITING_LOCK})")
