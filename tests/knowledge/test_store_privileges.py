"""Accounts of PostgreSQL that lack rights on some tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from knowledge.store import transactions
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import open_import_source, open_knowledge_base
from tests.knowledge.next_revision import NEXT
from tests.knowledge.samples import observation
from tests.knowledge.shipped_stores import open_with

ALL = "SELECT, INSERT, UPDATE, DELETE"
ON_ALL_TABLES = "ON ALL TABLES IN SCHEMA public"

Server = tuple[str, str, Callable[[str], None]]
"""Address for the owner, address for the account, and a function that runs a statement as the owner."""


@pytest.fixture
def server(postgresql: str) -> Server:
    """An empty database, and an account without rights on it; `ROLE` in a statement is the name of the account."""
    import psycopg

    role, name = f"role_{uuid.uuid4().hex}", f"test_{uuid.uuid4().hex}"
    owner = postgresql.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        connection.execute(f'CREATE ROLE "{role}" LOGIN')

    def execute(statement: str) -> None:
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(statement.replace("ROLE", role).encode())

    return owner, owner.replace("//postgres:", f"//{role}:", 1), execute


def is_writable(address: str) -> bool:
    """Whether an account that can query the knowledge base can also add observations to it."""
    with open_knowledge_base(address, shipped=False) as store:
        assert observation() in list(store.observations())
        try:
            store.add([observation(round=1)])
        except KnowledgeBaseError as error:
            assert "is read-only" in error.message
            assert "`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES" in str(error.hint)
            return False
    return True


@pytest.mark.parametrize("missing", ["INSERT", "UPDATE", "DELETE", ""])
def test_an_account_that_may_not_replace_rows_opens_it_read_only(missing: str, server: Server) -> None:
    owner, account, execute = server
    with open_knowledge_base(owner, shipped=False) as store:
        store.add([observation()])
    execute(f"GRANT {ALL} {ON_ALL_TABLES} TO ROLE")
    if missing:
        execute(f"REVOKE {missing} {ON_ALL_TABLES} FROM ROLE")

    assert is_writable(account) == (missing == "")


@pytest.mark.parametrize("table", ["block", "derived", "hardware", "shipped_data", "shipped_file", "stack_package"])
def test_an_account_that_may_not_write_one_table_opens_it_read_only(table: str, server: Server) -> None:
    owner, account, execute = server
    with open_knowledge_base(owner, shipped=False) as store:
        # Older than the files of the program: an account with all rights imports those.
        open_with(store, 1)
        store.add([observation()])
    execute(f"GRANT {ALL} {ON_ALL_TABLES} TO ROLE")
    execute(f"REVOKE INSERT ON {table} FROM ROLE")

    with open_knowledge_base(account) as store:
        assert {block.name for block in store.blocks()} == {"b1", "b2", "b3"}
    assert not is_writable(account)


@pytest.mark.parametrize("by_default", [False, True])
def test_an_account_without_rights_on_new_tables_reads_until_they_are_granted(
    by_default: bool, server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, account, execute = server
    with open_knowledge_base(owner, shipped=False) as store:
        store.add([observation()])
    request.getfixturevalue("next_revision")
    monkeypatch.setattr(transactions, "_IMPORTED", (*transactions._IMPORTED, "note"))
    execute(f"GRANT {ALL} {ON_ALL_TABLES} TO ROLE")
    if by_default:
        execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {ALL} ON TABLES TO ROLE")

    with pytest.raises(KnowledgeBaseError, match="its tables of revision 0102 are older than this") as caught:
        open_knowledge_base(account, shipped=False)
    assert "let the owner of the tables run `advisor knowledge status`" in str(caught.value.hint)
    open_knowledge_base(owner, shipped=False).close()

    assert is_writable(account) == by_default
    execute(f"GRANT {ALL} {ON_ALL_TABLES} TO ROLE")
    assert is_writable(account)


def test_an_account_without_rights_gets_a_hint_that_names_the_statement(server: Server) -> None:
    owner, account, execute = server
    execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(KnowledgeBaseError, match="it has no tables") as caught:
        open_knowledge_base(account, shipped=False)
    assert "let the owner of the tables" in str(caught.value.hint)
    open_knowledge_base(owner, shipped=False).close()

    with pytest.raises(KnowledgeBaseError, match="permission denied for table alembic_version") as caught:
        open_knowledge_base(account, shipped=False)
    assert "`GRANT SELECT" in str(caught.value.hint)

    execute("GRANT SELECT ON alembic_version, block TO ROLE")
    with open_knowledge_base(account) as store, pytest.raises(KnowledgeBaseError, match="permission denied") as caught:
        store.blocks()
    assert "`GRANT SELECT" in str(caught.value.hint)


def test_an_import_does_not_migrate_the_imported_database(server: Server, request: pytest.FixtureRequest) -> None:
    owner, _, _ = server
    with open_knowledge_base(owner, shipped=False) as store:
        store.add([observation()])
    with open_import_source(owner) as store:
        assert list(store.observations()) == [observation()]
    request.getfixturevalue("next_revision")

    with pytest.raises(KnowledgeBaseError, match="its tables of revision 0102 are older"), open_import_source(owner):
        pass

    with open_knowledge_base(owner, shipped=False) as store:
        assert store.revision() == NEXT
