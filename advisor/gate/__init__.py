"""The gate: checks of the stack that a project has locked, and of a change of that lock."""
