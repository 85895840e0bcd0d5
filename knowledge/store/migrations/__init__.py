"""Revisions of the tables, for Alembic."""
