"""Documented slow-downs: releases that public reports measured to be slower than others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.catalogue.entries import admits
from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.identity import StrictRecord

REPORT_DEVIATION = 0.53
"""Standard deviation of the log ratio of one report: how much independent reports of one slow-down, and this program's
own measurements of it, differ, pooled over the rules with several of them. With the risk aversion of the estimator
(:data:`knowledge.estimate.interface.RISK`), a slow-down of a whole program counts from a ratio of 9.75 on with one
report, of 3.17 with two, and of 1.81 with four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCondition(StrictRecord):
    """Hardware that a slow-down was reported on; empty fields admit all hardware.

    Attributes:
        accelerator: Vendor of the accelerator, as hardware profiles name it; ``none`` if the target must have no
            accelerator, because the slow code runs on the CPU instead.
        models: Names of accelerators; all words of one must be in the model's name.
        capability: Specifier of the compute capability of an NVIDIA GPU.
        features: Instruction-set features that the CPU must have.
        architectures: Machine names, such as ``x86_64``; the target must have one of them.
        os: Operating systems, as hardware profiles name them; the target must have one of them.
    """

    accelerator: Literal["", "none", "nvidia", "amd"] = ""
    models: tuple[str, ...] = ()
    capability: str = ""
    features: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    os: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The hardware in words; empty for all hardware."""
        vendors = {"none": "CPU", "nvidia": "NVIDIA", "amd": "AMD", "": ""}
        capability = f"compute capability {self.capability}" if self.capability else ""
        words = (vendors[self.accelerator], *self.models, capability, *self.features, *self.architectures, *self.os)
        return ", ".join(filter(None, words))

    def admits(self, hardware: HardwareProfile) -> bool:
        """Whether a machine has the hardware."""
        if not set(self.features) <= set(hardware.cpu.features):
            return False
        if not hardware.is_one_of(self.os, self.architectures):
            return False
        if self.accelerator == "none":
            return not hardware.accelerators
        if not (self.accelerator or self.models or self.capability):
            return True
        return any(map(self._admits_accelerator, hardware.accelerators))

    def _admits_accelerator(self, accelerator: Accelerator) -> bool:
        if self.accelerator and accelerator.vendor != self.accelerator:
            return False
        words = _words(accelerator.model)
        if self.models and not any(_words(model) <= words for model in self.models):
            return False
        if not self.capability:
            return True
        capability = accelerator.compute_capability
        return capability is not None and SpecifierSet(self.capability).contains(capability)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction(StrictRecord):
    """A measurement of both versions with this program.

    Attributes:
        ratio: Seconds of the slower version divided by seconds of the faster one.
        low: Lower end of its 95 % interval.
        high: Upper end.
        versions: The compared versions, the slower one first.
        machine: The machine, for people.
        program: What was measured, for people, if it is not what the reports measured; its ratio does not count.
    """

    ratio: float
    low: float
    high: float
    versions: tuple[str, str]
    machine: str
    program: str = ""

    @property
    def is_confirmed(self) -> bool:
        """Whether the interval excludes that the version is as fast as the other one."""
        return self.low > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowerRule(StrictRecord):
    """Versions that public reports measured to be slower than another version.

    Attributes:
        packages: The package; several if its builds have different names.
        versions: Specifier of the versions that are slow: the reported ones, and those up to the first fixed one.
        than: A version that was faster.
        workload: The slow part of a program, for people.
        ratios: Seconds of the slow version divided by seconds of the faster one, one ratio for each independent report,
            at least 1.1: smaller ones are within the noise of a report with one run on each version.
        source: Address of the report.
        whole: Whether the ratios are of whole programs or models, not of one operation.
        parts: What stands for the slow part: the indicator, its parameters and its ``dtype``; empty if nothing does.
        local_versions: Local versions of the slow builds, empty text for builds without one; all builds if empty.
        other: Another package that must be in the stack; empty if none.
        other_versions: Specifier of its versions.
        measured_as: Framework whose measured versions stand for the package's, such as ``jax`` for ``jaxlib``;
            by default the package itself.
        hardware: Hardware that the slow-down was reported on.
        fixed: First version without the slow-down, for people; empty if unknown.
        workaround: How to avoid it with the slow version, for people; empty if unknown.
        reproduction: A measurement of both versions with this program; ``None`` if there is none.
    """

    kind: Literal["slower"]
    id: str
    packages: tuple[str, ...]
    versions: str
    than: str
    workload: str
    ratios: tuple[float, ...]
    source: str
    whole: bool = False
    parts: tuple[Mapping[str, str], ...] = ()
    local_versions: tuple[str, ...] = ()
    other: str = ""
    other_versions: str = ""
    measured_as: str = ""
    hardware: HardwareCondition = HardwareCondition()
    fixed: str = ""
    workaround: str = ""
    reproduction: Reproduction | None = None
    severity: Literal["slower"] = "slower"

    @property
    def reported_ratio(self) -> float:
        """The slow-down that the reports say: their geometric mean."""
        return math.exp(_mean_log(self.ratios))

    @property
    def ratio(self) -> float:
        """The slow-down: the geometric mean of all reports and of the program's own measurement."""
        return math.exp(_mean_log(self._measured_ratios))

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of the slow-down of another program on another machine."""
        return REPORT_DEVIATION / math.sqrt(len(self._measured_ratios))

    @property
    def _measured_ratios(self) -> tuple[float, ...]:
        if self.reproduction is None or self.reproduction.program:
            return self.ratios
        return *self.ratios, self.reproduction.ratio

    def concerns(self, name: str, version: Version) -> bool:
        """Whether a version of a package is one of the slow ones, whatever else is in the stack."""
        if name not in self.packages or not admits(self.versions, version):
            return False
        return not self.local_versions or (version.local or "") in self.local_versions


def _mean_log(ratios: Sequence[float]) -> float:
    return sum(map(math.log, ratios)) / len(ratios)


def _words(model: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", model.lower()))
