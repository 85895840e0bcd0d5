"""The current stack of a project: its lock, and the interpreter that this is for, or the packages of an environment."""

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
from advisor.locks.lock import Lock, LockedVersion
from advisor.locks.registry import format_of, format_to_read, own_lock, read_lock
from advisor.project.formats.requirements import PINNED, pins
from knowledge.domain.errors import InputError

_SUFFIXES = (".lock", ".json")
"""Suffixes of locks in formats that are not read: no interpreter has one of them."""
_LIST = """
import importlib.metadata as m, json
# `direct_url.json` says that a package was installed from a directory, repository or URL (PEP 610).
print(json.dumps([[d.metadata["Name"], d.version, d.read_text("direct_url.json")] for d in m.distributions()]))
"""


def read_current(choice: str | None, directory: Path, target: Target, *, names_unpinned: bool = False) -> Lock | None:
    """Return the current stack of a project; `None` if it has no lock and the user chose none.

    Args:
        choice: A lock, an interpreter, or the directory of a virtual environment; by default the project's own lock.
        directory: The directory of the project.
        target: The target whose packages are read from a lock for several targets.
        names_unpinned: Whether a `requirements.txt` in which only some lines have exact versions is an error that names
            another line; by default it is no lock.

    Raises:
        InputError: If the lock or the environment cannot be read.
    """
    if choice is None:
        lock, pinned = own_lock(directory), directory / PINNED
        if lock is None and names_unpinned and pinned.is_file() and any(pins(pinned)):
            lock = pinned
        return None if lock is None else read_lock(lock, target)
    path = Path(choice)
    if path.is_dir():
        python = next((p for p in (path / "bin" / "python", path / "Scripts" / "python.exe") if p.exists()), None)
        if python is None:
            raise InputError(f"`{path}` is not a virtual environment: it has no interpreter")
        return _installed(python)
    if path.suffix in _SUFFIXES or format_of(path) or not path.exists():
        return read_lock(path, target)
    return _installed(path)


def within(lock: Lock, roots: Iterable[RootRequirement]) -> Lock:
    """Return the lock with ``is_project`` set if the requirements of the project come from the lock itself."""
    return replace(lock, is_project=any(root.path == str(lock.path) and not root.constraint for root in roots))


def _installed(python: Path) -> Lock:
    """Return the packages that are installed in the environment of an interpreter."""
    try:
        process = subprocess.run(
            [str(python), "-I", "-c", _LIST],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=60,
        )
        distributions = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(
            f"the packages that `{python}` has installed cannot be listed: {error}",
            hint="set `--current` to a lock, an interpreter or the directory of a virtual environment",
        ) from None
    packages: dict[NormalizedName, LockedVersion] = {}
    for name, version, direct in distributions:
        try:
            url = str(json.loads(direct).get("url", "")) if direct else ""
            # Of several distributions with one name, Python imports the first.
            installed = LockedVersion(version=Version(version), direct_reference=url)
            packages.setdefault(canonicalize_name(str(name)), installed)
        except (InvalidVersion, TypeError, ValueError, AttributeError):
            continue
    return Lock(path=None, packages=packages)


def locked_python(path: Path) -> str | None:
    """Return `major.minor` of the interpreter that a lock is for; `None` if it does not state exactly one."""
    try:
        return format_to_read(path).python(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, InputError):
        return None
