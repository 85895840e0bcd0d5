"""Profiles of JAX."""
