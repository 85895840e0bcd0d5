"""The gate: judge the lock of a project, and change it as little as needed."""
