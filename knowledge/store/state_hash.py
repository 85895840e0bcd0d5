"""The default address of the knowledge base, and hashes of its state, without SQLAlchemy, which is slow to import."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from knowledge.domain.errors import UnavailableError
from knowledge.domain.identity import content_hash
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sqlite_file import connect_read_only


def default_path() -> Path | None:
    """Return the default file of the knowledge base, in the user's data directory; none without a home directory."""
    from platformdirs import user_data_path

    try:
        path = user_data_path("seshat") / "knowledge.sqlite"
    except RuntimeError:
        return None
    # Older versions of platformdirs return a path below `~`.
    return path if path.is_absolute() else None


def default_address() -> str:
    """Return the address of the user's own knowledge base.

    Raises:
        UnavailableError: If the user has no home directory to keep it in.
    """
    path = default_path()
    if path is None:
        raise UnavailableError(
            "there is no home directory to keep the knowledge base in",
            hint="name a knowledge base with `--knowledge`, or set `HOME`",
        )
    return f"sqlite:///{path}"


def state_hash(address: str) -> str | None:
    """Return a hash of the content of a SQLite knowledge base, named by its address or the path of its file.

    The result is ``None`` if the database is not a SQLite file or cannot be read this way.
    """
    path = Path(address.removeprefix("sqlite:///"))
    if "://" in str(path) or "?" in address or not path.is_file():
        return None
    try:
        connection, state = connect_read_only(path)
        with closing(connection):
            # All queries see one state, even if another process writes meanwhile.
            connection.execute("BEGIN")
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            imported = connection.execute("SELECT sha256 FROM shipped_file ORDER BY sha256").fetchall()
            blocks = connection.execute("SELECT name, digest, source FROM block ORDER BY name").fetchall()
            trusts = connection.execute("SELECT name, trust FROM source ORDER BY name").fetchall()
        if state is not None:
            state.check()
    except (sqlite3.Error, KnowledgeBaseError):
        return None
    return content_hash([revision, imported, blocks, trusts])


_MODULUS = 1 << 256
EMPTY = "0" * 64
"""Digest of the empty set."""


def combine(digest: str, members: Iterable[str], *, sign: int = 1) -> str:
    """Return the digest of a set after members are added or removed; it does not depend on their order.

    It is the sum of the members' hashes modulo 2^256 (AdHash: Bellare and Micciancio, "A New Paradigm for
    Collision-Free Hashing", Eurocrypt 1997). Accidental collisions are practically impossible, and a forged one would
    bring no advantage. Hashes are in hexadecimal; the sign is 1 to add members, -1 to remove them.
    """
    return f"{(int(digest, 16) + sign * sum(int(member, 16) for member in members)) % _MODULUS:064x}"
