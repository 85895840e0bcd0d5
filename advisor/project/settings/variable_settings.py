"""Run-time settings behind environment variables: the catalogue of settings, read backwards."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from advisor.project.settings.interface import ProjectSetting
from knowledge.catalogue.settings import ANY, JOINED_VARIABLES, SettingChoice, shipped_settings

_WRONG_NUMBER = re.compile(r"[A-Za-z]{1,20}|-[0-9]{1,9}|[0-9]{10,19}|[0-9]{1,9}\.[0-9]{1,9}")
"""A text that is not a number of threads, and not a list of numbers, which OpenMP reads as one for each level. Other
texts may be templates, which something replaces: ``{{ threads }}``, ``@THREADS@``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A text of an environment variable that applies a value of a setting in a framework, alone or with others.

    ``is_number`` says that the text is the value itself, an integer.
    """

    variable: str
    name: str
    value: str
    backend: str
    text: re.Pattern[str]
    variables: int
    is_number: bool

    @property
    def key(self) -> tuple[str, str, str]:
        return self.variable, self.backend, self.text.pattern


def setting_variables() -> frozenset[str]:
    """Return the environment variables that apply settings."""
    return frozenset(_forms())


def settings_of_variable(variable: str, text: str | None) -> tuple[ProjectSetting, ...]:
    """Return the settings that an environment variable applies.

    Args:
        variable: Name of the variable.
        text: Its value; `None` if it is known only when the program runs. A word, or a number that is none of the
            values, is the value of the setting as it is where only numbers have a meaning.
    """
    forms = _forms().get(variable, ())
    if text is not None:
        values = [(form, match) for form in forms if (match := form.text.search(text.strip())) is not None]
        pairs = [(form.name, match["value"] if form.value == ANY else form.value, form) for form, match in values]
        if not pairs and _WRONG_NUMBER.fullmatch(text.strip()):
            pairs = [(form.name, text.strip(), form) for form in forms if form.is_number]
    elif variable in JOINED_VARIABLES:
        pairs = []  # A list of options may contain any of them.
    else:
        pairs = [(form.name, "", form) for form in forms]
    backends: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, value, form in pairs:
        backends[name, value].add(form.backend)
    return tuple(
        ProjectSetting(
            name=name, value=value, backends=() if ANY in listed else tuple(sorted(listed)), origin="environment"
        )
        for (name, value), listed in sorted(backends.items())
    )


@lru_cache(maxsize=1)
def _forms() -> Mapping[str, list[_Form]]:
    """Return the texts that apply settings, by environment variable."""
    forms = [
        _Form(
            variable=variable,
            name=setting.name,
            value=choice.value,
            backend=framework.backend,
            text=_pattern(template, choice, JOINED_VARIABLES.get(variable, "")),
            variables=len(choice.environment),
            is_number=template == "{value}",
        )
        for setting in shipped_settings().values()
        for framework in setting.frameworks
        for choice in framework.choices
        for variable, template in choice.environment.items()
    ]
    # What several values of a setting have in common, such as `OMP_PLACES`, does not say which of them is set.
    values: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for form in forms:
        values[form.name, *form.key].add(form.value)
    decisive = [form for form in forms if len(values[form.name, *form.key]) == 1]
    # A variable that is one setting, and a part of another, is the first one.
    fewest: dict[tuple[str, ...], int] = {}
    for form in decisive:
        fewest[form.key] = min(form.variables, fewest.get(form.key, form.variables))
    by_variable: dict[str, list[_Form]] = defaultdict(list)
    for form in (form for form in decisive if form.variables == fewest[form.key]):
        by_variable[form.variable].append(form)
    return by_variable


def _pattern(template: str, choice: SettingChoice, separator: str) -> re.Pattern[str]:
    """Return the texts that a template of the catalogue stands for, as an entry of a list if there is a separator."""
    libraries = "|".join(re.escape(name) for name in choice.library)
    text = re.escape(template)
    text = text.replace(re.escape("{value}"), r"(?P<value>[0-9]{1,9})", 1)
    text = text.replace(re.escape("{library}"), rf"(?:[^:\s]*/)?(?:{libraries})")
    before, after = (rf"(?:^|{separator})", rf"(?:{separator}|$)") if separator else ("^", "$")
    return re.compile(f"{before}{text}{after}")
