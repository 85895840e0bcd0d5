"""NumPy."""
