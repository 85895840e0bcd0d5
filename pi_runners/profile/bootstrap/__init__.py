"""Code that runs inside a profiled program; its directory is on the program's `PYTHONPATH`."""
