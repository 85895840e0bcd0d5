"""Checks of results: exact references, and errors of elements."""
