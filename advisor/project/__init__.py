"""The project: its requirements, its lock, its settings, and the workload that its source files indicate."""
