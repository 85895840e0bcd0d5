"""Directories of the user's knowledge base and cache, with temporary replacements if they cannot be written."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from knowledge.domain.errors import UnavailableError
from knowledge.store.state_hash import default_path

logger = logging.getLogger(__name__)


def cache_directory(directory: Path | None) -> Path:
    """Return the cache directory: the given one, or the user's; a temporary one where that cannot be created.

    Raises:
        UnavailableError: If no directory can be written at all.
    """
    if directory is None:
        try:
            directory = user_cache_path("seshat")
        except RuntimeError:
            return _usable_cache(None)
        # Older versions of platformdirs return a path below `~` where there is no home directory.
        directory = directory if directory.is_absolute() else None
    return _usable_cache(directory)


def advisory_database_path() -> Path | None:
    """Return the file of the user's copy of an advisory database; ``None`` without a home directory."""
    knowledge = default_path()
    return None if knowledge is None else knowledge.with_name("advisories.sqlite")


def readable_address(address: str | None) -> str:
    """Return the address of the knowledge base to read: the chosen one, or the user's own.

    Where the user's own does not exist and cannot be created, a temporary one with the observations that ship takes its
    place; a warning is logged once.

    Raises:
        UnavailableError: If no directory can be written at all.
    """
    return address or _usable_knowledge_base(default_path())


@functools.cache
def _usable_knowledge_base(path: Path | None) -> str:
    if path is not None and _exists(path):
        return f"sqlite:///{path}"
    reason = _reason_against(None if path is None else path.parent)
    if path is None or reason:
        what = "a knowledge base" if path is None else f"the knowledge base `{path}`"
        logger.warning(f"{what} cannot be created: {reason}; only the observations that ship with the program are used")
        path = _temporary() / "knowledge.sqlite"
    return f"sqlite:///{path}"


@functools.cache
def _usable_cache(directory: Path | None) -> Path:
    reason = _reason_against(directory)
    if directory is None:
        logger.warning(f"a cache cannot be created: {reason}; nothing is cached for the next run")
        return _temporary()
    if not reason:
        return directory
    if _exists(directory):
        logger.warning(
            f"the cache `{directory}` cannot be written: {reason}; new entries are not cached for the next run"
        )
        return directory
    logger.warning(f"the cache `{directory}` cannot be created: {reason}; nothing is cached for the next run")
    return _temporary()


def _reason_against(directory: Path | None) -> str:
    """Create a directory if it does not exist; return why files cannot be written to it, or an empty text."""
    if directory is None:
        return "there is no home directory"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return str(error.strerror or error).lower()
    # For the superuser this also detects file systems that are mounted read-only.
    return "" if os.access(directory, os.W_OK | os.X_OK) else "permission denied"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


@functools.cache
def _temporary() -> Path:
    """Return a directory that ends with the program."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="advisor-"))
    except OSError as error:
        raise UnavailableError(
            f"no temporary directory can be created: {error.strerror or error}",
            hint="set `TMPDIR` to a directory that can be written",
        ) from None
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
