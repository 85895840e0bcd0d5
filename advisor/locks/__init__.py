"""Locks: one file for each format reads and writes it, and the run-time settings that locks record."""
