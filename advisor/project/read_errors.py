"""A file of a project that cannot be read: which, where, and what package it is about."""

from __future__ import annotations

from pathlib import Path

from knowledge.domain.errors import InputError

MOST_BYTES = 16 * 1024**2
"""The largest lock or requirements file that is read."""


class UnreadableFileError(InputError):
    """Raised when a lock or a requirements file is there, but cannot be read.

    Attributes:
        path: The file.
        line: Line that the error is on, from 1.
        package: The package that it is about, or empty.
    """

    def __init__(self, message: str, *, path: Path, line: int = 1, package: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line
        self.package = package


def check_size(path: Path) -> None:
    """Make sure that a file is no larger than locks are: reading one takes many times its size in memory.

    Raises:
        OSError: If there is no such file.
        UnreadableFileError: If it is larger.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UnreadableFileError(f"`{path}` cannot be read: it has more than {MOST_BYTES} bytes", path=path)
