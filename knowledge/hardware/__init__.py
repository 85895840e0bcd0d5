"""Hardware profiles: detected, shipped with the program, or read from a file."""
