"""The project: its requirements, and what its sources do."""
