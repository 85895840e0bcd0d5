"""Sources with their trust, the quarantine, and tokens of the service.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; existing blocks belong to the knowledge base itself."""
    op.add_column("block", sa.Column("source", sa.String(128), nullable=False, server_default=""))
    op.create_table(
        "source",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("trust", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_source"),
    )
    op.create_table(
        "quarantine",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("source", sa.String(128), nullable=False),
        sa.Column("block", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("received_at", sa.String(32), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_quarantine"),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("source", sa.String(128), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32)),
        sa.Column("revoked_at", sa.String(32)),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("sha256", name="uq_token_sha256"),
    )


def downgrade() -> None:
    """Drop the tables; stored observations stay, quarantined ones are deleted."""
    for name in ("token", "quarantine", "source"):
        op.drop_table(name)
    with op.batch_alter_table("block") as block:
        block.drop_column("source")
