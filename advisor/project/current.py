"""The stack that a project has now: its lock, or what an interpreter has installed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.project.locks import Lock, LockedVersion, read_lock
from knowledge.domain.errors import InputError

LOCKS = ("pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
"""Locks that are looked for in a project's directory, in this order."""

PINNED = "requirements.txt"
"""Looked for after them: a lock where every line is an exact version."""

_LIST = """
import importlib.metadata as m, json
# What was installed from a directory, a repository or an address says so itself (PEP 610).
print(json.dumps([[d.metadata["Name"], d.version, d.read_text("direct_url.json")] for d in m.distributions()]))
"""


def read_current(named: str | None, directory: Path, target: Target) -> Lock | None:
    """Return what a project has now; none where it has no lock and none was named.

    Args:
        named: A lock, an interpreter, or the directory of a virtual environment; by default the project's own lock.
        directory: The project's directory.
        target: What a lock for many targets is read for.

    Raises:
        InputError: If what was named cannot be read.
    """
    if named is None:
        own = own_lock(directory)
        return None if own is None else read_lock(own, target)
    path = Path(named)
    if path.is_dir():
        python = next((p for p in (path / "bin" / "python", path / "Scripts" / "python.exe") if p.exists()), None)
        if python is None:
            raise InputError(f"`{path}` is not a virtual environment: it has no interpreter")
        return _installed(python)
    if path.suffix in (".toml", ".lock", ".txt", ".json") or not path.exists():
        return read_lock(path, target)
    return _installed(path)


def own_lock(directory: Path) -> Path | None:
    """Return the lock that a project's directory holds; none where it has none.

    Raises:
        InputError: If a requirements file cannot be read to see whether it is one.
    """
    found = next((directory / name for name in LOCKS if (directory / name).is_file()), None)
    pinned = directory / PINNED
    return found or (pinned if pinned.is_file() and is_pinned(pinned) else None)


def within(lock: Lock, roots: Iterable[RootRequirement]) -> Lock:
    """Return a lock that knows whether it is itself where its project says what it requires."""
    return replace(lock, is_project=any(root.path == str(lock.path) and not root.constraint for root in roots))


def is_pinned(path: Path) -> bool:
    """Whether a requirements file gives an exact version of everything it requires, and requires anything.

    Raises:
        InputError: If it cannot be read.
    """
    from advisor.project.requirements import read_requirements

    roots = [root for root in read_requirements(path).roots if not root.constraint]
    return bool(roots) and all(
        any(s.operator in ("==", "===") and "*" not in s.version for s in root.requirement.specifier) for root in roots
    )


def _installed(python: Path) -> Lock:
    """Ask an interpreter what is installed for it."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _LIST],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=60,
        )
        listed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(
            f"`{python}` did not tell what it has installed: {error}",
            hint="name a lock, an interpreter or the directory of a virtual environment with `--current`",
        ) from None
    packages: dict[NormalizedName, LockedVersion] = {}
    for name, version, direct in listed:
        try:
            elsewhere = str(json.loads(direct).get("url", "")) if direct else ""
            # The first one found is the one that is imported.
            found = LockedVersion(version=Version(version), elsewhere=elsewhere)
            packages.setdefault(canonicalize_name(str(name)), found)
        except (InvalidVersion, TypeError, ValueError, AttributeError):
            continue
    return Lock(path=None, packages=packages)
