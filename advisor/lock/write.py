"""Writes a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from knowledge.domain.errors import InputError


def write_atomically(path: Path, text: str) -> None:
    """Write a text file whole or not at all; see :func:`write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it, so that an interrupted run leaves the old one.

    Raises:
        InputError: If the file cannot be written.
    """
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644 if not path.exists() else path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"`{path}` could not be written: {error.strerror or error}") from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
