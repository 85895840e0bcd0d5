"""Settings that a program's own code makes, and that override those of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.lock.setting_value import AppliedSetting
from advisor.project.switches import Switch, file_switches
from knowledge.settings.model import ANY


def overridden_settings(
    command: Sequence[str], applied: Sequence[AppliedSetting]
) -> Iterator[tuple[AppliedSetting, Switch]]:
    """Yield each setting that a Python file of a command overrides, with the place that does it.

    Only the files that the command names are read, not those that they import: `advisor check` reads the whole project.

    Args:
        command: The program and its arguments.
        applied: Settings that are applied from outside.
    """
    for path in (Path(word) for word in command if word.endswith(".py")):
        for switch in file_switches(path):
            for setting in applied:
                is_other = switch.value != str(setting.value)
                applies = setting.framework == ANY or switch.applies_to(setting.framework)
                if switch.overrides_environment and switch.name == setting.name and applies and is_other:
                    yield setting, switch
