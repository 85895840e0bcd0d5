"""Evaluation of the rules on one machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from packaging.version import Version

from knowledge.catalogue.builds import Build, CatalogueEntry, FrameworkIndex, shipped_builds
from knowledge.catalogue.entries import admits
from knowledge.catalogue.rules import (
    CapabilityRule,
    ConflictRule,
    CpuOnlyRule,
    EmbeddedRule,
    PublisherTestedRule,
    Rule,
    RuntimeRule,
    Subject,
    UndeclaredRequirementRule,
    VendorRule,
    Verdict,
    shipped_rules,
)
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.stack import cuda_of_local_version
from knowledge.hardware.accelerators import model_of

_Unary = CapabilityRule | RuntimeRule | PublisherTestedRule | CpuOnlyRule | VendorRule | EmbeddedRule


class RuleBook:
    """The rules that apply to one machine."""

    def __init__(self, rules: Iterable[Rule], hardware: HardwareProfile) -> None:
        self._hardware = hardware
        self._unary: dict[str, list[_Unary]] = defaultdict(list)
        self._runtimes: dict[str, list[_Unary]] = defaultdict(list)
        self._undeclared: dict[str, list[UndeclaredRequirementRule]] = defaultdict(list)
        conflicts = []
        slower = []
        for rule in rules:
            if isinstance(rule, ConflictRule):
                conflicts.append(rule)
            elif isinstance(rule, SlowerRule):
                if rule.hardware.admits(hardware):
                    slower.append(rule)
            elif isinstance(rule, UndeclaredRequirementRule):
                self._undeclared[rule.package].append(rule)
            else:
                for package in (
                    rule.packages if isinstance(rule, RuntimeRule | VendorRule | EmbeddedRule) else (rule.package,)
                ):
                    self._unary[package].append(rule)
                if isinstance(rule, RuntimeRule):
                    self._runtimes[rule.cuda].append(rule)
        self.conflicts: tuple[ConflictRule, ...] = tuple(conflicts)
        """Rules about pairs of packages that do not work together, on any machine."""
        self.slower: tuple[SlowerRule, ...] = tuple(slower)
        """Documented slow-downs on hardware like that of the machine."""

    def judge(self, name: str, version: Version) -> tuple[Verdict, ...]:
        """Return the verdicts of the rules on one package version; an empty tuple if no rule applies."""
        undeclared = self._judge_undeclared(name, version)
        if not self._hardware.accelerators:
            return undeclared
        # A local version such as `+cu126` says that the file contains this CUDA runtime, or requires it.
        runtimes = self._runtimes.get(cuda_of_local_version(version) or "", ())
        verdicts = [self._judge(rule, name, version) for rule in (*self._unary.get(name, ()), *runtimes)]
        return (*undeclared, *(verdict for verdict in verdicts if verdict is not None))

    def _judge_undeclared(self, name: str, version: Version) -> tuple[Verdict, ...]:
        """Return what a version requires although its metadata does not state it."""
        # Called for every candidate, and few packages have such rules.
        if name not in self._undeclared:
            return ()
        requirements = ((rule, rule.requirement_of(name, version)) for rule in self._undeclared[name])
        return tuple(
            Verdict(
                rule=rule.id,
                severity=rule.severity,
                message=f"`{name} {version}` requires `{requirement}`, which its metadata does not state",
                source=rule.source,
                about="metadata",
            )
            for rule, requirement in requirements
            if requirement is not None
        )

    def judge_cuda(self, cuda: str) -> tuple[Verdict, ...]:
        """Return the verdicts of the rules on a CUDA runtime.

        Args:
            cuda: Its version, ``major.minor``.
        """
        version = Version(f"{cuda}.0")
        verdicts = [self._judge(rule, "", version) for rule in self._runtimes.get(cuda, ())]
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def is_usable(self, build: Build) -> bool:
        """Whether a build runs on the machine, and is for processors or for an accelerator that the machine has."""
        if not build.has_device_on(self._hardware):
            return False
        is_judged = build.runtime == "cuda" and "." in build.version
        return not is_judged or all(verdict.severity != "forbidden" for verdict in self.judge_cuda(build.version))

    def usable_indexes(self, entries: Iterable[CatalogueEntry]) -> list[FrameworkIndex]:
        """Return the indexes of a catalogue with builds that the machine can use.

        A machine without an accelerator uses CPU builds; one with an accelerator uses builds for it, and a CPU build if
        no other runs there.
        """
        indexes = [e for e in entries if isinstance(e, FrameworkIndex) and e.serves(self._hardware)]
        return [index for index in indexes if self.is_usable(index.build)]

    def default_cuda(self, name: str, version: Version) -> str | None:
        """Return the CUDA runtime of the build without a local version, or ``None`` if no rule states it."""
        for rule in self._unary.get(name, ()):
            if isinstance(rule, CapabilityRule) and rule.default and rule.cuda and admits(rule.versions, version):
                return rule.cuda
        return None

    def runtime_without_driver(self, versions: Mapping[str, Version]) -> RuntimeRule | None:
        """Return the CUDA runtime of a stack that needs the newest driver, if the driver of the machine is not known.

        None if the stack has no such runtime, or the machine no NVIDIA GPU, or its driver is known.
        """
        hardware = self._hardware
        if hardware.gpu is None or hardware.driver is not None or hardware.os != "linux":
            return None
        needed = [rule for name, version in versions.items() for rule in self._runtime_rules(name, version)]
        return max(needed, key=lambda rule: (Version(rule.driver), Version(rule.cuda)), default=None)

    def _runtime_rules(self, name: str, version: Version) -> Iterator[RuntimeRule]:
        """Yield the rules about the CUDA runtime that a package version contains or is built for."""
        stated = cuda_of_local_version(version) or self.default_cuda(name, version)
        for rule in (*self._unary.get(name, ()), *self._runtimes.get(stated or "", ())):
            if isinstance(rule, RuntimeRule) and rule.cuda == (stated or _runtime_of(version)):
                yield rule

    def _judge(self, rule: _Unary, name: str, version: Version) -> Verdict | None:
        about: Subject
        if isinstance(rule, CapabilityRule):
            message, about = self._lacks_code(rule, version), "capability"
        elif isinstance(rule, RuntimeRule):
            message, about = self._lacks_driver(rule, version), "driver"
            if message is None:
                message, about = self._lacks_capability(rule, version), "capability"
        elif isinstance(rule, VendorRule):
            message, about = self._of_another_vendor(rule, name, version), "vendor"
        elif isinstance(rule, EmbeddedRule):
            message, about = self._embedded(rule, name, version), "vendor"
        elif isinstance(rule, PublisherTestedRule):
            message, about = self._tested(rule, version), "tested"
        else:
            message, about = self._idle(rule, version), "cpu-only"
        if message is None:
            return None
        return Verdict(rule=rule.id, severity=rule.severity, message=message, source=rule.source, about=about)

    def judge_together(self, versions: Mapping[str, Version]) -> tuple[tuple[ConflictRule, Verdict], ...]:
        """Return the pairs of a stack that do not work together."""
        return tuple(
            (rule, verdict_on(rule))
            for rule in self.conflicts
            if rule.package in versions
            and rule.other in versions
            and admits(rule.versions, versions[rule.package])
            and admits(rule.other_versions, versions[rule.other])
        )

    def slowdowns_of(self, versions: Mapping[str, Version]) -> tuple[tuple[SlowerRule, str], ...]:
        """Return the documented slow-downs of a stack, each with the package that is slow."""
        return tuple(
            (rule, name)
            for rule in self.slower
            for name in rule.packages
            if name in versions
            and rule.concerns(name, versions[name])
            and (not rule.other or (rule.other in versions and rule.concerns_other(versions[rule.other])))
        )

    def _lacks_code(self, rule: CapabilityRule, version: Version) -> str | None:
        gpu = self._hardware.gpu
        if gpu is None or gpu.capability is None or not self._hardware.is_one_of((), rule.architectures):
            return None
        built_with = cuda_of_local_version(version)
        is_this_build = rule.default if version.local is None else built_with is not None and built_with == rule.cuda
        if not is_this_build or not admits(rule.versions, version):
            return None
        if rule.at_least is not None:
            runs = gpu.capability >= _capability(rule.at_least)
            offered = f"compute capability {rule.at_least} and newer"
        else:
            runs = runs_on(gpu.capability, machine_code=rule.machine_code, ptx=rule.ptx)
            offered = ", ".join([*rule.machine_code, *(f"{p}+PTX" for p in rule.ptx)])
        if runs:
            return None
        return (
            f"`{rule.package} {version}` is built for {offered}; {gpu.model} has compute capability "
            f"{gpu.compute_capability}"
        )

    def _lacks_driver(self, rule: RuntimeRule, version: Version) -> str | None:
        driver = self._hardware.driver if self._hardware.gpu is not None else None
        if _runtime_of(version) != rule.cuda or driver is None or self._hardware.os != "linux":
            return None
        if Version(driver.version) < Version(rule.driver):
            return f"CUDA {rule.cuda} needs driver {rule.driver} or newer; the machine has {driver.version}"
        return None

    def _lacks_capability(self, rule: RuntimeRule, version: Version) -> str | None:
        gpu = self._hardware.gpu
        if _runtime_of(version) != rule.cuda:
            return None
        if gpu and gpu.capability and rule.capability and gpu.capability < _capability(rule.capability):
            return (
                f"CUDA {rule.cuda} needs compute capability {rule.capability} or newer; {gpu.model} has "
                f"{gpu.compute_capability}"
            )
        return None

    def _tested(self, rule: PublisherTestedRule, version: Version) -> str | None:
        if self._hardware.gpu is None or not admits(rule.versions, version):
            return None
        return f"`{rule.package} {version}` was tested by its publisher with CUDA {rule.cuda} and cuDNN {rule.cudnn}"

    def _of_another_vendor(self, rule: VendorRule, name: str, version: Version) -> str | None:
        """Return why a build supports none of the machine's accelerators; one text for all versions of such builds."""
        hardware = self._hardware
        if any(accelerator.vendor == rule.vendor for accelerator in hardware.accelerators):
            return None
        if not hardware.is_one_of(rule.os, rule.architectures):
            return None
        if rule.local is None:
            builds = f"`{name}`"
        elif rule.local == "" and version.local is None:
            builds = f"`{name}` without a local version"
        elif rule.local and (version.local or "").startswith(rule.local):
            builds = f"`{name}` with a local version `+{rule.local}...`"
        else:
            return None
        instead = f": {rule.instead}" if rule.instead else ""
        return (
            f"{builds} is built for {rule.runtime}, and the target has {hardware.accelerators[0].model}{instead} "
            f"(rule `{rule.id}`)"
        )

    def _embedded(self, rule: EmbeddedRule, name: str, version: Version) -> str | None:
        """Return what is not known of a build that the vendor of an embedded module did not make for it."""
        gpu = self._hardware.gpu
        model = model_of(gpu) if gpu is not None and gpu.vendor == rule.vendor else None
        if gpu is None or model is None or model.kind != "embedded" or rule.own in (version.local or ""):
            return None
        return rule.message.format(package=name, model=gpu.model)

    def _idle(self, rule: CpuOnlyRule, version: Version) -> str | None:
        if rule.local is not None and version.local != rule.local:
            return None
        return f"`{rule.package} {version}` is a CPU-only build: it leaves the accelerator idle"


def _runtime_of(version: Version) -> str:
    """Return the CUDA version of a runtime package, or of a file whose local version names it."""
    return cuda_of_local_version(version) or f"{version.major}.{version.minor}"


def verdict_on(rule: ConflictRule) -> Verdict:
    """Return the verdict of a rule about two packages."""
    about: Subject = rule.breaks or "combination"
    return Verdict(rule=rule.id, severity=rule.severity, message=rule.message, source=rule.source, about=about)


def runs_on(capability: tuple[int, int], *, machine_code: Iterable[str], ptx: Iterable[str]) -> bool:
    """Whether code that was built for some compute capabilities runs on a GPU.

    Machine code runs within its major version on the same or a newer minor one; PTX on the same or anything newer.
    """
    major, minor = capability
    for code in map(_capability, machine_code):
        if code[0] == major and code[1] <= minor:
            return True
    return any(_capability(code) <= (major, minor) for code in ptx)


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def publishers_indexes(machines: Iterable[HardwareProfile]) -> tuple[FrameworkIndex, ...]:
    """Return the indexes of publishers with builds that at least one machine can use, by the rules that ship."""
    books = [RuleBook(shipped_rules(), hardware) for hardware in machines]
    return tuple(dict.fromkeys(index for book in books for index in book.usable_indexes(shipped_builds())))
