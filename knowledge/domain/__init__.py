"""Shared value types; only the standard library and packaging are imported."""
