"""What is read of a program of a project: its options, with the places that declare them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal


@cache
def names() -> Mapping[str, Any]:
    """Return the names of options and programs that the file ``names.toml`` lists."""
    return tomllib.loads(files(__package__).joinpath("names.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOption:
    """An option of a program.

    Attributes:
        flag: What is written on the command line, such as ``--max-steps``; the name of an argument without a flag.
        place: File and line that declare it, such as ``train.py:12``.
        form: How a value is written: ``--steps 5``, ``--steps=5``, ``steps=5`` (Hydra), the value alone, or, for a
            switch, no value.
        default: Its default; ``None`` if it has none, or only running the program shows it.
        required: Whether the program does not start without it.
        choices: Values that it admits; empty if the code does not list them.
    """

    flag: str
    place: str
    form: Literal["space", "equals", "assignment", "argument", "switch"] = "space"
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name as `names.toml` writes it."""
        return self.flag.lstrip("-").rpartition(".")[2].replace("-", "_").lower()

    def kind(self) -> str:
        """Return the list of ``names.toml`` that has its name; empty if none has."""
        return next((kind for kind, listed in names()["options"].items() if self.name in listed), "")

    def words(self, value: object) -> list[str]:
        """Return the words of a command that give it a value."""
        if self.form == "switch":
            return [self.flag]
        if self.form == "argument":
            return [str(value)]
        return [self.flag, str(value)] if self.form == "space" else [f"{self.flag}={value}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The command line of a program, as its code declares it.

    Attributes:
        options: Options and arguments, in the order of their declaration.
        obstacle: Why a command cannot be completed by its options alone, such as subcommands; empty if it can.
        further_files: Other files that decide what the program does, such as configurations.
    """

    options: tuple[ProgramOption, ...] = ()
    obstacle: str = ""
    further_files: tuple[str, ...] = ()
