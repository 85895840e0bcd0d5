"""Proposes a benchmark for a project: a program, a command with few steps, and a metric."""
