"""Variant properties (PEP 825) that a machine supports, from its hardware profile; no provider plugin is run.

The namespaces come from the published provider plugins, with the order of their properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.records import shipped_yaml

Features = Mapping[str, tuple[str, ...]]
"""Supported values of each feature; features and values in the order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedProperties:
    """Variant properties that a machine supports.

    Attributes:
        namespaces: Features of each known namespace, the best first; no features if the machine supports none.
        missing: By known namespace, why none of its properties is supported.
        assumptions: By namespace, what its properties assume.
    """

    namespaces: Mapping[str, Features] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    assumptions: Mapping[str, str] = field(default_factory=dict)

    def values(self, namespace: str, feature: str) -> tuple[str, ...]:
        """Return the supported values of a feature, the best first."""
        return self.namespaces.get(namespace, {}).get(feature, ())


def supported_properties(hardware: HardwareProfile) -> SupportedProperties:
    """Return the variant properties that a machine supports."""
    namespaces: dict[str, Features] = {}
    missing: dict[str, str] = {}
    assumptions: dict[str, str] = {}
    for entry in variant_namespaces():
        name = entry["namespace"]
        if name == "nvidia":
            features, reason = _nvidia(hardware, entry)
            if features and hardware.driver is None:
                assumptions[name] = (
                    f"the profile `{hardware.name}` names no driver: one that supports every CUDA version is assumed"
                )
        elif name in ("x86_64", "aarch64"):
            features, reason = _processor(hardware.cpu, entry)
        else:
            features = {feature: tuple(values) for feature, values in entry.get("values", {}).items()}
            reason = entry.get("missing", "")
        namespaces[name] = features
        if not features:
            missing[name] = reason
    return SupportedProperties(namespaces=namespaces, missing=missing, assumptions=assumptions)


def variant_namespaces() -> Sequence[Mapping[str, Any]]:
    """Return the known namespaces: what their provider plugins define, each with its source."""
    return tuple(shipped_yaml("knowledge.catalogue", "variant_namespaces.yaml")["namespaces"])


def _nvidia(hardware: HardwareProfile, entry: Mapping[str, Any]) -> tuple[Features, str]:
    """Return the features of the namespace, or why there are none."""
    capabilities = [a.capability for a in hardware.accelerators if a.vendor == "nvidia" and a.capability]
    if not any(a.vendor == "nvidia" for a in hardware.accelerators):
        return {}, "the machine has no NVIDIA GPU"
    majors, newest_minor = entry["cuda_majors"], entry["newest_cuda_minor"]
    newest = (majors[0], newest_minor)
    if hardware.driver is None:
        # As for the rules: a shipped profile names no driver, so that any stack that a current one serves is advised.
        cuda = newest
    else:
        try:
            version = Version(hardware.driver.newest_cuda or "")
        except InvalidVersion:
            return {}, f"the newest CUDA version of driver {hardware.driver.version} is unknown"
        cuda = (version.major, version.minor)
        if not (majors[-1], 0) <= cuda <= newest:
            versions = f"{majors[-1]}.0 to {majors[0]}.{newest_minor}"
            return {}, f"the driver supports CUDA {cuda[0]}.{cuda[1]}, and the provider knows only {versions}"
    features: dict[str, tuple[str, ...]] = {
        "cuda_version_lower_bound": tuple(_lower_bounds(cuda, majors, newest_minor))
    }
    if upper := tuple(_upper_bounds(cuda, majors, newest_minor)):
        features["cuda_version_upper_bound"] = upper
    oldest = tuple(int(part) for part in entry["oldest_compute_capability"].split("."))
    # Like the provider, which uses the newest GPU of the machine alone.
    if capabilities and (best := max(capabilities)) >= oldest:
        major, minor = best
        features["sm_arch"] = (*(f"{major}{n}_real" for n in range(minor, -1, -1)), f"{major}0_virtual")
    return features, ""


def _lower_bounds(cuda: tuple[int, ...], majors: Sequence[int], newest_minor: int) -> Iterator[str]:
    """Yield the CUDA versions that a driver supports, the newest first; ``12`` means the same as ``12.0``."""
    for major in majors:
        if major <= cuda[0]:
            for minor in range(newest_minor if major < cuda[0] else cuda[1], -1, -1):
                yield f"{major}.{minor}"
            yield str(major)


def _upper_bounds(cuda: tuple[int, ...], majors: Sequence[int], newest_minor: int) -> Iterator[str]:
    """Yield the CUDA versions that are newer than what a driver supports, the newest first."""
    for major in majors:
        if major > cuda[0]:
            yield from (f"{major}.{minor}" for minor in range(newest_minor, -1, -1))
            yield str(major)
        elif major == cuda[0]:
            yield from (f"{major}.{minor}" for minor in range(newest_minor, cuda[1], -1))


def _processor(cpu: Cpu, entry: Mapping[str, Any]) -> tuple[Features, str]:
    """Return the features of the namespace of a processor, or why there are none."""
    import archspec.cpu

    name = entry["namespace"]
    family = {"amd64": "x86_64", "arm64": "aarch64"}.get(cpu.architecture.lower(), cpu.architecture)
    if family != name:
        return {}, f"the processor has architecture {cpu.architecture}"
    targets = archspec.cpu.TARGETS
    microarchitecture = targets.get(cpu.microarchitecture, targets[name])
    # A partial target compares features that archspec and the kernel name differently.
    partial = archspec.cpu.Microarchitecture("", [], cpu.vendor, set(cpu.features), {})
    own = partial if cpu.features else microarchitecture
    generic = microarchitecture.generic
    lineage = [generic.name, *(ancestor.name for ancestor in generic.ancestors)]
    features: dict[str, tuple[str, ...]] = {}
    if name == "x86_64":
        levels = [int(text.removeprefix("x86_64_v")) for text in lineage if text.startswith("x86_64_v")]
        if not levels:
            return {}, f"the processor `{cpu.microarchitecture}` has no level above x86-64-v1"
        highest = min(max(levels), entry["newest_level"])
        features["level"] = tuple(f"v{level}" for level in range(highest, 0, -1))
    else:
        newest = entry["newest_version"]
        versions = lineage[lineage.index(newest) :] if newest in lineage else lineage
        features["version"] = tuple("8a" if text == "aarch64" else text.removeprefix("armv") for text in versions)
    features |= {feature: ("on",) for feature in entry["features"] if feature in own}
    return features, ""
