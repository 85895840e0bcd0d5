"""Estimation of the speed of stacks from measured ratios."""
