"""Environments of benchmarks, with packages of the index that pip is configured to use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def make_environment(requirements: Sequence[str], folder: Path) -> Path:
    """Install packages for this interpreter with pip, whose configuration names the index and the pages of links.

    Returns:
        The interpreter of the environment.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-compile", *requirements], check=True)
    return python
