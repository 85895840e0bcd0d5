"""The tables of version 0.1.0: new databases get them from :func:`knowledge.store.tables.create_tables`."""

from __future__ import annotations

revision = "0101"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: there are no older tables."""
