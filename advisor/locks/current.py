"""The current stack of a project: its lock, and the interpreter that this is for, or the packages of an environment."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.pylock import is_valid_pylock_path
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.locks.lock import Lock, LockedVersion
from advisor.locks.read import read_lock
from advisor.project.formats.requirements import PINNED, has_pins, is_pinned
from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

LOCKS = ("pylock.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
"""Names of locks in the directory of a project; the first that exists is used.

If there is none, a `requirements.txt` is the lock if every line has an exact version.
"""

_MINOR = re.compile(r"==(\d+\.\d+)\.\*")
_FIRST_LINE = re.compile(r"# by advisor, for Python (\d+\.\d+) ")
_LIST = """
import importlib.metadata as m, json
# `direct_url.json` says that a package was installed from a directory, repository or URL (PEP 610).
print(json.dumps([[d.metadata["Name"], d.version, d.read_text("direct_url.json")] for d in m.distributions()]))
"""


def read_current(choice: str | None, directory: Path, target: Target, *, names_unpinned: bool = False) -> Lock | None:
    """Return the current stack of a project; none if it has no lock and the user chose none.

    Args:
        choice: A lock, an interpreter, or the directory of a virtual environment; by default the project's own lock.
        directory: The directory of the project.
        target: The target whose packages are read from a lock for several targets.
        names_unpinned: Whether a `requirements.txt` of which only some lines have exact versions is an error that names
            another line; by default it is no lock.

    Raises:
        InputError: If the lock or the environment cannot be read.
    """
    if choice is None:
        lock, pinned = own_lock(directory), directory / PINNED
        if lock is None and names_unpinned and pinned.is_file() and has_pins(pinned):
            lock = pinned
        return None if lock is None else read_lock(lock, target)
    path = Path(choice)
    if path.is_dir():
        python = next((p for p in (path / "bin" / "python", path / "Scripts" / "python.exe") if p.exists()), None)
        if python is None:
            raise InputError(f"`{path}` is not a virtual environment: it has no interpreter")
        return _installed(python)
    if path.suffix in (".toml", ".lock", ".txt", ".json") or not path.exists():
        return read_lock(path, target)
    return _installed(path)


def own_lock(directory: Path) -> Path | None:
    """Return the lock in the directory of a project; none if there is no lock.

    Raises:
        InputError: If `requirements.txt`, which may be a lock, cannot be read.
    """
    lock = next((directory / name for name in LOCKS if (directory / name).is_file()), None)
    pinned = directory / PINNED
    return lock or (pinned if pinned.is_file() and is_pinned(pinned) else None)


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
    """Return `major.minor` of the interpreter that a lock is for; none if it does not state exactly one.

    Args:
        path: A `pylock.toml` or a requirements file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if not is_valid_pylock_path(path):
            match = _FIRST_LINE.match(text)
        else:
            match = _MINOR.fullmatch(str(parse_toml(text).get("requires-python", "")))
    except (OSError, ValueError, RecursionError):
        return None
    return match[1] if match else None
