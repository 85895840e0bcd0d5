"""Profiles the program that imports it: counts its steps, and runs the profiler of its framework.

This package, and the hooks of the frameworks (``pi_runners.frameworks.*.profile``), run inside the user's program: on
Python 3.8 and newer, with the standard library and the framework that the program imports. There, the root package has
the name ``seshat_hooks``, so their imports are relative. A failure of the profiler never changes the program: it is
reported on standard error.
"""

from .imports import start

__all__ = ["start"]
