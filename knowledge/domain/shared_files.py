"""Files: reading, atomic writes, and locks that one open file holds."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from knowledge.domain.errors import InputError

if sys.platform != "win32":
    import fcntl


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file by new content; after an interruption the file has its old or its new content.

    Its directory exists. With ``durable``, wait until the content is on the disk.

    Raises:
        InputError: If the file cannot be written.
    """
    with _temporary_file(path, content, durable=durable) as temporary:
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)


def write_all(texts: Mapping[Path, str]) -> None:
    """Write files whose texts were all made before the first is written.

    Raises:
        InputError: If a file cannot be written.
    """
    for path, text in texts.items():
        write_atomically(path, text)


def create_atomically(path: Path, content: str | bytes) -> bool:
    """Create a file in an existing directory, complete and durable; return whether it did not exist.

    Only one of several concurrent callers creates the file, also on a network file system.

    Raises:
        InputError: If the file cannot be written.
    """
    with _temporary_file(path, content, durable=True) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return True


@contextmanager
def _temporary_file(path: Path, content: str | bytes, *, durable: bool) -> Iterator[str]:
    """Write content to a temporary file in the folder of a path; remove it at the end if it still exists."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    except OSError as error:
        raise InputError(f"`{path}` could not be written: {error.strerror or error}") from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InputError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON document; an empty one if the file is absent or damaged."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document


def lock_file(path: Path) -> IO[str] | None:
    """Lock a file without waiting, and create it if it does not exist; ``None`` if another open file holds the lock.

    The lock is released when the last process that has the open file closes it.

    Raises:
        OSError: If the file cannot be opened or locked.
    """
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

    Raises:
        OSError: If it cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
