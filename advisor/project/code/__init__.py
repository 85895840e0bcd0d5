"""The source code of a project, which is read and never executed."""
