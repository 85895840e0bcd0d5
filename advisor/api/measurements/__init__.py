"""Measurements on this machine and in campaigns."""
