"""A small project whose benchmark prints seconds that its packages determine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

PROJECT = """
[project]
name = "demo"
version = "1"
dependencies = ["lib"]

[tool.advisor.benchmark]
command = "python bench.py"
metric = { pattern = "seconds: ([0-9.]+)", unit = "s", better = "lower" }
"""
PROGRAM = "import lib\nprint('seconds:', lib.seconds())\n"
NOISE = "import random\ndef seconds():\n    return {} * random.gauss(1, 0.004)\n"
"""Code of the package `lib` that needs a number of seconds."""


def make_project(folder: Path, names: Sequence[str] = ("lib",), program: str = PROGRAM) -> Path:
    """Write a project that requires some packages, and return its folder."""
    folder.mkdir()
    requirements = ", ".join(f'"{name}"' for name in names)
    (folder / "pyproject.toml").write_text(PROJECT.replace('"lib"', requirements))
    (folder / "bench.py").write_text(program)
    return folder


def error_of(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a command, which has a hint."""
    [error] = [line for line in completed.stderr.splitlines() if line.startswith("error: ")]
    assert "hint: " in completed.stderr
    return error
