"""Run-time settings: their types, the catalogue that ships with the program, and how a value is applied."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from packaging.version import Version

from knowledge.catalogue.entries import admits
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import frameworks
from knowledge.domain.observation import Scalar

Numerics = Literal["exact", "reordered", "reduced"]
"""What a value of a setting does to results, compared with the default: nothing (bitwise equal), another order of
operations (differences by rounding only), or a lower precision."""

ANY = "*"
"""Value of a choice that stands for every integer of a setting, and name of the framework that stands for all."""

DEFAULT = "default"
"""Value in commands and reports of a setting that is not set."""

JOINED_VARIABLES: Mapping[str, str] = {"XLA_FLAGS": " ", "TF_XLA_FLAGS": " ", "LD_PRELOAD": ":"}
"""Environment variables that are lists, with their separators: settings add to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChoice:
    """A value of a setting in one framework.

    Attributes:
        value: The value, or :data:`ANY`.
        numerics: What it does to results, compared with the default.
        environment: Environment variables that apply it, by name; ``{value}`` in a text stands for the value.
        code: Lines of Python that apply it, with ``{value}``; empty if the environment is enough.
        imports: Import after which ``code`` applies it wherever a program makes it, such as ``import torch``; empty if
            the code needs names of the program.
        around: Call in ``outermost_calls.py`` of the framework's folder that applies it around the models of a program
            while a benchmark is measured; empty if nothing does.
        check: Expression of the names in ``imports``, with ``{value}``, that is true while the value has its effect.
        features: CPU features of which a machine needs one; without them the value is emulated, or has no effect.
        capability: Specifier of the compute capability that an NVIDIA GPU needs; empty for all.
        versions: Specifier of the versions of the framework that know the value; empty for all.
        processors: Processors that the program is bound to: ``count`` for as many as the value says, ``node`` for those
            of the NUMA node with this number; empty for all.
        library: File names of a shared library that must be installed, in the order of preference; ``{library}`` in
            the environment stands for its path.
        debian_package: Package of Debian and Ubuntu that contains the library; empty if it is not known.
        devices: Devices on which it has an effect; empty for all of the setting.
        systems: Operating systems that have it, as :attr:`HardwareProfile.os` names them; empty for all.
        excludes: Settings that contradict the value, each as a name or as ``name=value``.
        hint: What a person can do to apply it, if the program cannot.
    """

    value: str
    numerics: Numerics
    environment: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    imports: str = ""
    around: str = ""
    check: str = ""
    features: tuple[str, ...] = ()
    capability: str = ""
    versions: str = ""
    processors: Literal["", "count", "node"] = ""
    library: tuple[str, ...] = ()
    debian_package: str = ""
    devices: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    hint: str = ""

    def admits(self, version: Version) -> bool:
        """Whether a version of the framework knows the value."""
        return admits(self.versions, version)

    @property
    def needs_program(self) -> bool:
        """Whether only code in the program applies it: lines that need names of the program."""
        return bool(self.code) and not self.environment and not self.imports

    @property
    def is_measurable(self) -> bool:
        """Whether the benchmark of a project can be measured with it as it is."""
        return bool(self.around) or not self.needs_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """Lines of Python that apply a setting to a program that nobody edits.

    Attributes:
        setting: The setting as ``name=value``.
        module: Module that the program must have imported before.
        code: The lines, with the import.
        check: Expression of names in the code that is true while the setting has its effect; empty if the lines call
            ``use()`` when it has.
    """

    setting: str
    module: str
    code: str
    check: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSetting:
    """A setting in one framework.

    Attributes:
        backend: Name of the framework, as in :mod:`knowledge.domain.frameworks`, or :data:`ANY`.
        default: What happens without the setting: one of its values, or a description.
        documentation: Address of the page that documents it.
        choices: Its values.
        notes: What else one has to know about it.
    """

    backend: str
    default: str
    documentation: str
    choices: tuple[SettingChoice, ...]
    notes: str = ""

    def choice(self, value: object) -> SettingChoice | None:
        """Return the choice of a value; ``None`` if the framework does not have the value."""
        exact = next((c for c in self.choices if c.value == str(value)), None)
        return exact or next((c for c in self.choices if c.value == ANY), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run-time setting that changes speed.

    Attributes:
        name: Its name in commands, files and reports.
        meaning: Description for people.
        devices: Devices on which it has an effect.
        frameworks: Frameworks that have it.
        least: Smallest value, if its values are integers; ``None`` if they are words.
        excludes: Settings that contradict it, each as a name or as ``name=value``.
        notes: What else one has to know about it in any framework.
        inference_only: Whether it is for inference, so that training cannot have it.
        within_processors: Whether its values are numbers of processors, of which a program has only so many.
    """

    name: str
    meaning: str
    devices: tuple[str, ...]
    frameworks: tuple[FrameworkSetting, ...]
    least: int | None = None
    excludes: tuple[str, ...] = ()
    notes: str = ""
    inference_only: bool = False
    within_processors: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """Its values in all frameworks; empty if they are integers."""
        values = [choice.value for framework in self.frameworks for choice in framework.choices]
        return tuple(dict.fromkeys(value for value in values if value != ANY))

    def framework(self, backend: str) -> FrameworkSetting | None:
        """Return the setting in one framework; ``None`` if it does not have it."""
        return next((framework for framework in self.frameworks if framework.backend in (backend, ANY)), None)

    def choice(self, backend: str, value: object) -> SettingChoice | None:
        """Return the choice of a value in one framework; ``None`` if it does not have the setting or the value."""
        framework = self.framework(backend)
        return framework.choice(value) if framework else None


@lru_cache(maxsize=1)
def shipped_settings() -> Mapping[str, Setting]:
    """Return every setting by name, in the order of the catalogue's files.

    The catalogue says what a setting is; the file ``settings.toml`` in the folder of a framework, how it applies it.

    It is read with the standard library: measurements run where nothing else is installed.

    Raises:
        InputError: If a file is malformed.
    """
    settings: dict[str, Setting] = {}
    applied = _settings_of_frameworks()
    folder = importlib.resources.files("knowledge.catalogue") / "data" / "settings"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".toml"):
            continue
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            try:
                settings[name] = _setting(name, table, applied.get(name, ()))
            except (TypeError, KeyError, ValueError) as error:
                raise InputError(f"the catalogue of settings, `{file.name}`, `{name}`: {error}") from None
    return MappingProxyType(settings)


def _settings_of_frameworks() -> dict[str, list[dict[str, Any]]]:
    """Return the tables of each setting in the files of the frameworks."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for framework in frameworks().values():
        for name, table in framework.document("settings").items():
            tables.setdefault(name, []).append({**table, "backend": framework.name})
    return tables


def _setting(name: str, table: Mapping[str, Any], of_frameworks: Iterable[Mapping[str, Any]]) -> Setting:
    listed = (*table.get("frameworks", ()), *of_frameworks)
    return Setting(name=name, **{**_with_tuples(table), "frameworks": tuple(map(_framework, listed))})


def _framework(table: Mapping[str, Any]) -> FrameworkSetting:
    choices = tuple(SettingChoice(**_with_tuples(choice)) for choice in table["choices"])
    return FrameworkSetting(**{**table, "choices": choices})


def _with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


LARGEST = 2**31 - 1
"""Maximum value of a setting that is a number: frameworks keep it in 32 bits."""


def setting_error(name: str, value: Any) -> str | None:
    """Return why a setting or its value is not valid, or ``None``."""
    settings = shipped_settings()
    if name not in settings:
        return f"there is no setting `{name}`; there are {', '.join(sorted(settings))}"
    setting = settings[name]
    if setting.least is None:
        return None if value in setting.choices else f"`{name}` must be one of {', '.join(setting.choices)}"
    if isinstance(value, bool) or not isinstance(value, int) or not setting.least <= value <= LARGEST:
        return f"`{name}` must be an integer of at least {setting.least} and at most {LARGEST}"
    return None


def environment_of(
    settings: Mapping[str, Scalar], backend: str, *, present: Mapping[str, str], libraries: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that apply settings in a framework.

    Args:
        settings: Values by name of the setting; those that the framework does not have are left out.
        backend: Name of the framework.
        present: The environment that they are added to: lists such as ``XLA_FLAGS`` keep what they contain.
        libraries: Paths of installed shared libraries by file name; values that need another one are left out.
    """
    variables: dict[str, str] = {}
    for value, choice in choices_of(settings, backend):
        library = next((libraries[name] for name in choice.library if name in libraries), "")
        if choice.library and not library:
            continue
        for variable, text in choice.environment.items():
            text = text.replace("{value}", value).replace("{library}", library)
            separator = JOINED_VARIABLES.get(variable)
            before = variables.get(variable, present.get(variable, "")) if separator else ""
            variables[variable] = f"{before}{separator}{text}" if before else text
    return variables


def code_of(settings: Mapping[str, Scalar], backend: str) -> tuple[str, ...]:
    """Return the lines of Python that apply settings in a framework, which its environment cannot apply.

    Settings that the framework does not have are left out.
    """
    lines = (line.replace("{value}", value) for value, choice in choices_of(settings, backend) for line in choice.code)
    return tuple(dict.fromkeys(lines))


def statements_of(settings: Mapping[str, Scalar], backend: str) -> tuple[Statements, ...]:
    """Return what applies settings in a framework after its import, for settings that need no names of the program."""
    return tuple(
        Statements(
            setting=f"{name}={value}",
            module=choice.imports.split()[1],
            code="\n".join([choice.imports, *choice.code]).replace("{value}", str(value)),
            check=choice.check.replace("{value}", str(value)),
        )
        for name, value in settings.items()
        if (choice := shipped_settings()[name].choice(backend, value)) is not None and choice.imports
    )


def measured_statements_of(settings: Mapping[str, Scalar], backend: str) -> tuple[Statements, ...]:
    """Return what applies settings in a framework after its import to measure them, also those around models."""
    around = tuple(
        Statements(
            setting=f"{name}={value}", module=backend, code=f"{_outermost_calls(backend)}\n{choice.around}", check=""
        )
        for name, value in settings.items()
        if (choice := shipped_settings()[name].choice(backend, value)) is not None and choice.around
    )
    return (*statements_of(settings, backend), *around)


def _outermost_calls(backend: str) -> str:
    return (frameworks()[backend].folder / "outermost_calls.py").read_text(encoding="utf-8")


def choices_of(settings: Mapping[str, Scalar], backend: str) -> Iterator[tuple[str, SettingChoice]]:
    """Yield the choices in the order of the catalogue: a later one overrides variables of an earlier one."""
    order = list(shipped_settings())
    for name, value in sorted(settings.items(), key=lambda item: order.index(item[0])):
        choice = shipped_settings()[name].choice(backend, value)
        if choice is not None:
            yield str(value), choice
