"""Blocks with their digests, and derived values.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and fill the blocks from the observations."""
    block = op.create_table(
        "block",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("observations", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_block"),
    )
    op.create_table(
        "derived",
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("seen", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_derived"),
    )
    # Fewer and narrower indexes: observations are read by block, and each index slows every insertion.
    op.drop_index("ix_observation_framework", table_name="observation")
    op.drop_index("ix_observation_indicator", table_name="observation")
    op.drop_index("ix_observation_block", table_name="observation")
    op.create_index("ix_observation_indicator", "observation", ["indicator"])
    op.create_index("ix_observation_block", "observation", ["block"])
    counted: dict[str, int] = defaultdict(int)
    summed: dict[str, int] = defaultdict(int)
    # A copy of `knowledge.store.state_hash` at the time of this revision: a migration must not change with the program.
    for name, identity in op.get_bind().execute(sa.text("SELECT block, id FROM observation")):
        counted[name] += 1
        summed[name] = (summed[name] + int(identity, 16)) % (1 << 256)
    rows = [{"name": n, "observations": counted[n], "digest": f"{summed[n]:064x}"} for n in sorted(counted)]
    if rows:
        op.bulk_insert(block, rows)


def downgrade() -> None:
    """Drop the tables and restore the indexes; the observations stay."""
    op.drop_index("ix_observation_indicator", table_name="observation")
    op.drop_index("ix_observation_block", table_name="observation")
    op.create_index("ix_observation_framework", "observation", ["framework"])
    op.create_index("ix_observation_indicator", "observation", ["indicator", "backend", "device"])
    op.create_index("ix_observation_block", "observation", ["block", "round", "slot"])
    op.drop_table("derived")
    op.drop_table("block")
