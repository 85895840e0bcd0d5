"""Profiles of PyTorch."""
