"""Functions that several tests of the gate share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., dict[str, Any]]
"""Runs the gate and returns its JSON report."""


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    own = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def places(document: dict[str, Any]) -> set[tuple[str, str, int]]:
    """Return code, file and line of each finding except notes."""
    return {(f["code"], f["path"], f["line"]) for f in document["findings"] if f["level"] != "note"}


def change(path: Path, old: str, new: str) -> int:
    """Replace a text in a file that contains it; return the line of its first occurrence."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1
