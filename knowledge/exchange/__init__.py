"""Observations on their way between knowledge bases: records and files."""
