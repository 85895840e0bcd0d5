"""A knowledge base on every backend: SQLite and a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A real PostgreSQL server for the session; yields the address of its first database."""
    pgserver = pytest.importorskip("pgserver", reason="pgserver is not installed")
    # Not in a temporary folder of pytest: there, tests on PostgreSQL failed after another run of the tests had started.
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    server = pgserver.get_server(folder)
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


SQLITE_FIRST = pytest.mark.parametrize(
    "address", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
"""Marks slow repetitions of tests whose subject is above the database."""


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database on each backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'knowledge.sqlite'}"
    return new_database(request.getfixturevalue("postgresql"))


def new_database(first: str) -> str:
    """Create an empty database on a server, and return its address.

    Args:
        first: Address of the server's first database.
    """
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(first, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return first.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(address: str) -> Iterator[SqlKnowledgeBase]:
    """An empty knowledge base, without the shipped observations."""
    with open_knowledge_base(address, shipped=False) as opened:
        yield opened
