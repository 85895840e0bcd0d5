"""Types of run-time settings. The catalogue is TOML, with one table for each setting; each names its documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

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
        code: Lines of Python that apply it, with ``{value}``; none if the environment is enough.
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
        return SpecifierSet(self.versions).contains(Version(version.public), prereleases=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSetting:
    """A setting in one framework.

    Attributes:
        backend: Name of the framework, as in :mod:`pi_runners.vocabulary`, or :data:`ANY`.
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
        """Return the choice of a value; none if the framework does not have the value."""
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
        least: Smallest value, if its values are integers; none if they are words.
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
        """Return the setting in one framework; none if it does not have it."""
        return next((framework for framework in self.frameworks if framework.backend in (backend, ANY)), None)
