"""The source files of a project, and the code that they contain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 10_000
"""Maximum number of source files that are read."""
MOST_FILE_BYTES = 2_000_000
"""Larger files are not read."""
_MOST_DIRECTORIES = 5000
_SUFFIXES = (".py", ".ipynb")
_SKIPPED_DIRECTORIES = frozenset(
    {"node_modules", "site-packages", "build", "dist", "__pycache__", "tests", "test", "docs"}
)


class SourceFile(NamedTuple):
    """A Python file or notebook.

    Attributes:
        name: Path relative to the project, with the separator of the system.
        path: Path.
        size: Size in bytes.
        modified: Time of the last change in nanoseconds.
    """

    name: str
    path: str
    size: int
    modified: int

    @property
    def is_notebook(self) -> bool:
        """Whether the file is a notebook."""
        return self.name.endswith(".ipynb")

    def read(self) -> bytes:
        """Return the content of the file.

        Raises:
            OSError: If it cannot be read.
        """
        with open(self.path, "rb", buffering=0) as file:
            return file.read()


def source_files(directory: Path) -> Iterator[SourceFile]:
    """Yield the source files of a project, those of a directory before its subdirectories, at most 10 000.

    Files of tests, documentation, builds, environments and hidden directories are left out.
    """
    waiting = [""]
    files = directories = 0
    while waiting and directories < _MOST_DIRECTORIES:
        folder = waiting.pop()
        directories += 1
        inside: list[str] = []
        for entry in _entries(os.path.join(directory, folder)):
            name = os.path.join(folder, entry.name)
            if entry.name.endswith(_SUFFIXES) and (found := _file(entry, name)) is not None:
                files += 1
                if files > MOST_FILES:
                    return
                yield found
            elif _is_searched(entry):
                inside.append(name)
        waiting.extend(reversed(inside))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _file(entry: os.DirEntry[str], name: str) -> SourceFile | None:
    try:
        if not entry.is_file():
            return None
        status = entry.stat()
    except OSError:
        return None
    if status.st_size >= MOST_FILE_BYTES:
        return None
    return SourceFile(name=name, path=entry.path, size=status.st_size, modified=status.st_mtime_ns)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name.startswith(".") or name in _SKIPPED_DIRECTORIES:
        return False
    try:
        return entry.is_dir(follow_symlinks=False) and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
    except OSError:
        return False


def code_of(content: bytes, *, is_notebook: bool) -> str:
    """Return the code of a source file; for a notebook, the code of its cells without magics and shell commands.

    Raises:
        ValueError: If a notebook is not JSON.
        AttributeError, TypeError: If it is JSON of another kind.
    """
    text = content.decode("utf-8", "replace")
    if not is_notebook:
        return text
    sources = [cell.get("source", []) for cell in json.loads(text).get("cells", []) if cell.get("cell_type") == "code"]
    # The source of a cell is a text, or a list of its lines.
    lines = [line for source in sources for line in [*"".join(source).splitlines(keepends=True), "\n"]]
    return "".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
