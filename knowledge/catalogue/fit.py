"""Whether a value of a setting fits a machine, a version of the framework, or other settings, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.catalogue.settings import ANY, SettingChoice, shipped_settings
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.hardware.matrix_features import features_by_name


def missing_for(
    choice: SettingChoice,
    hardware: HardwareProfile,
    version: Version,
    *,
    framework: str = "version",
    device: str = "",
    counts_unknown: bool = True,
) -> str:
    """Return in one clause why a value does not fit; empty if nothing is known to be missing.

    Args:
        choice: The value in one framework.
        hardware: The machine.
        version: The version of the framework.
        framework: Name of the framework for the clause, such as ``PyTorch``.
        device: ``cpu`` or ``cuda``; without it, the NVIDIA GPU of the machine, or else its CPU.
        counts_unknown: Whether what is not known of the machine counts as missing.
    """
    device = device or ("cuda" if hardware.gpu else "cpu")
    if not choice.admits(version):
        return f"{framework} {version} does not know it"
    if choice.systems and hardware.os not in choice.systems:
        return f"only {' and '.join(choice.systems)} has it"
    if choice.devices and device not in choice.devices:
        return f"it has an effect on {' and '.join(choice.devices)} only"
    clause, is_unknown = (_missing_capability if device == "cuda" else _missing_features)(choice, hardware)
    return clause if counts_unknown or not is_unknown else ""


def _missing_features(choice: SettingChoice, hardware: HardwareProfile) -> tuple[str, bool]:
    """Return the clause about the processor, and whether its features are unknown."""
    # A named profile has those of its microarchitecture.
    present = hardware.cpu.features or features_by_name(hardware.cpu.microarchitecture)
    if not choice.features or set(choice.features) & set(present or ()):
        return "", False
    clause = f"it needs {'one of ' if len(choice.features) > 1 else ''}{', '.join(choice.features)}"
    if present is None:
        return f"{clause}, and the features of the processor are not known", True
    return clause, False


def _missing_capability(choice: SettingChoice, hardware: HardwareProfile) -> tuple[str, bool]:
    """Return the clause about the GPU, and whether its compute capability is unknown."""
    capability = hardware.gpu.compute_capability if hardware.gpu else None
    if not choice.capability:
        return "", False
    if capability is None:
        return f"it needs compute capability {choice.capability}, and that of the GPU is not known", True
    if SpecifierSet(choice.capability).contains(Version(capability)):
        return "", False
    return f"compute capability {capability} is below {choice.capability.removeprefix('>=')}", False


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
