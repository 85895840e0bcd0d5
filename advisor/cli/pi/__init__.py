"""`advisor pi`."""
