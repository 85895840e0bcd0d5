"""Whether a machine and a framework's version have a value of a setting, and which settings contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.settings.catalogue import shipped_settings
from knowledge.settings.model import SettingChoice


def missing_for(choice: SettingChoice, hardware: HardwareProfile, version: Version) -> str:
    """Return in a few words why a value does not suit a machine or a version of its framework; empty if it does.

    Args:
        choice: The value.
        hardware: The machine.
        version: Version of the framework.
    """
    if not choice.admits(version):
        return f"{version} does not know it: it needs {choice.versions}"
    gpu = hardware.gpu
    if gpu is None:
        lacks = choice.features and not set(choice.features) & set(hardware.cpu.features)
        return f"it needs one of {', '.join(choice.features)}" if lacks else ""
    capability = gpu.compute_capability
    if choice.capability and capability and not SpecifierSet(choice.capability).contains(capability):
        return f"compute capability {capability} is not {choice.capability}"
    return ""


def contradictions(settings: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Return one sentence for each pair of settings that contradict each other.

    Args:
        settings: Values by name of the setting.
    """
    sentences = []
    for name, value in sorted(settings.items()):
        for excluded in shipped_settings()[name].excludes:
            other, _, text = excluded.partition("=")
            if other in settings and text in ("", str(settings[other])):
                sentences.append(f"`{name}={value}` contradicts `{other}={settings[other]}`")
    return tuple(sentences)
