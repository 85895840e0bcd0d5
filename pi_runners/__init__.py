"""Measures performance indicators over stacks in isolated environments."""

from knowledge.domain import framework_packages

framework_packages.add(f"{__name__}.frameworks")
