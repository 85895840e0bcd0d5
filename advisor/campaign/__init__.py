"""Turns a matrix into blocks that can be run: what is dropped, and what it takes."""
