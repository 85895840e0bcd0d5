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
    EmbeddedRule,
    PackageRule,
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


class RuleBook:
    """The rules that apply to one machine."""

    def __init__(self, rules: Iterable[Rule], hardware: HardwareProfile) -> None:
        rules = tuple(rules)
        self._hardware = hardware
        self.conflicts = tuple(rule for rule in rules if isinstance(rule, ConflictRule))
        """Rules about pairs of packages that do not work together, on any machine."""
        self.slower = tuple(rule for rule in rules if isinstance(rule, SlowerRule) and rule.hardware.admits(hardware))
        """Documented slow-downs on hardware like that of the machine."""
        self._undeclared: dict[str, list[PackageRule]] = defaultdict(list)
        self._unary: dict[str, list[PackageRule]] = defaultdict(list)
        self._runtimes: dict[str, list[PackageRule]] = defaultdict(list)
        for rule in rules:
            if isinstance(rule, RuntimeRule):
                self._runtimes[rule.cuda].append(rule)
            if isinstance(rule, UndeclaredRequirementRule):
                self._undeclared[rule.package].append(rule)
            elif isinstance(rule, RuntimeRule | VendorRule | EmbeddedRule):
                for package in rule.packages:
                    self._unary[package].append(rule)
            elif not isinstance(rule, ConflictRule | SlowerRule):
                self._unary[rule.package].append(rule)

    def judge(self, name: str, version: Version) -> tuple[Verdict, ...]:
        """Return the verdicts of the rules on one package version; an empty tuple if no rule applies."""
        # Called for every candidate, and few packages have rules.
        if name not in self._unary and name not in self._undeclared and version.local is None:
            return ()
        undeclared = self._verdicts(self._undeclared.get(name, ()), name, version)
        if not self._hardware.accelerators:
            return undeclared
        # A local version such as `+cu126` says that the file contains this CUDA runtime, or requires it.
        runtimes = self._runtimes.get(cuda_of_local_version(version) or "", ())
        return (*undeclared, *self._verdicts((*self._unary.get(name, ()), *runtimes), name, version))

    def is_usable(self, build: Build) -> bool:
        """Whether a build runs on the machine, and is for processors or for an accelerator that the machine has."""
        if not build.has_device_on(self._hardware):
            return False
        if build.runtime != "cuda" or "." not in build.version:
            return True
        rules = self._runtimes.get(build.version, ())
        return all(v.severity != "forbidden" for v in self._verdicts(rules, "", Version(f"{build.version}.0")))

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
            if isinstance(rule, RuntimeRule) and (rule.cuda == stated if stated else rule.is_of(version)):
                yield rule

    def _verdicts(self, rules: Iterable[PackageRule], name: str, version: Version) -> tuple[Verdict, ...]:
        objections = ((rule, rule.objection(name, version, self._hardware)) for rule in rules)
        return tuple(_verdict(rule, *objection) for rule, objection in objections if objection is not None)

    def judge_together(self, versions: Mapping[str, Version]) -> tuple[tuple[ConflictRule, Verdict], ...]:
        """Return the pairs of a stack that do not work together."""
        return tuple(
            (rule, _verdict(rule, rule.breaks or "combination", rule.message))
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
            and (not rule.other or (rule.other in versions and admits(rule.other_versions, versions[rule.other])))
        )


def _verdict(rule: Rule, about: Subject, message: str) -> Verdict:
    return Verdict(rule=rule.id, severity=rule.severity, message=message, source=rule.source, about=about)


def publishers_indexes(machines: Iterable[HardwareProfile]) -> tuple[FrameworkIndex, ...]:
    """Return the indexes of publishers with builds that at least one machine can use, by the rules that ship."""
    books = [RuleBook(shipped_rules(), hardware) for hardware in machines]
    return tuple(dict.fromkeys(index for book in books for index in book.usable_indexes(shipped_builds())))
