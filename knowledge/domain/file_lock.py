"""Locks between processes: one open file holds each lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def lock_file(path: Path) -> IO[str] | None:
    """Lock a file without waiting; the lock is released when the last process that has the open file closes it.

    Args:
        path: The file; it is created if it does not exist.

    Returns:
        The open file, which holds the lock, or none if another open file holds it.

    Raises:
        OSError: If the file cannot be opened or locked.
    """
    # Only Unix has this module, and most commands need no lock.
    import fcntl

    file = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Lock a directory against other processes that lock it, and wait for them; no file is left in it.

    Args:
        path: The directory.

    Raises:
        OSError: If it cannot be opened or locked.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
