"""Which shipped file brought an observation, so that it can be deleted with it.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of stored observations it is not known which file brought them."""
    op.add_column("observation", sa.Column("shipped", sa.Integer))
    op.add_column("shipped_file", sa.Column("number", sa.Integer))


def downgrade() -> None:
    """Drop the columns; the observations stay."""
    with op.batch_alter_table("shipped_file") as shipped_file:
        shipped_file.drop_column("number")
    with op.batch_alter_table("observation") as observation:
        observation.drop_column("shipped")
