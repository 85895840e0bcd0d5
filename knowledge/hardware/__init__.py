"""Hardware profiles: detected, shipped, or read from a file."""
