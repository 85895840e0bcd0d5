"""Transactions, one writer at a time and one consistent state for each reader, and rights of PostgreSQL accounts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, text

from knowledge.store import tables
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


GRANT_HINT = (
    "if this account lacks rights on the tables, their owner can grant them: `GRANT SELECT, INSERT, UPDATE, DELETE ON "
    "ALL TABLES IN SCHEMA public TO NAME`, or only `SELECT` for reading"
)
"""What to do if an account lacks rights on a table."""
MIGRATION_HINT = (
    "let the owner of the tables run `advisor knowledge status` with this version of the program, and then `GRANT` the "
    "other accounts their rights on the new tables"
)
"""What to do if an account may not create or migrate the tables."""

_INSUFFICIENT_PRIVILEGE = "42501"
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_NOT_IMPORTED = (tables.quarantine, tables.source, tables.token)
_IMPORTED = tuple(table.name for table in tables.metadata.sorted_tables if table not in _NOT_IMPORTED)
"""Tables that the import of shipped files writes."""


def may_write(connection: Connection) -> bool:
    """Whether an account has the rights that the import of shipped files needs; the tables have the newest revision.

    An account that lacks one of them opens the knowledge base read-only.
    """
    if connection.execute(text("SHOW transaction_read_only")).scalar() == "on":
        return False
    # One call for each right: of a list, PostgreSQL checks whether the user has any.
    calls = [f"has_table_privilege('{table}', '{right}')" for table in _IMPORTED for right in _RIGHTS]
    return bool(connection.execute(text(f"SELECT {' AND '.join(calls)}")).scalar())


def may_migrate(connection: Connection) -> bool:
    """Whether an account may create the tables, or migrate them, for which it must own them."""
    if connection.execute(text("SHOW transaction_read_only")).scalar() == "on":
        return False
    owned = (
        "SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class "
        "WHERE oid IN (to_regclass('observation'), to_regclass('alembic_version'))"
    )
    query = f"SELECT has_schema_privilege(current_schema(), 'CREATE') AND coalesce(({owned}), true)"
    return bool(connection.execute(text(query)).scalar())


def lacks_rights(error: Exception) -> bool:
    """Whether a statement failed because the account lacks a right."""
    return getattr(getattr(error, "orig", None) or error, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE
