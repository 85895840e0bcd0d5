"""The error for a file of a project that cannot be read, with the line and the package."""

from __future__ import annotations

from pathlib import Path

from knowledge.domain.errors import InputError

MAX_BYTES = 16 * 1024**2
"""Maximum size of a lock or a requirements file."""


class UnreadableFileError(InputError):
    """Raised when a lock or a requirements file exists but cannot be read.

    Attributes:
        path: The file.
        line: Line of the error, from 1.
        package: Package that the line is about; empty if unknown.
    """

    def __init__(self, message: str, *, path: Path, line: int = 1, package: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line
        self.package = package


def check_size(path: Path) -> None:
    """Check the size of a file, because reading it needs many times its size of memory.

    Raises:
        OSError: If the file does not exist.
        UnreadableFileError: If it is larger than :data:`MAX_BYTES`.
    """
    if path.stat().st_size > MAX_BYTES:
        raise UnreadableFileError(f"`{path}` cannot be read: it is larger than {MAX_BYTES} bytes", path=path)
