"""Settings that a program's own code makes, and that override those of the environment."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.lock.setting_value import AppliedSetting
from advisor.project.project_settings import ProjectSetting, settings_in_file
from knowledge.catalogue.settings import ANY

_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*")


def overridden_settings(
    command: Sequence[str], applied: Sequence[AppliedSetting]
) -> Iterator[tuple[AppliedSetting, ProjectSetting]]:
    """Yield each setting that a Python file of a command overrides, with the place that does it.

    Only the files and modules that the command names are read, not those that they import: `advisor check` reads the
    whole project.

    Args:
        command: The program and its arguments.
        applied: Settings that are applied from outside.
    """
    for path in _python_files(command):
        for used in settings_in_file(path):
            for setting in applied:
                is_other = used.value != str(setting.value)
                applies = setting.framework == ANY or used.applies_to(setting.framework)
                if used.overrides_environment and used.name == setting.name and applies and is_other:
                    yield setting, used


def _python_files(command: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files that a command names, as files or as a module of the present directory (``-m``)."""
    yield from (Path(word) for word in command if word.endswith(".py"))
    if command and _INTERPRETER.fullmatch(Path(command[0]).name):
        # Options of the interpreter come before the program; `-W` and `-X` may have their value in the next word.
        options = itertools.takewhile(lambda word: word.startswith("-"), _without_values(command[1:]))
        for option in options:
            name = option.removeprefix("-m") if option.startswith("-m") else ""
            if name and all(part.isidentifier() for part in name.split(".")):
                module = Path(*name.split("."))
                yield from (module.with_suffix(".py"), module / "__main__.py")


def _without_values(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command until ``-c`` or a module, each option of two words as one."""
    rest = iter(words)
    for word in rest:
        if word == "-c":
            return
        yield word + next(rest, "") if word in ("-m", "-W", "-X") else word
        if word.startswith("-m"):
            return
