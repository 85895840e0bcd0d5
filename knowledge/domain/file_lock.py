"""Locks between processes: one open file holds each lock."""

from __future__ import annotations

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
