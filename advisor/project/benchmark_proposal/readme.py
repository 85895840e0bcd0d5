"""Commands in the documentation of a project that run its programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from advisor.project.text_file import read_text
from knowledge.domain.errors import InputError

_COMMAND = re.compile(
    r"^\W*(?:\w+=\S+\s+)*(?:python[0-9.]*|torchrun|accelerate|deepspeed|horovodrun|uv|poetry)\s.*\.py\b|^\W*(?:\w+=\S+\s+)*python[0-9.]*\s+-m\s"
)
_PLACEHOLDER = re.compile(r"[<>$*{}\[\]]|\.\.\.|path[_/-]to|your|^/")
_MOST_FILES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadmeCommand:
    """A command that runs a program.

    Attributes:
        arguments: Words after the program.
        place: File and line, such as ``README.md:12``.
    """

    arguments: tuple[str, ...]
    place: str


def is_placeholder(word: str) -> bool:
    """Whether a word of a documented command is to be replaced, such as ``<path>``."""
    return _PLACEHOLDER.search(word.rpartition("=")[2] or word) is not None


def readme_commands(directory: Path, programs: Collection[str]) -> dict[str, ReadmeCommand]:
    """Return the first command in README files of each of some programs, preferably without placeholders."""
    commands: dict[str, ReadmeCommand] = {}
    folders = sorted({PurePosixPath(name).parent for name in programs}, key=lambda p: (len(p.parts), p))
    paths = [
        path for folder in folders[:200] for path in sorted((directory / folder).glob("README*")) if path.is_file()
    ]
    for path in paths[:_MOST_FILES]:
        try:
            text = read_text(path)
        except InputError:
            continue
        place = path.relative_to(directory)
        for number, line in _joined_lines(text):
            parsed = _parsed(line, path.parent.relative_to(directory).as_posix(), programs)
            if parsed is None:
                continue
            name, arguments = parsed
            present = commands.get(name)
            if present is None or (
                any(map(is_placeholder, present.arguments)) and not any(map(is_placeholder, arguments))
            ):
                commands[name] = ReadmeCommand(arguments=arguments, place=f"{place.as_posix()}:{number}")
    return commands


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines, each with the number of its first line; a backslash at the end continues a line."""
    first, joined = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        first = first if joined else number
        joined += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield first, joined
            joined = ""


def _parsed(line: str, folder: str, programs: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the program that a line runs and the words after it; ``None`` if it runs none."""
    if not _COMMAND.match(line):
        return None
    try:
        words = shlex.split(line.strip("`$> \t#!%*-").partition("`")[0], comments=True)
    except ValueError:
        return None
    for number, word in enumerate(words):
        path = word.removeprefix("./")
        if number and words[number - 1] == "-m":
            path = f"{word.replace('.', '/')}.py"
        for name in (path, f"{folder}/{path}", f"src/{path}"):
            if name in programs:
                rest = words[number + 1 :]
                end = next((n for n, w in enumerate(rest) if w in ("&&", "|", ";", ">", "&", "||", "2>&1")), len(rest))
                return name, tuple(rest[:end])
    return None
