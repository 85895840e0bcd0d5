"""Rules: their types, and the catalogue that ships with the program. Every entry names its source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import Version

from knowledge.catalogue.entries import FOLDER, admits, shipped_entries
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.hardware import HardwareProfile, read_capability
from knowledge.domain.identity import StrictRecord
from knowledge.domain.stack import cuda_of_local_version
from knowledge.hardware.accelerators import model_of

Severity = Literal["forbidden", "discouraged", "slower", "note"]
"""A stack must not contain ``forbidden`` versions; ``discouraged`` ones have a cost; ``slower`` ones are weak evidence
in the score; a ``note`` is only reported."""

Subject = Literal["abi", "combination", "driver", "capability", "tested", "cpu-only", "vendor", "metadata"]
"""Subject of a verdict."""

Objection = tuple[Subject, str]
"""What a rule says of a package version on a machine: the subject, and one sentence without a final full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictRule(StrictRecord):
    """Two packages whose versions do not work together.

    Attributes:
        package: One package.
        versions: Specifier of its versions.
        other: The other package.
        other_versions: Specifier of the other's versions.
        breaks: What is incompatible, if it has a name: ``abi`` is the binary interface.
    """

    kind: Literal["conflict"]
    id: str
    severity: Severity
    package: str
    versions: str
    other: str
    other_versions: str
    message: str
    source: str
    breaks: Literal["abi"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityRule(StrictRecord):
    """NVIDIA GPUs that the wheels of some versions contain code for.

    Machine code for compute capability X.Y runs on X.Z with Z >= Y; PTX for X.Y is compiled by the driver for any newer
    capability (CUDA C++ programming guide, "binary compatibility" and "PTX compatibility").

    Attributes:
        package: The package.
        versions: Specifier of its versions.
        cuda: CUDA runtime version of the build; a local version such as ``+cu126`` names it.
        default: Whether this is the build without a local version.
        architectures: Machine names of the wheels.
        machine_code: Compute capabilities with machine code.
        ptx: Compute capabilities with PTX.
        at_least: Minimum compute capability, if the source names only that.
    """

    kind: Literal["capabilities"]
    id: str
    package: str
    versions: str
    source: str
    cuda: str | None = None
    default: bool = True
    architectures: tuple[str, ...] = ("x86_64",)
    machine_code: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    at_least: str | None = None
    severity: Severity = "forbidden"

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return that a version contains no code for the GPU of a machine."""
        gpu = hardware.gpu
        if gpu is None or gpu.capability is None or not hardware.is_one_of((), self.architectures):
            return None
        built_with = cuda_of_local_version(version)
        is_this_build = self.default if version.local is None else built_with is not None and built_with == self.cuda
        if not is_this_build or not admits(self.versions, version):
            return None
        if self.at_least is not None:
            runs = gpu.capability >= read_capability(self.at_least)
            offered = f"compute capability {self.at_least} and newer"
        else:
            runs = runs_on(gpu.capability, machine_code=self.machine_code, ptx=self.ptx)
            offered = ", ".join([*self.machine_code, *(f"{p}+PTX" for p in self.ptx)])
        needed = f"{gpu.model} has compute capability {gpu.compute_capability}"
        return None if runs else ("capability", f"`{self.package} {version}` is built for {offered}; {needed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRule(StrictRecord):
    """Requirements of a CUDA runtime version on the machine.

    Attributes:
        cuda: CUDA runtime version, ``major.minor``.
        packages: Distributions that contain it.
        driver: Minimum driver version on Linux.
        capability: Minimum compute capability; ``None`` if all GPUs of its time are supported.
    """

    kind: Literal["runtime"]
    id: str
    cuda: str
    packages: tuple[str, ...]
    driver: str
    source: str
    capability: str | None = None
    severity: Severity = "forbidden"

    def is_of(self, version: Version) -> bool:
        """Whether a version, of a runtime package or as a local version states it, is of this CUDA runtime."""
        return self.cuda == (cuda_of_local_version(version) or f"{version.major}.{version.minor}")

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return that the driver or the GPU of a machine is too old."""
        gpu, driver = hardware.gpu, hardware.driver
        if gpu is None or not self.is_of(version):
            return None
        if driver is not None and hardware.os == "linux" and Version(driver.version) < Version(self.driver):
            return "driver", f"CUDA {self.cuda} needs driver {self.driver} or newer; the machine has {driver.version}"
        if gpu.capability and self.capability and gpu.capability < read_capability(self.capability):
            needed = f"CUDA {self.cuda} needs compute capability {self.capability} or newer"
            return "capability", f"{needed}; {gpu.model} has {gpu.compute_capability}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherTestedRule(StrictRecord):
    """The CUDA and cuDNN versions that a framework's publisher tested it with.

    Attributes:
        package: The framework.
        versions: Specifier of its versions.
        cuda: CUDA version.
        cudnn: cuDNN version.
    """

    kind: Literal["tested"]
    id: str
    package: str
    versions: str
    cuda: str
    cudnn: str
    source: str
    severity: Severity = "note"

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return what a version was tested with, on a machine with a GPU."""
        if hardware.gpu is None or not admits(self.versions, version):
            return None
        tested = f"was tested by its publisher with CUDA {self.cuda} and cuDNN {self.cudnn}"
        return "tested", f"`{self.package} {version}` {tested}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOnlyRule(StrictRecord):
    """A build that leaves an accelerator idle.

    Attributes:
        package: The package.
        local: Local version of such builds, or ``None`` if every build is one.
    """

    kind: Literal["cpu-only"]
    id: str
    severity: Severity
    package: str
    source: str
    local: str | None = None

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return that a version leaves the accelerator of a machine idle."""
        if self.local is not None and version.local != self.local:
            return None
        return "cpu-only", f"`{self.package} {version}` is a CPU-only build: it leaves the accelerator idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRule(StrictRecord):
    """Builds for the accelerators of one vendor; those of another one cannot run them.

    Attributes:
        packages: The packages.
        vendor: The vendor, as hardware profiles name it: ``nvidia`` or ``amd``.
        runtime: Runtime of the builds, for people: ``CUDA`` or ``ROCm``.
        instead: What to use for another vendor's accelerator, for people.
        local: Prefix of the local version of such builds (``cu`` of ``+cu126``); empty for builds without a local
            version, none if every build is one.
        os: Systems of the builds; empty for all.
        architectures: Machine names of the builds; empty for all.
    """

    kind: Literal["vendor"]
    id: str
    packages: tuple[str, ...]
    vendor: str
    runtime: str
    source: str
    instead: str = ""
    local: str | None = None
    os: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    severity: Severity = "forbidden"

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return that a build supports no accelerator of a machine; one text for all versions of such builds."""
        if any(accelerator.vendor == self.vendor for accelerator in hardware.accelerators):
            return None
        if not hardware.is_one_of(self.os, self.architectures):
            return None
        if self.local is None:
            builds = f"`{name}`"
        elif self.local == "" and version.local is None:
            builds = f"`{name}` without a local version"
        elif self.local and (version.local or "").startswith(self.local):
            builds = f"`{name}` with a local version `+{self.local}...`"
        else:
            return None
        target = f"the target has {hardware.accelerators[0].model}{f': {self.instead}' if self.instead else ''}"
        return "vendor", f"{builds} is built for {self.runtime}, and {target} (rule `{self.id}`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedRule(StrictRecord):
    """Builds for servers with Arm processors, which the vendor of an embedded module does not publish for it.

    Attributes:
        packages: The packages.
        vendor: The vendor of the modules, as hardware profiles name it.
        own: A part of the local version of the vendor's own builds, such as ``nv``.
        message: What is known about other builds; ``{package}`` and ``{model}`` stand for the package and the module.
    """

    kind: Literal["embedded"]
    id: str
    packages: tuple[str, ...]
    vendor: str
    own: str
    message: str
    source: str
    severity: Severity = "note"

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return what is not known of a build that the vendor of a machine's embedded module did not make for it."""
        gpu = hardware.gpu
        model = model_of(gpu) if gpu is not None and gpu.vendor == self.vendor else None
        if gpu is None or model is None or model.kind != "embedded" or self.own in (version.local or ""):
            return None
        return "vendor", self.message.format(package=name, model=gpu.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredRequirementRule(StrictRecord):
    """A package that some versions of another one need although their metadata does not require it.

    Attributes:
        package: The package whose metadata is incomplete.
        versions: Specifier of its versions.
        requires: The requirement that their metadata lacks; ``{version}`` stands for the version of the package.
    """

    kind: Literal["undeclared"]
    id: str
    package: str
    versions: str
    requires: str
    source: str
    severity: Literal["note"] = "note"

    def requirement_of(self, name: str, version: Version) -> Requirement | None:
        """Return what a version of a package requires according to the rule; ``None`` if the rule is about others."""
        if name != self.package or not admits(self.versions, version):
            return None
        return Requirement(self.requires.format(version=version.public))

    def objection(self, name: str, version: Version, hardware: HardwareProfile) -> Objection | None:
        """Return what a version requires although its metadata does not state it."""
        requirement = self.requirement_of(name, version)
        message = f"`{name} {version}` requires `{requirement}`, which its metadata does not state"
        return None if requirement is None else ("metadata", message)


PackageRule = (
    CapabilityRule
    | RuntimeRule
    | PublisherTestedRule
    | CpuOnlyRule
    | VendorRule
    | EmbeddedRule
    | UndeclaredRequirementRule
)
"""A rule about versions of single packages."""
Rule = ConflictRule | PackageRule | SlowerRule


def runs_on(capability: tuple[int, int], *, machine_code: Iterable[str], ptx: Iterable[str]) -> bool:
    """Whether code that was built for some compute capabilities runs on a GPU.

    Machine code runs within its major version on the same or a newer minor one; PTX on the same or anything newer.
    """
    major, minor = capability
    for code in map(read_capability, machine_code):
        if code[0] == major and code[1] <= minor:
            return True
    return any(read_capability(code) <= (major, minor) for code in ptx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of a rule for one package version on one machine.

    Attributes:
        rule: Identity of the rule.
        severity: Severity of the rule.
        message: One sentence, without a final full stop.
        source: Source of the fact.
        about: Subject of the verdict.
    """

    rule: str
    severity: Severity
    message: str
    source: str
    about: Subject


@lru_cache(maxsize=1)
def shipped_rules() -> tuple[Rule, ...]:
    """Return every rule of the catalogue, sorted by identity."""
    return shipped_entries(FOLDER / "rules", Rule)


@lru_cache(maxsize=1)
def undeclared_requirements() -> tuple[UndeclaredRequirementRule, ...]:
    """Return the shipped rules about requirements that metadata does not state."""
    return tuple(rule for rule in shipped_rules() if isinstance(rule, UndeclaredRequirementRule))
