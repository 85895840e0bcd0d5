"""Reference pages and lists of what the program ships: builds, hardware, indicators, settings, workloads."""
