"""Project pages: what an index lists for one project."""
