"""Shared value types; only the standard library and packaging are imported."""

framework_packages: set[str] = set()
"""Packages with a folder for each framework; packages above add theirs (:mod:`knowledge.domain.frameworks`)."""
