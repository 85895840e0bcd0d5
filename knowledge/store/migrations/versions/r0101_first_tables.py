"""The tables of version 0.1.0."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "hardware",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("microarchitecture", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_hardware"),
    )
    op.create_table(
        "stack",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("python", sa.String(32), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stack"),
    )
    op.create_table(
        "stack_package",
        sa.Column("stack_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("version", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("stack_id", "name", name="pk_stack_package"),
        sa.ForeignKeyConstraint(["stack_id"], ["stack.id"], name="fk_stack_package_stack_id_stack"),
    )
    op.create_index("ix_stack_package_name_version", "stack_package", ["name", "version"])
    op.create_table(
        "observation",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("indicator", sa.String(64), nullable=False),
        sa.Column("backend", sa.String(32), nullable=False),
        sa.Column("framework", sa.String(128), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("stack_id", sa.String(64), nullable=False),
        sa.Column("hardware_id", sa.String(64), nullable=False),
        sa.Column("block", sa.String(128), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("reference", sa.Boolean, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("median_seconds", sa.Float),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("shipped", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_observation"),
        sa.ForeignKeyConstraint(["stack_id"], ["stack.id"], name="fk_observation_stack_id_stack"),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name="fk_observation_hardware_id_hardware"),
    )
    op.create_index("ix_observation_block", "observation", ["block"])
    op.create_index("ix_observation_indicator", "observation", ["indicator"])
    op.create_table(
        "block",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("observations", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("source", sa.String(128), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("name", name="pk_block"),
    )
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
    op.create_table(
        "derived",
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("seen", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_derived"),
    )
    op.create_table(
        "shipped_file",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_shipped_file"),
    )
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
