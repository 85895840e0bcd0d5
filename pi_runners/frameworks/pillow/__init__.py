"""Pillow."""
