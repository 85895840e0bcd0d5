"""Measurements of frameworks, seen from one machine: what predictions for all kinds of workloads have in common."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import Version

from knowledge.estimate.compared_settings import ComparedSetting, SettingPair, compared_pairs, compared_settings
from knowledge.estimate.discrepancy import MACHINES, of_settings
from knowledge.estimate.evidence import COMPANIONS, Contrast, Machine, Side, machine_of
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.kernel import LAST_PATCH
from knowledge.estimate.machine_discrepancy import MachineDiscrepancy
from knowledge.estimate.similarity import side_on
from knowledge.estimate.stack_discrepancy import StackDiscrepancy

if TYPE_CHECKING:
    from knowledge.domain.hardware import HardwareProfile
    from knowledge.estimate.model_cache import ModelCache

Versions = Mapping[str, Version]
Pair = tuple[int, int]
"""Indices of a stack and of the one that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStacks:
    """Stacks whose gains are the tables of the framework's versions with each companion.

    Versions with one representative have the same gains: each is computed for one of them.

    Attributes:
        sides: The stacks.
        own: Representative of each version of the framework.
        companions: Representative of each version of each companion.
        alone: Each version of the framework and the baseline, by representative.
        cells: For each version of the framework, companion and version of it: both over the baseline, the companion
            over its version in the baseline, and the framework over its version in the baseline.
    """

    sides: tuple[Side, ...]
    own: Mapping[Version, str]
    companions: Mapping[str, Mapping[Version | None, str]]
    alone: Mapping[str, Pair]
    cells: Mapping[tuple[str, str, str], tuple[Pair, Pair, Pair]]

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, each once."""
        return list(dict.fromkeys([*self.alone.values(), *(pair for cell in self.cells.values() for pair in cell)]))


class MeasuredFramework:
    """Measurements of one framework, seen from one machine; all kinds of workloads share one object."""

    def __init__(self, name: str, process: GaussianProcess, machine: Machine) -> None:
        """Create it; everything is computed when it is needed, once.

        Args:
            name: The framework.
            process: Its measurements.
            machine: The machine that predictions are for.
        """
        self.name = name
        self.process = process
        self.machine = machine
        self._representatives: dict[tuple[str, Version], str] = {}
        self._discrepancies: dict[tuple[bool, float, float], StackDiscrepancy] = {}
        self._compared_stacks: dict[object, ComparedStacks] = {}

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The measurements."""
        return self.process.contrasts

    @cached_property
    def _sides(self) -> tuple[Side, ...]:
        """The distinct stacks of the measurements; many measurements share one object."""
        return tuple({id(side): side for c in self.contrasts for side in (c.side, c.reference)}.values())

    @cached_property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared."""
        # Published rows may lack the version.
        return frozenset(Version(text) for text in {side.version for side in self._sides} if text)

    @cached_property
    def usual_reference(self) -> Version:
        """The version that was most often the reference."""
        return Version(statistics.mode(c.reference.version for c in self.contrasts if c.reference.version))

    def usual_stack(self, version: Version | None) -> Side:
        """Return a version of the framework, by default the usual reference, with its usual companions."""
        representative = self._representative(self.name, version or self.usual_reference)
        return Side(version=representative, companions=self._usual_companions, settings={})

    @cached_property
    def _usual_companions(self) -> Mapping[str, str]:
        plain = [c.reference for c in self.contrasts if c.reference.version == str(self.usual_reference)]
        return dict(statistics.mode(tuple(sorted(side.companions.items())) for side in plain))

    @cached_property
    def companions(self) -> tuple[str, ...]:
        """Companions of the measured stacks, without CUDA libraries: which of those a candidate installs is unknown."""
        return tuple(sorted({name for side in self._sides for name in side.companions if name in COMPANIONS}))

    def whole(self, stack: Mapping[str, Version]) -> Side:
        """Return what the measurements distinguish of a stack, without settings."""
        companions = {name: self._representative(name, stack[name]) for name in self.companions if name in stack}
        return Side(version=self._representative(self.name, stack[self.name]), companions=companions, settings={})

    def _representative(self, name: str, version: Version) -> str:
        """Return the version that stands for a version: its minor release, if nothing of that was measured.

        Versions that were not measured and have the same distances to all others
        (:func:`knowledge.estimate.kernel.distances`) have one representative.
        """
        key = name, version
        if key not in self._representatives:
            text = str(version)
            if (name, text) not in self._measured_texts and not version.local:
                text = f"{version.major}.{version.minor}"
                if (name, version.major, version.minor) in self._measured_releases:
                    text = f"{text}.{min(version.micro, LAST_PATCH)}"
            self._representatives[key] = text
        return self._representatives[key]

    def _text(self, companion: str, version: Version | None) -> str:
        """Return the representative of a companion's version; empty if it is absent."""
        return "" if version is None else self._representative(companion, version)

    @cached_property
    def _measured_texts(self) -> frozenset[tuple[str, str]]:
        """Measured versions of the framework and of its companions."""
        companions = ((name, side.companions.get(name, "")) for side in self._sides for name in self.companions)
        versions = ((self.name, side.version) for side in self._sides)
        return frozenset(pair for pair in (*versions, *companions) if pair[1])

    @cached_property
    def _measured_releases(self) -> frozenset[tuple[str, int, int]]:
        """Minor releases of the framework and of its companions of which a version was measured."""
        versions = [(name, Version(text)) for name, text in self._measured_texts]
        return frozenset((name, version.major, version.minor) for name, version in versions)

    def has_measured_step(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> bool:
        """Whether the minor releases of the framework in two stacks were compared, or are the same."""
        steps = {(v.major, v.minor) for v in (stack[self.name], baseline[self.name])}
        return len(steps) == 1 or all((self.name, *step) in self._measured_releases for step in steps)

    def comparisons(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> int:
        """Return the number of measured versions that could replace the baseline's, at least 1."""
        companions = sum(
            (name, str(version)) in self._measured_texts and version != baseline.get(name)
            for name in self.companions
            for version in candidates.get(name, ())
        )
        return max(1, len(self.versions - {baseline[self.name]}) + companions)

    def compared_stacks(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> ComparedStacks:
        """Return the stacks whose gains are needed to choose among candidates.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
        """
        relevant = (self.name, *self.companions)
        key = tuple((tuple(candidates.get(name, ())), baseline.get(name)) for name in relevant)
        if key not in self._compared_stacks:
            self._compared_stacks[key] = self._listed_stacks(candidates, baseline)
        return self._compared_stacks[key]

    def _listed_stacks(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> ComparedStacks:
        own, anchor = list(candidates[self.name]), baseline[self.name]
        others = {
            companion: list(dict.fromkeys([baseline.get(companion), *candidates.get(companion, ()), None]))
            for companion in self.companions
        }
        sides: list[Side] = []
        places: dict[tuple[str, str, str], int] = {}

        def place(text: str, version: Version, companion: str = "", other: Version | None = None) -> int:
            changes = companion and self._text(companion, other) != self._text(companion, baseline.get(companion))
            key = (text, companion, self._text(companion, other)) if changes else (text, "", "")
            if key not in places:
                places[key] = len(sides)
                stack = with_version(baseline, companion, other) if changes else baseline
                sides.append(self.whole({**stack, self.name: version}))
            return places[key]

        texts = {version: self._representative(self.name, version) for version in [anchor, *own]}
        first = {text: version for version, text in reversed(texts.items())}
        base = place(texts[anchor], anchor)
        alone = {text: (place(text, version), base) for text, version in first.items()}
        cells: dict[tuple[str, str, str], tuple[Pair, Pair, Pair]] = {}
        for companion, versions in others.items():
            for other in {self._text(companion, version): version for version in versions}.values():
                at_anchor = place(texts[anchor], anchor, companion, other)
                for text, version in first.items():
                    joint = place(text, version, companion, other)
                    cell = ((joint, base), (joint, alone[text][0]), (joint, at_anchor))
                    cells[text, companion, self._text(companion, other)] = cell
        return ComparedStacks(
            sides=tuple(sides),
            own={version: texts[version] for version in own},
            companions={
                companion: {other: self._text(companion, other) for other in versions}
                for companion, versions in others.items()
            },
            alone=alone,
            cells=cells,
        )

    @cached_property
    def _measured_settings(self) -> frozenset[tuple[str, str]]:
        """Settings that were measured, each with its value on the machine that it was measured on."""
        return frozenset(
            item
            for c in self.contrasts
            for side in (c.side, c.reference)
            if side.settings
            for item in side_on(side, c.machine).settings.items()
        )

    def has_measured_setting(self, name: str, value: str) -> bool:
        """Whether a value of a setting was measured on a machine that says something about this one.

        A reduced precision must have been measured on a processor with the same feature for such matrices.
        """
        side = side_on(Side(version="", companions={}, settings={name: value}), self.machine)
        return (name, side.settings[name]) in self._measured_settings

    @cached_property
    def settings(self) -> tuple[ComparedSetting, ...]:
        """Run-time settings that were compared with their absence."""
        return compared_settings(self.contrasts, self.machine)

    @cached_property
    def setting_pairs(self) -> tuple[SettingPair, ...]:
        """Pairs of these settings that were measured together."""
        return compared_pairs(self.contrasts, self.settings)

    @cached_property
    def elsewhere(self) -> MachineDiscrepancy:
        """How far effects of settings on this machine may be from those on other kinds of machines."""
        relative = self.process.amplitudes.discrepancies.get(of_settings(MACHINES), 0.0)
        return MachineDiscrepancy(self.contrasts, self.machine.kind, relative)

    def discrepancy(self, kind: str, *, by_models: bool) -> StackDiscrepancy:
        """Return how far gains may be from those of what was measured.

        Args:
            kind: Name of the discrepancy.
            by_models: Whether predictions come from whole models.
        """
        deviations = self.process.amplitudes.discrepancies
        key = by_models, deviations.get(kind, 0.0), deviations.get(of_settings(kind), 0.0)
        if key not in self._discrepancies:
            self._discrepancies[key] = StackDiscrepancy(self.contrasts if by_models else (), *key[1:])
        return self._discrepancies[key]


class Measurements:
    """The measured frameworks, seen from one machine."""

    def __init__(self, models: ModelCache, hardware: HardwareProfile) -> None:
        """Create them; a framework is read when it is needed.

        Args:
            models: Models of a knowledge base.
            hardware: The machine.
        """
        self.models = models
        self.hardware = hardware
        self._by_name: dict[str, MeasuredFramework | None] = {}

    def of(self, name: str, own: Sequence[Contrast] = ()) -> MeasuredFramework | None:
        """Return the measurements of a framework; none if its versions were not compared.

        Args:
            name: The framework.
            own: Contrasts of a project's own benchmark, which count as well.
        """
        if own:
            return self._read(name, own)
        if name not in self._by_name:
            self._by_name[name] = self._read(name, ())
        return self._by_name[name]

    def _read(self, name: str, own: Sequence[Contrast]) -> MeasuredFramework | None:
        process = self.models.process(name, self.device(name), own)
        return MeasuredFramework(name, process, self.machine(name)) if process else None

    def device(self, name: str) -> str:
        """Return the device that a framework runs on: ``cpu`` or ``cuda``."""
        return "cuda" if self.hardware.gpu and name != "numpy" else "cpu"

    def machine(self, name: str) -> Machine:
        """Return the machine that a framework runs on."""
        return machine_of(self.hardware, self.device(name))


def with_version(stack: Mapping[str, Version], name: str, version: Version | None) -> dict[str, Version]:
    """Return a stack with another version of one package, or without it."""
    rest = {other: v for other, v in stack.items() if other != name}
    return rest if version is None else {**rest, name: version}
