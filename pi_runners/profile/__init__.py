"""Profiles of a user's own program: runs it with its framework's profiler, and reads the traces."""
