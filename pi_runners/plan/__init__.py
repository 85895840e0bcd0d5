"""Blocks of measurements: stacks, settings and indicator cases, from options, matrix files and profiles."""
