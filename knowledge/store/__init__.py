"""The knowledge base: an append-only store of observations; the only package that imports SQLAlchemy."""
