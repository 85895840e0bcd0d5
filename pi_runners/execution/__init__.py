"""Runs blocks: environments, processes, rounds and telemetry."""
