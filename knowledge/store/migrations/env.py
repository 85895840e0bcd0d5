"""Alembic environment: runs the migrations on the connection of the knowledge base."""

from __future__ import annotations

from alembic import context

from knowledge.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
