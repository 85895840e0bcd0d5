"""Whether a value of a setting fits a machine, a version of the framework, or other settings, and why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.catalogue.settings import ANY, SettingChoice, shipped_settings
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.hardware.matrix_features import features_by_name

Subject = Literal["version", "system", "library", "device", "features", "capability"]
"""What a value of a setting may not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a value of a setting does not fit, or may not fit.

    Attributes:
        subject: What it does not fit.
        reason: The reason in one clause.
        is_unknown: Whether it may fit: the machine is not known well enough.
    """

    subject: Subject
    reason: str
    is_unknown: bool = False


def misfit_of(
    choice: SettingChoice,
    *,
    version: Version | None = None,
    framework: str = "version",
    hardware: HardwareProfile | None = None,
    device: str = "",
    system: str = "",
    libraries: Callable[[Sequence[str]], Collection[str]] | None = None,
) -> Misfit | None:
    """Return the first reason why a value does not fit; ``None`` if it fits. What is not stated is not asked for.

    Args:
        choice: The value in one framework.
        version: The version of the framework.
        framework: Name of the framework for the reason, such as ``PyTorch``.
        hardware: The machine.
        device: ``cpu`` or ``cuda``; by default the NVIDIA GPU of the machine, or else its CPU.
        system: Operating system, as :attr:`HardwareProfile.os` names it; by default the machine's.
        libraries: Returns which of some shared libraries are installed.
    """
    system = system or (hardware.os if hardware else "")
    if version is not None and not choice.admits(version):
        return Misfit(subject="version", reason=f"{framework} {version} does not know it")
    if system and choice.systems and system not in choice.systems:
        return Misfit(subject="system", reason=f"only {' and '.join(choice.systems)} has it")
    if libraries is not None and choice.library and not libraries(choice.library):
        return Misfit(subject="library", reason=f"{' or '.join(choice.library)} is not installed")
    if hardware is None:
        return None
    device = device or hardware.device
    if choice.devices and device not in choice.devices:
        return Misfit(subject="device", reason=f"it has an effect on {' and '.join(choice.devices)} only")
    return _missing_capability(choice, hardware) if device == "cuda" else _missing_features(choice, hardware)


def _missing_features(choice: SettingChoice, hardware: HardwareProfile) -> Misfit | None:
    # A named profile has the features of its microarchitecture.
    present = hardware.cpu.features or features_by_name(hardware.cpu.microarchitecture)
    if not choice.features or set(choice.features) & set(present or ()):
        return None
    reason = f"it needs {'one of ' if len(choice.features) > 1 else ''}{', '.join(choice.features)}"
    if present is None:
        reason += ", and the features of the processor are not known"
    return Misfit(subject="features", reason=reason, is_unknown=present is None)


def _missing_capability(choice: SettingChoice, hardware: HardwareProfile) -> Misfit | None:
    capability = hardware.gpu.compute_capability if hardware.gpu else None
    if not choice.capability or (capability and SpecifierSet(choice.capability).contains(Version(capability))):
        return None
    reason = f"compute capability {capability} is below {choice.capability.removeprefix('>=')}"
    if capability is None:
        reason = f"it needs compute capability {choice.capability}, and that of the GPU is not known"
    return Misfit(subject="capability", reason=reason, is_unknown=capability is None)


def contradictions(settings: Mapping[str, Scalar], *, backend: str = ANY) -> list[str]:
    """Return a sentence for each two settings that contradict each other, in the order of the catalogue.

    They contradict each other in a framework; with :data:`ANY`, in any of them.
    """
    pairs: dict[frozenset[str], str] = {}
    for name in (name for name in shipped_settings() if name in settings):
        for excluded in _excluded(name, settings[name], backend):
            other, _, value = excluded.partition("=")
            if other in settings and value in ("", str(settings[other])):
                sentence = f"`{name}={settings[name]}` and `{other}={settings[other]}` contradict each other"
                pairs.setdefault(frozenset((name, other)), sentence)
    return list(pairs.values())


def _excluded(name: str, value: Scalar, backend: str) -> Iterator[str]:
    """Yield what a value of a setting excludes, each as a name or as ``name=value``."""
    setting = shipped_settings()[name]
    frameworks = [
        framework for framework in setting.frameworks if backend == ANY or framework.backend in (backend, ANY)
    ]
    if frameworks:
        yield from setting.excludes
    for choice in (framework.choice(value) for framework in frameworks):
        yield from choice.excludes if choice is not None else ()
