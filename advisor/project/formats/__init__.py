"""Formats of the files in which projects state their requirements."""
