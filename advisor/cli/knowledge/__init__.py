"""`advisor knowledge`."""
