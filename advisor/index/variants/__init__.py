"""Variants of wheels (PEP 825)."""
