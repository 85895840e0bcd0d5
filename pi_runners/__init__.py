"""Measures performance indicators over stacks in isolated environments."""
