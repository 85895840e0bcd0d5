"""Run-time settings behind environment variables: the catalogue of settings, read backwards."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from knowledge.settings.catalogue import shipped_settings
from knowledge.settings.model import ANY, JOINED_VARIABLES, SettingChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """A setting with a value.

    Attributes:
        name: Name of the setting, such as ``onednn``.
        value: Its value; empty if it is known only when the program runs.
        backends: Frameworks in which something sets it, sorted; empty for all that have the setting.
    """

    name: str
    value: str
    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A text of an environment variable that applies a value of a setting in a framework."""

    name: str
    value: str
    backend: str
    text: re.Pattern[str]


def setting_variables() -> frozenset[str]:
    """Return the environment variables that apply settings."""
    return frozenset(_forms())


def settings_of_variable(variable: str, text: str | None) -> tuple[SettingValue, ...]:
    """Return the settings that an environment variable applies.

    Args:
        variable: Name of the variable.
        text: Its value; none if it is known only when the program runs.
    """
    forms = _forms().get(variable, ())
    if text is None:
        names = {form.name for form in forms}
        # A list of options, such as `XLA_FLAGS`, may contain any of them.
        pairs = [] if variable in JOINED_VARIABLES else [(name, "", form) for name in names for form in forms]
    else:
        parts = text.split(JOINED_VARIABLES[variable]) if variable in JOINED_VARIABLES else [text.strip()]
        pairs = [
            (form.name, form.value.replace(ANY, match["value"] if form.value == ANY else ""), form)
            for part in parts
            for form in forms
            if (match := form.text.fullmatch(part)) is not None
        ]
    backends: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, value, form in pairs:
        if form.name == name:
            backends[name, value].add(form.backend)
    return tuple(
        SettingValue(name=name, value=value, backends=() if ANY in listed else tuple(sorted(listed)))
        for (name, value), listed in sorted(backends.items())
    )


@lru_cache(maxsize=1)
def _forms() -> Mapping[str, tuple[_Form, ...]]:
    """Return the texts that apply settings, by environment variable."""
    forms: dict[str, list[_Form]] = defaultdict(list)
    for setting in shipped_settings().values():
        for framework in setting.frameworks:
            for choice in framework.choices:
                for variable, template in choice.environment.items():
                    pattern = _pattern(template, choice)
                    form = _Form(name=setting.name, value=choice.value, backend=framework.backend, text=pattern)
                    forms[variable].append(form)
    return {variable: tuple(listed) for variable, listed in forms.items()}


def _pattern(template: str, choice: SettingChoice) -> re.Pattern[str]:
    """Return the texts that a template of the catalogue stands for."""
    libraries = "|".join(re.escape(name) for name in choice.library)
    text = re.escape(template)
    text = text.replace(re.escape("{value}"), r"(?P<value>[0-9]{1,9})", 1)
    return re.compile(text.replace(re.escape("{library}"), rf"(?:.*/)?(?:{libraries})"))
