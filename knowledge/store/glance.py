"""Where the user's knowledge base is, and its state at a glance, without the database library: that is slow to load."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from knowledge.domain.identity import content_hash
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sqlite_file import connect_read_only


def default_address() -> str:
    """Return the address of the user's own knowledge base: a SQLite file in the user's data directory."""
    from platformdirs import user_data_path

    return f"sqlite:///{user_data_path('seshat') / 'knowledge.sqlite'}"


def glance(address: str) -> str | None:
    """Return a hash of the blocks that a SQLite file holds; none where only opening it would tell.

    Args:
        address: The address of a knowledge base, or the path of a SQLite file.
    """
    path = Path(address.removeprefix("sqlite:///"))
    if "://" in str(path) or "?" in address or not path.is_file():
        return None
    try:
        opened, state = connect_read_only(path)
        with closing(opened) as connection:
            # One state, whatever is written meanwhile.
            connection.execute("BEGIN")
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            taken_in = connection.execute("SELECT sha256 FROM shipped_file ORDER BY sha256").fetchall()
            blocks = connection.execute("SELECT name, digest, source FROM block ORDER BY name").fetchall()
            trusts = connection.execute("SELECT name, trust FROM source ORDER BY name").fetchall()
        if state is not None:
            state.check()
    except (sqlite3.Error, KnowledgeBaseError):
        return None
    return content_hash([revision, taken_in, blocks, trusts])
