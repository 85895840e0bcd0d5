"""A value of a run-time setting in one framework, with what applies it, and such values as TOML for a lock.

An `InputError` is raised for a framework, setting or value that the catalogue does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from advisor.locks.certificate import Certificate
from knowledge.catalogue.settings import (
    ANY,
    Numerics,
    Setting,
    SettingChoice,
    Statements,
    code_of,
    environment_of,
    setting_error,
    shipped_settings,
    statements_of,
)
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.frameworks import MEASURED, frameworks

TABLE_VERSION = 1
"""Version of the table that records settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSetting:
    """A value of a run-time setting in one framework.

    Attributes:
        framework: Name of the framework, as in :mod:`knowledge.domain.frameworks`; ``*`` if the setting is the same
            for all frameworks.
        name: Name of the setting.
        value: Its value.
        numerics: What it does to results, compared with the default.
        environment: Environment variables that apply it; a shared library is named by its file name.
        code: Lines of Python that apply it.
        processors: ``count`` if it binds the program to as many processors as the value says, ``node`` for those of a
            NUMA node, else empty.
        hint: What a person can do to apply it, if the program cannot.
    """

    framework: str
    name: str
    value: int | str
    numerics: Numerics
    environment: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    processors: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """The setting as ``name=value``."""
        return f"{self.name}={self.value}"

    @property
    def label(self) -> str:
        """The setting as ``name=value (framework)``."""
        return self.text if self.framework == ANY else f"{self.text} ({self.framework})"

    @property
    def setting(self) -> Setting:
        """The setting in the catalogue."""
        return shipped_settings()[self.name]

    @property
    def choice(self) -> SettingChoice:
        """The value in the catalogue."""
        return choice_of(self.framework, self.name, self.value)

    @property
    def is_from_outside(self) -> bool:
        """Whether environment variables or a set of processors apply it."""
        return bool(self.environment or self.processors)

    @property
    def statements(self) -> tuple[Statements, ...]:
        """What applies it after an import of the program; empty if its code needs names of the program."""
        return statements_of({self.name: self.value}, self.framework)


def applied_setting(framework: str, name: str, value: int | str) -> AppliedSetting:
    """Return a value of a setting with what applies it, by the catalogue; a distribution stands for its framework."""
    backend = framework_of(framework)
    choice = choice_of(backend, name, value)
    if shipped_settings()[name].framework(ANY) is not None:
        backend = ANY
    libraries = {file: file for file in choice.library}
    return AppliedSetting(
        framework=backend,
        name=name,
        value=value,
        numerics=choice.numerics,
        environment=environment_of({name: value}, backend, present={}, libraries=libraries),
        code=code_of({name: value}, backend),
        processors=choice.processors,
        hint=choice.hint,
    )


def framework_of(name: str) -> str:
    """Return the name of a framework, which a distribution may provide."""
    framework = MEASURED.get(name, name)
    if framework not in (*frameworks(), ANY):
        raise InputError(f"there is no framework `{name}`", hint=suggest(name, tuple(frameworks())))
    return framework


def choice_of(framework: str, name: str, value: int | str) -> SettingChoice:
    """Return the value of a setting in a framework, as the catalogue has it."""
    if (problem := setting_error(name, value)) is not None:
        raise InputError(problem, hint="" if name in shipped_settings() else suggest(name, shipped_settings()))
    setting = shipped_settings()[name]
    specific = setting.framework(framework)
    if specific is None:
        raise InputError(f"`{framework}` has no setting `{name}`", hint=f"these have it: {frameworks_text(setting)}")
    choice = specific.choice(value)
    if choice is None:
        values = ", ".join(f"`{c.value}`" for c in specific.choices)
        raise InputError(f"`{name}` of `{framework}` has no value `{value}`", hint=f"choose one of {values}")
    return choice


def frameworks_text(setting: Setting) -> str:
    """Return the frameworks that have a setting, in backticks."""
    names = [framework.backend for framework in setting.frameworks]
    return ", ".join(f"`{name}`" for name in (frameworks() if ANY in names else names))


def settings_table(settings: Iterable[AppliedSetting], certificate: Certificate | None = None) -> dict[str, Any]:
    """Return settings and a certificate as TOML values: the content of `[tool.advisor]`, and of a settings file."""
    records = [setting_record(setting) for setting in sorted_settings(settings)]
    measured = {} if certificate is None else {"certificate": certificate.table()}
    return {"settings-version": TABLE_VERSION, "settings": records, **measured}


def sorted_settings(settings: Iterable[AppliedSetting]) -> tuple[AppliedSetting, ...]:
    """Return settings sorted by framework and name."""
    return tuple(sorted(settings, key=lambda s: (s.framework, s.name)))


def setting_record(setting: AppliedSetting) -> dict[str, Any]:
    """Return a setting as TOML values."""
    fields = {**asdict(setting), "environment": dict(sorted(setting.environment.items())), "code": list(setting.code)}
    return {key: value for key, value in fields.items() if value not in ("", [], {})}
