"""Observations that ship with the program."""
