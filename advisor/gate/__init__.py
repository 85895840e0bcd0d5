"""The gate: what is wrong with the stack that a project has now, and what a change to it does."""
