"""Estimation of the speed of stacks from observations."""
