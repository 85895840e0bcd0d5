"""Settings that a program's own code makes, and that override those of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.lock.setting_value import AppliedSetting
from advisor.project.project_settings import ProjectSetting, settings_in_file
from knowledge.settings.model import ANY


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
    """Yield the Python files that a command names, as a file or, after ``-m``, as a module of the present directory."""
    for before, word in zip(("", *command), command, strict=False):
        if word.endswith(".py"):
            yield Path(word)
        elif before == "-m" and all(part.isidentifier() for part in word.split(".")):
            module = Path(*word.split("."))
            yield from (module.with_suffix(".py"), module / "__main__.py")
