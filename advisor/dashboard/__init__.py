"""A web dashboard for a knowledge base: what was measured, how stacks compare, and the advice for a project."""
