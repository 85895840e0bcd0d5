"""The stack that a project has now: its lock, or what an interpreter has installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.project.locks import Locked, read_lock
from advisor.resolve.target import Target
from knowledge.domain.errors import InputError

LOCKS = ("pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
"""Locks that are looked for in a project's directory, in this order."""

_LIST = (
    "import importlib.metadata as m, json; "
    "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
)


def read_current(named: str | None, directory: Path, target: Target) -> Locked | None:
    """Return the versions that a project has now; none where it has no lock and none was named.

    Args:
        named: A lock, an interpreter, or the directory of a virtual environment; by default the project's own lock.
        directory: The project's directory.
        target: What a lock for many targets is read for.

    Raises:
        InputError: If what was named cannot be read.
    """
    if named is None:
        found = next((directory / name for name in LOCKS if (directory / name).is_file()), None)
        return None if found is None else read_lock(found, target)
    path = Path(named)
    if path.is_dir():
        python = next((p for p in (path / "bin" / "python", path / "Scripts" / "python.exe") if p.exists()), None)
        if python is None:
            raise InputError(f"`{path}` is not a virtual environment: it has no interpreter")
        return _installed(python)
    if path.suffix in (".toml", ".lock", ".txt") or not path.exists():
        return read_lock(path, target)
    return _installed(path)


def _installed(python: Path) -> Locked:
    """Ask an interpreter what is installed for it."""
    try:
        done = subprocess.run([str(python), "-I", "-c", _LIST], capture_output=True, text=True, check=True, timeout=60)
        listed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(
            f"`{python}` did not tell what it has installed: {error}",
            hint="name a lock, an interpreter or the directory of a virtual environment with `--current`",
        ) from None
    locked: Locked = {}
    for name, version in listed:
        try:
            # The first one found is the one that is imported.
            locked.setdefault(canonicalize_name(str(name)), Version(version))
        except (InvalidVersion, TypeError):
            continue
    return locked
