"""Reads text files of a project in the encodings that editors write; the error for one that cannot be read."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge.domain.documents import lines_of, parse_toml
from knowledge.domain.errors import InputError

MAX_BYTES = 16 * 1024**2
"""Maximum size of a lock or a requirements file."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


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


def decode(content: bytes) -> str:
    """Return the text of a file: as its byte order mark says, else UTF-8, else Latin-1.

    Raises:
        ValueError: If its content is not valid in the encoding of its byte order mark.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def read_text(path: Path) -> str:
    """Return the text of a file, in which each line ends with a line feed.

    Raises:
        InputError: If it cannot be read, or is larger than 16 MiB.
    """
    try:
        check_size(path)
        if not path.is_file():
            raise InputError(f"`{path}` cannot be read: it is not a regular file")
        with path.open("rb") as file:
            text = decode(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UnreadableFileError(f"`{path}` cannot be read: {error}", path=path) from None
    return text.replace("\r\n", "\n")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file of a project in TOML.

    Attributes:
        path: The file.
        text: Its text, for line numbers.
        document: Its content.
    """

    path: Path
    text: str
    document: Mapping[str, Any]

    def at(self, *names: str) -> Any:
        """Return the table with a dotted name, such as ``("tool", "uv")``; empty if there is none."""
        table: Any = self.document
        for name in names:
            table = table.get(name, {})
        return table

    def place(self, text: str) -> str:
        """Return ``FILE:LINE`` of the first line that contains a text; only the file if no line contains it."""
        return place_of(self.path, self.text, text)

    def entry_place(self, name: str) -> str:
        """Return ``FILE:LINE`` of the entry of a package; only the file if no line contains the name."""
        return place_of(self.path, self.text, f"{name} =", name)

    def place_after(self, *parts: str) -> str:
        """Return ``FILE:LINE`` of the last of several texts, as :func:`line_in` finds it."""
        return f"{self.path.name}:{line_in(self.text, *parts)}"


def read_toml(path: Path, *, hint: str = "") -> TomlFile:
    """Return a file in TOML; the hint says what to do if it is not TOML.

    Raises:
        InputError: If it cannot be read or is not TOML.
    """
    text = read_text(path)
    try:
        return TomlFile(path, text, parse_toml(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not valid TOML: {error}", hint=hint) from None


def toml_text(document: Mapping[str, Any]) -> str:
    """Return a document as text in TOML."""
    # A remembered advice writes none.
    import tomli_w

    return tomli_w.dumps(document)


def line_of(text: str, part: str) -> int:
    """Return the number of the first line that contains a text; 0 if no line contains it."""
    return next((number for number, content in enumerate(lines_of(text), start=1) if part in content), 0)


def place_of(path: Path, text: str, *parts: str) -> str:
    """Return ``FILE:LINE`` of the first line with one of several texts, the first that occurs; else the file."""
    line = next(filter(None, (line_of(text, part) for part in parts)), 0)
    return f"{path.name}:{line}" if line else path.name


def line_in(text: str, *parts: str) -> int:
    """Return the number of the line that contains the last of several parts, from 1.

    Args:
        text: The text to search.
        parts: Strings in the order in which they occur; each is searched for after the one before. One that does not
            occur is skipped.
    """
    position = 0
    for part in parts:
        position = max(position, text.find(part, position))
    return text.count("\n", 0, position) + 1
