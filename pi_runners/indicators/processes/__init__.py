"""Indicators that start processes, or prepare input: start-up, communication, input pipelines."""
