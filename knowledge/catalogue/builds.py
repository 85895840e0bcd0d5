"""Builds: their types, and the catalogue of indexes, families, extras and replacements that ships with the program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from knowledge.catalogue.entries import FOLDER, admits, shipped_entries
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import StrictRecord

Runtime = Literal["cpu", "cuda", "rocm", "xpu"]
"""What a build runs on: processors only, NVIDIA's GPUs, AMD's GPUs, or Intel's GPUs."""

_VENDORS: dict[Runtime, str] = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel"}
_LOCAL_VERSION = re.compile(r"(?P<cpu>cpu)\b|cu(?:da)?(?P<cuda>\d{2,3})\b|rocm(?P<rocm>\d+(?:\.\d+)*)|(?P<xpu>xpu)\b")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Build:
    """What a file was built for.

    Attributes:
        runtime: What it runs on.
        version: Version of the runtime, such as ``12.6`` of CUDA; empty if it has none or it is unknown.
    """

    runtime: Runtime
    version: str = ""

    def __str__(self) -> str:
        """Return the name of the build, for people."""
        names = {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm", "xpu": "Intel GPU"}
        return f"{names[self.runtime]} {self.version}".strip()

    def matches(self, other: Build) -> bool:
        """Whether both may be for the same runtime; an unknown version of it matches every version."""
        is_known = self.version and other.version
        return self.runtime == other.runtime and (not is_known or self.version == other.version)

    def has_device_on(self, hardware: HardwareProfile) -> bool:
        """Whether a machine has an accelerator that the build is for; a CPU build needs none."""
        vendor = _VENDORS.get(self.runtime)
        return vendor is None or any(accelerator.vendor == vendor for accelerator in hardware.accelerators)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkIndex(StrictRecord):
    """A package index on which a framework's publisher provides one build of its packages.

    Attributes:
        url: Base address of its simple API.
        packages: Packages that are taken from it; no other package ever is.
        exclusive: Those of the packages that come from no other index.
        runtime: What its files run on.
        version: Version of the runtime; empty if it has none.
        os: Systems that it has files for.
        architectures: Machine names that it has files for.
    """

    kind: Literal["index"]
    id: str
    url: str
    packages: tuple[str, ...]
    runtime: Runtime
    source: str
    exclusive: tuple[str, ...] = ()
    version: str = ""
    os: tuple[str, ...] = ("linux",)
    architectures: tuple[str, ...] = ("x86_64",)

    @property
    def build(self) -> Build:
        """The build of its files."""
        return Build(runtime=self.runtime, version=self.version)

    def serves(self, hardware: HardwareProfile) -> bool:
        """Whether it has files for the system and the processor of a machine."""
        return hardware.is_one_of(self.os, self.architectures)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultBuild(StrictRecord):
    """The build of files without a local version, on some machines.

    Attributes:
        os: Systems.
        architectures: Machine names; empty for all.
        runtime: What the files run on.
        packages: Packages of the family whose files these are; empty for all.
        versions: Specifier of their versions; empty for all.
        version: Version of the runtime; empty if it differs between the versions.
    """

    os: tuple[str, ...]
    runtime: Runtime
    architectures: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    versions: str = ""
    version: str = ""

    def applies_to(self, package: str, version: Version, hardware: HardwareProfile) -> bool:
        """Whether it is the build of a version of a package on a machine."""
        return (
            hardware.is_one_of(self.os, self.architectures)
            and package in (self.packages or (package,))
            and admits(self.versions, version)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFamily(StrictRecord):
    """Packages whose local version names the build, and which only work together if their builds match.

    Attributes:
        packages: The packages.
        defaults: Builds of files without a local version; a CPU build on all other machines.
    """

    kind: Literal["family"]
    id: str
    packages: tuple[str, ...]
    source: str
    defaults: tuple[DefaultBuild, ...] = ()

    def build_of(self, package: str, version: Version, hardware: HardwareProfile) -> Build:
        """Return the build of a version of one of its packages on a machine."""
        if version.local is not None:
            return build_of_local_version(version.local)
        for default in self.defaults:
            if default.applies_to(package, version, hardware):
                return Build(runtime=default.runtime, version=default.version)
        return Build(runtime="cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildExtra(StrictRecord):
    """Extras of a package that together add what it needs to use an accelerator.

    Attributes:
        package: The package.
        extras: The extras.
        versions: Specifier of the versions that provide them.
        runtime: What they make the package run on.
        version: Version of the runtime, such as ``12`` of CUDA; empty if it differs between the versions.
        os: Systems that they work on.
        architectures: Machine names that they work on.
    """

    kind: Literal["extra"]
    id: str
    package: str
    extras: tuple[str, ...]
    runtime: Runtime
    source: str
    versions: str = ""
    version: str = ""
    os: tuple[str, ...] = ("linux",)
    architectures: tuple[str, ...] = ("x86_64",)

    @property
    def build(self) -> Build:
        """The build that the package becomes."""
        return Build(runtime=self.runtime, version=self.version)

    def serves(self, hardware: HardwareProfile) -> bool:
        """Whether they work on the system and the processor of a machine."""
        return hardware.is_one_of(self.os, self.architectures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement(StrictRecord):
    """A package that provides the same modules as another one, for other hardware.

    Attributes:
        package: The package.
        replacement: The package that may replace it.
        versions: Specifier of the versions of both packages that correspond to each other, by equal numbers.
        modules: Top-level modules that both provide.
        when: Hardware of the target that makes the replacement useful: a runtime with a device of it (``cuda``,
            ``rocm``, ``xpu``), ``cpu`` for a machine without such an accelerator, or ``any``.
        condition: What must be true of the project or the machine, for people; empty if the hardware alone decides.
        os: Systems that the replacement has files for.
        architectures: Machine names that the replacement has files for.
    """

    kind: Literal["replacement"]
    id: str
    package: str
    replacement: str
    modules: tuple[str, ...]
    when: Runtime | Literal["any"]
    source: str
    versions: str = ""
    condition: str = ""
    os: tuple[str, ...] = ("linux",)
    architectures: tuple[str, ...] = ("x86_64",)

    def fits(self, hardware: HardwareProfile) -> bool:
        """Whether the replacement is useful on a machine, and has files for it."""
        if not hardware.is_one_of(self.os, self.architectures):
            return False
        if self.when == "any":
            return True
        if self.when == "cpu":
            return not hardware.accelerators
        return Build(runtime=self.when).has_device_on(hardware)


CatalogueEntry = FrameworkIndex | BuildFamily | BuildExtra | Replacement


def build_of_local_version(local: str) -> Build:
    """Return the build that a local version names, such as ``cu126``; a CPU build if it names none."""
    match = _LOCAL_VERSION.match(local)
    if match is None or match["cpu"]:
        return Build(runtime="cpu")
    if cuda := match["cuda"]:
        is_major = local.startswith("cuda") and len(cuda) == 2  # JAX writes `cuda12`, PyTorch `cu126`.
        return Build(runtime="cuda", version=cuda if is_major else f"{cuda[:-1]}.{cuda[-1]}")
    if match["rocm"]:
        return Build(runtime="rocm", version=match["rocm"])
    return Build(runtime="xpu")


@lru_cache(maxsize=1)
def shipped_builds() -> tuple[CatalogueEntry, ...]:
    """Return every entry of the catalogue, sorted by identity."""
    return shipped_entries(FOLDER / "builds", CatalogueEntry)
