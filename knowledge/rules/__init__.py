"""Curated facts: what must not, should not, or should be together, each with its source."""
