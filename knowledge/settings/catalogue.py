"""The catalogue of run-time settings that ships with the program."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.settings.model import FrameworkSetting, Setting, SettingChoice


@lru_cache(maxsize=1)
def shipped_settings() -> Mapping[str, Setting]:
    """Return every setting of the catalogue by name, in the order of the files.

    It is read with the standard library: measurements run where nothing else is installed.

    Raises:
        InputError: If a file is malformed, or two files have a setting of the same name.
    """
    settings: dict[str, Setting] = {}
    folder = importlib.resources.files("knowledge.settings") / "catalogue"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".toml"):
            continue
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if name in settings:
                raise InputError(f"the catalogue of settings contains `{name}` twice")
            try:
                settings[name] = _setting(name, table)
            except (TypeError, KeyError, ValueError) as error:
                raise InputError(f"the catalogue of settings, `{file.name}`, `{name}`: {error}") from None
    return MappingProxyType(settings)


def _setting(name: str, table: Mapping[str, Any]) -> Setting:
    return Setting(
        name=name,
        **{
            **table,
            "devices": tuple(table["devices"]),
            "excludes": tuple(table.get("excludes", ())),
            "frameworks": tuple(map(_framework, table["frameworks"])),
        },
    )


def _framework(table: Mapping[str, Any]) -> FrameworkSetting:
    return FrameworkSetting(**{**table, "choices": tuple(map(_choice, table["choices"]))})


def _choice(table: Mapping[str, Any]) -> SettingChoice:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return SettingChoice(**values)


LARGEST = 2**31 - 1
"""Maximum value of a setting that is a number: frameworks keep it in 32 bits."""


def setting_error(name: str, value: Any) -> str | None:
    """Return why a setting or its value is not valid, or none."""
    settings = shipped_settings()
    if name not in settings:
        return f"there is no setting `{name}`; there are {', '.join(sorted(settings))}"
    setting = settings[name]
    if setting.least is None:
        return None if value in setting.choices else f"`{name}` must be one of {', '.join(setting.choices)}"
    if isinstance(value, bool) or not isinstance(value, int) or not setting.least <= value <= LARGEST:
        return f"`{name}` must be an integer of at least {setting.least} and at most {LARGEST}"
    return None
