"""The tables of the knowledge base.

In ``observation``, ``stack`` and ``hardware``, the column ``document`` holds the whole record as JSON and is
authoritative; the other columns are copies of the fields that queries filter by. ``block`` and ``coverage`` summarise
``observation``.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    insert,
)

FIRST = "0101"
"""Revision of the tables of version 0.1.0."""
HEAD = "0102"
"""Newest revision of the tables; the migrations lead here."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

hardware = Table(
    "hardware",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("microarchitecture", String(64), nullable=False),
    Column("document", Text, nullable=False),
)

stack = Table(
    "stack",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("python", String(32), nullable=False),
    Column("platform", String(64), nullable=False),
    Column("document", Text, nullable=False),
)

stack_package = Table(
    "stack_package",
    metadata,
    Column("stack_id", String(64), ForeignKey("stack.id"), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("version", String(128), nullable=False),
    Index("ix_stack_package_name_version", "name", "version"),
)

observation = Table(
    "observation",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("indicator", String(64), nullable=False),
    Column("backend", String(32), nullable=False),
    Column("framework", String(128), nullable=False),
    Column("device", String(16), nullable=False),
    Column("stack_id", String(64), ForeignKey("stack.id"), nullable=False),
    Column("hardware_id", String(64), ForeignKey("hardware.id"), nullable=False),
    Column("block", String(128), nullable=False),
    Column("round", Integer, nullable=False),
    # The number of the arm; records have it under this name.
    Column("slot", Integer, nullable=False),
    Column("reference", Boolean, nullable=False),
    Column("status", String(32), nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("median_seconds", Float),
    Column("document", Text, nullable=False),
    # Number of the shipped file that brought it; null if the user added it, too.
    Column("shipped", Integer),
    Index("ix_observation_block", "block"),
    Index("ix_observation_indicator", "indicator"),
)

block = Table(
    "block",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("observations", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("source", String(128), nullable=False, server_default=""),
)

# Compared as Python compares text, in every database.
_TIME = String(32).with_variant(String(32, collation="C"), "postgresql")

coverage = Table(
    "coverage",
    metadata,
    # Hash of the columns up to the label, for each of which there is one row.
    Column("id", String(64), primary_key=True),
    Column("block", String(128), nullable=False),
    Column("hardware_id", String(64), nullable=False),
    Column("framework", String(128), nullable=False),
    Column("status", String(32), nullable=False),
    Column("indicator", String(64), nullable=False),
    Column("backend", String(32), nullable=False),
    Column("device", String(16), nullable=False),
    Column("label", Text, nullable=False),
    Column("observations", Integer, nullable=False),
    # Start times of the first and of the newest observation.
    Column("first", _TIME, nullable=False),
    Column("newest", _TIME, nullable=False),
    Index("ix_coverage_block", "block"),
)

source = Table(
    "source",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("trust", Float, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("source", String(128), nullable=False),
    Column("block", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("received_at", String(32), nullable=False),
    Column("document", Text, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("source", String(128), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("expires_at", String(32)),
    Column("revoked_at", String(32)),
)

derived = Table(
    "derived",
    metadata,
    Column("kind", String(32), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("seen", String(64), nullable=False),
    Column("document", Text, nullable=False),
)

shipped_file = Table(
    "shipped_file",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("number", Integer, nullable=False),
)

shipped_data = Table(
    "shipped_data",
    metadata,
    # One row: the version of the shipped data that the knowledge base has. No row before the first import.
    Column("version", Integer, primary_key=True, autoincrement=False),
)

removed_block = Table(
    "removed_block",
    metadata,
    # Blocks that the user removed: shipped files do not bring them back.
    Column("name", String(128), primary_key=True),
)

# Alembic's own table, as Alembic creates it.
_revision = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def create_tables(connection: Connection) -> None:
    """Create the tables of the newest revision in an empty database, and record the revision.

    The migrations create the same tables, but importing Alembic takes longer than that.
    """
    metadata.create_all(connection, checkfirst=False)
    _revision.create(connection, checkfirst=True)
    connection.execute(insert(_revision), [{"version_num": HEAD}])
