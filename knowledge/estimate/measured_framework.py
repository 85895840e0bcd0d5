"""Measurements of frameworks, seen from one machine: what predictions for all kinds of workloads have in common."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.version import Version

from knowledge.estimate.compared_settings import ComparedSetting, SettingPair, compared_pairs, compared_settings
from knowledge.evidence.contrasts import COMPANIONS, Contrast, Machine, Side

Versions = Mapping[str, Version]
_LAST_PATCH = 9
"""Later patch releases of a minor release have the same gains (:mod:`knowledge.estimate.gain_model`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStacks:
    """Stacks that differ from a baseline in one package; versions with one representative have the same gains.

    Attributes:
        baseline: The baseline.
        own: Representative of each version of the framework.
        companions: Representative of each version of each companion; none is its absence.
        stacks: The stack of each package and representative.
    """

    baseline: Side
    own: Mapping[Version, str]
    companions: Mapping[str, Mapping[Version | None, str]]
    stacks: Mapping[tuple[str, str], Side]


class MeasuredFramework:
    """Measurements of one framework, seen from one machine."""

    def __init__(self, name: str, contrasts: Sequence[Contrast], machine: Machine) -> None:
        """Create it; everything is computed when it is needed, once.

        Args:
            name: The framework.
            contrasts: Its measurements on one kind of device.
            machine: The machine that predictions are for.
        """
        self.name = name
        self.contrasts = tuple(contrasts)
        self.machine = machine
        self._representatives: dict[tuple[str, Version], str] = {}

    @cached_property
    def _sides(self) -> tuple[Side, ...]:
        """The distinct stacks of the measurements; many measurements share one object."""
        return tuple({id(side): side for c in self.contrasts for side in (c.side, c.reference)}.values())

    @cached_property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared with others."""
        compared = [c for c in self.contrasts if c.side.version != c.reference.version]
        # Published rows may lack the version.
        texts = {side.version for c in compared for side in (c.side, c.reference)}
        return frozenset(Version(text) for text in texts if text)

    @cached_property
    def usual_reference(self) -> Version:
        """The version that was most often the reference."""
        return Version(statistics.mode(c.reference.version for c in self.contrasts if c.reference.version))

    @cached_property
    def companions(self) -> tuple[str, ...]:
        """Companions of the measured stacks, without CUDA libraries: which of those a candidate installs is unknown."""
        return tuple(sorted({name for side in self._sides for name in side.companions if name in COMPANIONS}))

    def whole(self, stack: Versions) -> Side:
        """Return what the measurements distinguish of a stack, without settings."""
        companions = {name: self._representative(name, stack[name]) for name in self.companions if name in stack}
        return Side(version=self._representative(self.name, stack[self.name]), companions=companions, settings={})

    def _representative(self, name: str, version: Version) -> str:
        """Return the version that stands for a version: its minor release, if nothing of that was measured."""
        key = name, version
        if key not in self._representatives:
            text = str(version)
            if (name, text) not in self._measured_texts and not version.local:
                text = f"{version.major}.{version.minor}"
                if (name, version.major, version.minor) in self._measured_releases:
                    text = f"{text}.{min(version.micro, _LAST_PATCH)}"
            self._representatives[key] = text
        return self._representatives[key]

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

    def has_measured_step(self, stack: Versions, baseline: Versions) -> bool:
        """Whether the minor releases of the framework in two stacks were compared, or are the same."""
        steps = {(v.major, v.minor) for v in (stack[self.name], baseline[self.name])}
        return len(steps) == 1 or all((self.name, *step) in self._measured_releases for step in steps)

    def comparisons(self, candidates: Mapping[str, Sequence[Version]], baseline: Versions) -> int:
        """Return the number of measured versions that could replace the baseline's, at least 1."""
        companions = sum(
            (name, str(version)) in self._measured_texts and version != baseline.get(name)
            for name in self.companions
            for version in candidates.get(name, ())
        )
        return max(1, len(self.versions - {baseline[self.name]}) + companions)

    def compared_stacks(self, candidates: Mapping[str, Sequence[Version]], baseline: Versions) -> ComparedStacks:
        """Return the stacks whose gains are needed to choose among candidates.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
        """
        own = {v: self._representative(self.name, v) for v in (baseline[self.name], *candidates[self.name])}
        companions: dict[str, dict[Version | None, str]] = {}
        stacks = {(self.name, text): self.whole({**baseline, self.name: v}) for v, text in own.items()}
        for name in self.companions:
            versions = dict.fromkeys([baseline.get(name), *candidates.get(name, ()), None])
            companions[name] = {v: self._representative(name, v) if v else "" for v in versions}
            stacks |= {(name, t): self.whole(with_version(baseline, name, v)) for v, t in companions[name].items()}
        own = {version: own[version] for version in candidates[self.name]}
        return ComparedStacks(baseline=self.whole(baseline), own=own, companions=companions, stacks=stacks)

    @cached_property
    def settings(self) -> tuple[ComparedSetting, ...]:
        """Run-time settings that were compared with their absence."""
        return compared_settings(self.contrasts, self.machine)

    @cached_property
    def setting_pairs(self) -> tuple[SettingPair, ...]:
        """Pairs of these settings that were measured together."""
        return compared_pairs(self.contrasts, self.settings)


def with_version(stack: Versions, name: str, version: Version | None) -> dict[str, Version]:
    """Return a stack with another version of a package, or without it."""
    others = {other: v for other, v in stack.items() if other != name}
    return others if version is None else {**others, name: version}
