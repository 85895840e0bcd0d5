"""The version of the shipped data that was imported, and the blocks that the user removed.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; of imported files the version is unknown until the next import."""
    op.create_table(
        "shipped_data",
        sa.Column("version", sa.Integer, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("version", name="pk_shipped_data"),
    )
    op.create_table(
        "removed_block",
        sa.Column("name", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_removed_block"),
    )


def downgrade() -> None:
    """Drop the tables; the observations stay."""
    op.drop_table("removed_block")
    op.drop_table("shipped_data")
