"""The knowledge base: an append-only store of observations; the only room that imports SQLAlchemy."""
