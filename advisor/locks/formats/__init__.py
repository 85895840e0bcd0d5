"""Formats of locks, one file each."""
