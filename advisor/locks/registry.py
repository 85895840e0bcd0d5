"""The formats of locks: all modules of :mod:`advisor.locks.formats`, and which one a file has.

An `InputError` is raised for a file name that no format has, and for a file or directory that does not exist.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from advisor.domain.target import Target
from advisor.domain.words import in_words
from advisor.locks import formats
from advisor.locks.interface import LockFormat
from advisor.locks.lock import Lock
from knowledge.domain.errors import InputError

SETTINGS_FILE = "advisor-settings.toml"
"""Name of the file with the run-time settings of a lock whose format has none."""


@cache
def lock_formats() -> tuple[LockFormat, ...]:
    """Return all formats; the first lock in the directory of a project is its current one."""
    modules = [importlib.import_module(f"{formats.__name__}.{m.name}") for m in pkgutil.iter_modules(formats.__path__)]
    return tuple(sorted((module.FORMAT for module in modules), key=lambda lock_format: lock_format.order))


def default_format() -> LockFormat:
    """Return the format that is written if no lock is named: the first in which each target may have a lock."""
    return next(lock_format for lock_format in lock_formats() if lock_format.target_name)


def files_with_settings() -> tuple[str, ...]:
    """Return the names of files in a project's directory that may have the run-time settings of its lock."""
    return (*(lock_format.name for lock_format in lock_formats() if lock_format.holds_settings), SETTINGS_FILE)


def format_of(path: Path) -> LockFormat | None:
    """Return the format of a lock, which its file name determines; `None` if no lock has such a name."""
    return next((lock_format for lock_format in lock_formats() if lock_format.reads(path)), None)


def format_to_read(path: Path) -> LockFormat:
    """Return the format of a lock."""
    if lock_format := format_of(path):
        return lock_format
    names = [f"`{name}`" for lock_format in lock_formats() for name in lock_format.patterns or (lock_format.name,)]
    raise InputError(f"`{path}` is not the name of a lock", hint=f"supported are {in_words(names, 'and')}")


def format_to_write(path: Path) -> LockFormat:
    """Return the format to write a lock in, before any work is done for it."""
    lock_format = next((lock_format for lock_format in lock_formats() if lock_format.writes(path)), None)
    if lock_format is None:
        names = [f"`{name}`" for lock_format in lock_formats() for name in lock_format.written_names]
        raise InputError(
            f"`{path.name}` is not the name of a lock that can be written", hint=f"name it {in_words(names, 'or')}"
        )
    if not path.parent.is_dir():
        raise InputError(
            f"`{path.parent}` is not a directory", hint="name a project, or a lock file in an existing directory"
        )
    return lock_format


def read_lock(path: Path, target: Target) -> Lock:
    """Return the packages of a lock for a target: from a lock for several targets, those that apply to it.

    Raises:
        InputError: If the file name matches no format, or the file does not exist.
        UnreadableFileError: If the file cannot be read, or is not a lock.
    """
    return format_to_read(path).read(path, target)


def own_lock(directory: Path) -> Path | None:
    """Return the lock in the directory of a project; `None` if there is no lock."""
    locks = (lock_format.current(directory) for lock_format in lock_formats())
    return next((path for path in locks if path is not None), None)
