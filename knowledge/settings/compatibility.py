"""Why a value of a setting does not fit a machine, a version of the framework, or other settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.settings.catalogue import shipped_settings
from knowledge.settings.model import ANY, SettingChoice


def missing_for(
    choice: SettingChoice, hardware: HardwareProfile, version: Version, *, framework: str = "version", device: str = ""
) -> str:
    """Return in one clause why a value does not fit; empty if nothing is known to be missing.

    What is not known of the machine counts as missing.

    Args:
        choice: The value in one framework.
        hardware: The machine.
        version: The version of the framework.
        framework: Name of the framework for the clause, such as ``PyTorch``.
        device: ``cpu`` or ``cuda``; without it, the NVIDIA GPU of the machine, or else its CPU.
    """
    device = device or ("cuda" if hardware.gpu else "cpu")
    if not choice.admits(version):
        return f"{framework} {version} does not know it"
    if choice.systems and hardware.os not in choice.systems:
        return f"only {' and '.join(choice.systems)} has it"
    if choice.devices and device not in choice.devices:
        return f"has an effect on {' and '.join(choice.devices)} only"
    return _missing_capability(choice, hardware) if device == "cuda" else _missing_features(choice, hardware)


def _missing_features(choice: SettingChoice, hardware: HardwareProfile) -> str:
    if not choice.features or set(choice.features) & set(hardware.cpu.features):
        return ""
    clause = f"needs {'one of ' if len(choice.features) > 1 else ''}{', '.join(choice.features)}"
    return clause if hardware.cpu.features else f"{clause}, and the features of the processor are not known"


def _missing_capability(choice: SettingChoice, hardware: HardwareProfile) -> str:
    capability = hardware.gpu.compute_capability if hardware.gpu else None
    if not choice.capability:
        return ""
    if capability is None:
        return f"needs compute capability {choice.capability}, and that of the GPU is not known"
    if SpecifierSet(choice.capability).contains(Version(capability)):
        return ""
    return f"compute capability {capability} is below {choice.capability.removeprefix('>=')}"


def contradictions(settings: Mapping[str, Scalar], *, backend: str = ANY) -> list[str]:
    """Return a sentence for each two settings that contradict each other, in the order of the catalogue.

    Args:
        settings: Values by name of the setting.
        backend: Name of the framework; :data:`ANY` for what contradicts in any of them.
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
