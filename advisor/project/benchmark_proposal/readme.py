"""Commands in the README files of a project that run its programs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath

from advisor.project.code.files import SourceFile
from advisor.project.settings.shell_variables import commands_of, logical_lines

README_FILES = ("README*",)
_COMMAND = re.compile(r"\W*(?:\w+=\S+\s+)*(?:python[0-9.]*|torchrun|accelerate|deepspeed|horovodrun|uv|poetry)\s")
_PLACEHOLDER = re.compile(r"[<>$*{}\[\]]|\.\.\.|path[_/-]to|your|^/")
_REDIRECTIONS = (">", "2>")
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

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Words that are to be replaced, such as ``<path>``."""
        return tuple(w for w in self.arguments if _PLACEHOLDER.search(w.rpartition("=")[2] or w))


def readme_commands(readmes: Sequence[SourceFile], programs: Collection[str]) -> dict[str, ReadmeCommand]:
    """Return the first command in README files of each of some programs, preferably without placeholders."""
    commands: dict[str, ReadmeCommand] = {}
    for file in sorted(readmes, key=lambda file: len(PurePath(file.name).parts))[:_MOST_FILES]:
        for name, command in _commands(file, programs):
            if name not in commands or (commands[name].placeholders and not command.placeholders):
                commands[name] = command
    return commands


def _commands(file: SourceFile, programs: Collection[str]) -> Iterator[tuple[str, ReadmeCommand]]:
    """Yield the commands in a README file, each with its program."""
    try:
        lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return
    readme = PurePath(file.name)
    for number, line in logical_lines(lines, "\\"):
        if not _COMMAND.match(line):
            continue
        for words in commands_of(line.strip("`$> \t!%*-").partition("`")[0]):
            for index, (before, word) in enumerate(zip(["", *words], words, strict=False)):
                path = f"{word.replace('.', '/')}.py" if before == "-m" else word.removeprefix("./")
                paths = (path, (readme.parent / path).as_posix(), f"src/{path}")
                if name := next((path for path in paths if path in programs), ""):
                    arguments = takewhile(lambda w: not w.startswith(_REDIRECTIONS), words[index + 1 :])
                    yield name, ReadmeCommand(arguments=tuple(arguments), place=f"{readme.as_posix()}:{number}")
                    break
