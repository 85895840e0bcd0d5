"""Rights of a PostgreSQL account on the tables of a knowledge base."""

from __future__ import annotations

from sqlalchemy import Connection, text

from knowledge.store import tables

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
