"""The table `coverage`, which counts the stored observations by kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from knowledge.store.coverage import recount

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None

_TIME = sa.String(32).with_variant(sa.String(32, collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table, and fill it block by block: all observations at once may not fit into memory."""
    op.create_table(
        "coverage",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("block", sa.String(128), nullable=False),
        sa.Column("hardware_id", sa.String(64), nullable=False),
        sa.Column("framework", sa.String(128), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("indicator", sa.String(64), nullable=False),
        sa.Column("backend", sa.String(32), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("observations", sa.Integer, nullable=False),
        sa.Column("first", _TIME, nullable=False),
        sa.Column("newest", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_coverage"),
    )
    op.create_index("ix_coverage_block", "coverage", ["block"])
    connection = op.get_bind()
    recount(connection, connection.execute(sa.text("SELECT name FROM block")).scalars().all())
