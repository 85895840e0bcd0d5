"""Model of one framework whose versions were compared: predictions for a workload on a machine.

The time of a workload is the sum of the times of its parts, each with its share of the time at an anchor stack:
T(stack) = T(anchor) x sum of share_i x exp(-gain_i(stack)), where gain_i is the log speed-up over the anchor at the
part's indicator, a Gaussian process (:mod:`knowledge.estimate.kernel`). The log speed-up of the workload is that of the
mean gains; its variance follows from the gradient (the delta method), in which each part has the weight of its share of
the time at the stack itself. The gains are tables of the framework's version with each companion, which the optimiser
and the reports share: exact for one companion that changes; the changes of several companions add up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from packaging.version import Version

from knowledge.estimate.discrepancy import MACHINES, of_settings
from knowledge.estimate.evidence import COMPANIONS, Machine, Side
from knowledge.estimate.framework_evidence import Estimate, evidence_line, interval_of
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.interface import (
    CompanionGain,
    CompanionGains,
    Effect,
    FrameworkGains,
    PredictedChange,
    PredictedGain,
)
from knowledge.estimate.kernel import LAST_PATCH
from knowledge.estimate.machine_discrepancy import MachineDiscrepancy
from knowledge.estimate.similarity import side_on
from knowledge.estimate.speeds import Speeds
from knowledge.estimate.stack_discrepancy import StackDiscrepancy, program_of
from knowledge.estimate.task_discrepancy import TaskDiscrepancy
from knowledge.estimate.workloads import OPERATIONS

_NONE = StackDiscrepancy((), 0.0)
Shares = Mapping[tuple[str, str], float]
"""Share of the time of each part at the anchor, by label and family of its indicator."""


class FrameworkModel:
    """Model of one framework, for a workload on a machine."""

    def __init__(
        self,
        name: str,
        process: GaussianProcess,
        shares: Shares,
        machine: Machine,
        *,
        basis: str = OPERATIONS,
        discrepancy: StackDiscrepancy | TaskDiscrepancy | None = None,
        profiled: Version | None = None,
    ) -> None:
        """Create the model.

        Args:
            name: The framework.
            process: Its measurements.
            shares: Shares of the workload's time.
            machine: The machine that predictions are for.
            basis: List of the workload's parts that the shares come from.
            discrepancy: Standard deviation of the gain of a whole program beyond that of the parts; none by default.
            profiled: Version of the framework at which the shares hold; by default the usual reference.
        """
        self.name = name
        self._process = process
        self._shares = shares
        self.machine = machine
        self.basis = basis
        self._discrepancy = discrepancy or _NONE
        self._profiled = profiled
        self._representatives: dict[tuple[str, Version], str] = {}
        self._gains: dict[object, FrameworkGains] = {}

    @cached_property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared."""
        texts = {side.version for c in self._process.contrasts for side in (c.side, c.reference)}
        # Published rows may lack the version.
        return frozenset(Version(text) for text in texts if text)

    @property
    def sizes(self) -> int:
        """Number of sizes and element types of indicators that count."""
        return len(self._shares)

    @cached_property
    def usual_reference(self) -> Version:
        """The version that was most often the reference."""
        return Version(statistics.mode(c.reference.version for c in self._process.contrasts if c.reference.version))

    @cached_property
    def _companions(self) -> tuple[str, ...]:
        """Companions of the measured stacks, without CUDA libraries: which of those a candidate installs is unknown."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        return tuple(sorted({name for side in sides for name in side.companions if name in COMPANIONS}))

    @cached_property
    def anchor(self) -> Side:
        """The stack at which the shares of the time hold: the profiled version or the usual reference.

        The companions are the usual ones of the reference.
        """
        plain = [c.reference for c in self._process.contrasts if c.reference.version == str(self.usual_reference)]
        companions = statistics.mode(tuple(sorted(side.companions.items())) for side in plain)
        version = self._representative(self.name, self._profiled or self.usual_reference)
        return Side(version=version, companions=dict(companions), settings={})

    def speeds(self, sides: Sequence[Side], shares: Shares | None = None) -> Speeds:
        """Return the speeds of stacks, for the workload or for other parts."""
        import numpy as np

        discrepancy = _NONE if shares else self._discrepancy
        shares = shares or self._shares
        posterior = self._process.posterior([*sides, self.anchor], list(shares), self.machine)
        levels = posterior.levels()
        times = np.array(list(shares.values())) * np.exp(levels[-1] - levels[:-1])
        totals = times.sum(axis=1)
        weights = times / totals[:, None]
        return Speeds(
            means=-np.log(totals),
            sums=posterior.sums(np.vstack([weights, weights[:1]]), len(sides)),
            widening=self._process.amplitudes.widening,
            setting_widening=self._process.amplitudes.setting_widening,
            programs=[program_of(side_on(side, self.machine)) for side in sides],
            discrepancy=discrepancy,
            elsewhere=self._elsewhere,
        )

    @cached_property
    def _elsewhere(self) -> MachineDiscrepancy:
        process = self._process
        relative = process.amplitudes.discrepancies.get(of_settings(MACHINES), 0.0)
        return MachineDiscrepancy(process.contrasts, self.machine.kind, relative)

    def gains(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], *, share: float
    ) -> FrameworkGains:
        """Return gains over a baseline: of the framework's versions, and of its companions with each of them.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
            share: Share of the workload's time that is spent in the framework.
        """
        relevant = (self.name, *self._companions)
        key = (tuple((tuple(candidates.get(name, ())), baseline.get(name)) for name in relevant), share)
        if key not in self._gains:
            self._gains[key] = self._computed_gains(candidates, baseline, share)
        return self._gains[key]

    def _computed_gains(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], share: float
    ) -> FrameworkGains:
        # Versions with one representative have the same gains: each is computed for one of them.
        own, anchor = list(candidates[self.name]), baseline[self.name]
        others = {
            companion: list(dict.fromkeys([baseline.get(companion), *candidates.get(companion, ()), None]))
            for companion in self._companions
        }
        sides: dict[tuple[str, str, str], Side] = {}

        def side(
            text: str, version: Version, companion: str = "", other: Version | None = None
        ) -> tuple[str, str, str]:
            changes = companion and self._text(companion, other) != self._text(companion, baseline.get(companion))
            key = (text, companion, self._text(companion, other)) if changes else (text, "", "")
            if key not in sides:
                stack = _changed(baseline, companion, other) if changes else baseline
                sides[key] = self._whole({**stack, self.name: version})
            return key

        texts = {version: self._representative(self.name, version) for version in [anchor, *own]}
        first = {text: version for version, text in reversed(texts.items())}
        base = side(texts[anchor], anchor)
        alone = {text: (side(text, version), base) for text, version in first.items()}
        cells: dict[tuple[str, str, str], tuple[tuple[tuple[str, str, str], tuple[str, str, str]], ...]] = {}
        for companion, versions in others.items():
            for other in {self._text(companion, version): version for version in versions}.values():
                at_anchor = side(texts[anchor], anchor, companion, other)
                for text, version in first.items():
                    joint = side(text, version, companion, other)
                    cell = ((joint, base), (joint, alone[text][0]), (joint, at_anchor))
                    cells[text, companion, self._text(companion, other)] = cell
        pairs = list(dict.fromkeys([*alone.values(), *(pair for cell in cells.values() for pair in cell)]))
        place = {key: number for number, key in enumerate(sides)}
        gains = self.speeds(list(sides.values())).gains(
            [place[one] for one, _ in pairs], [place[other] for _, other in pairs]
        )
        by_pair = {
            pair: PredictedGain(mean=share * gain.mean, variance=share**2 * gain.variance)
            for pair, gain in zip(pairs, gains, strict=True)
        }
        scaled = {
            key: CompanionGain(joint=by_pair[joint], own=by_pair[own_gain], framework=by_pair[framework])
            for key, (joint, own_gain, framework) in cells.items()
        }
        return FrameworkGains(
            framework=self.name,
            alone={version: by_pair[alone[texts[version]]] for version in own},
            with_companion=CompanionGains(
                own={version: texts[version] for version in own},
                companions={
                    companion: {other: self._text(companion, other) for other in versions}
                    for companion, versions in others.items()
                },
                cells=scaled,
            ),
            comparisons=max(1, len(self.versions - {anchor}) + self._measured_companions(candidates, baseline)),
        )

    def _text(self, companion: str, version: Version | None) -> str:
        """Return the representative of a companion's version; empty if it is absent."""
        return "" if version is None else self._representative(companion, version)

    def _measured_companions(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> int:
        """Return the number of measured companion versions that could replace the baseline's."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        measured = {
            (name, side.companions[name]) for side in sides for name in self._companions if name in side.companions
        }
        return sum(
            (name, str(version)) in measured and version != baseline.get(name)
            for name in self._companions
            for version in candidates.get(name, ())
        )

    def has_measured_step(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> bool:
        """Whether the minor releases of the framework in two stacks were compared, or are the same."""
        steps = {(v.major, v.minor) for v in (stack[self.name], baseline[self.name])}
        return len(steps) == 1 or all((self.name, *step) in self._measured_releases for step in steps)

    def differs(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> bool:
        """Whether two stacks differ in a version that the model uses."""
        return self._whole(stack) != self._whole(baseline)

    def gain(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], shares: Shares | None = None
    ) -> PredictedGain:
        """Return the log speed-up of a stack over a baseline, for the workload or for the given parts.

        It is the gain of the tables: the changes of several companions add up.
        """
        version = stack[self.name]
        alone = {**baseline, self.name: version}
        changed = [name for name in self._companions if stack.get(name) != baseline.get(name)]
        singles = [_changed(alone, name, stack.get(name)) for name in changed]
        sides = [self._whole(s) for s in (baseline, alone, *singles)]
        speeds = self.speeds(sides, shares)
        first, *joint = speeds.gains(range(1, len(sides)), [0] * (len(sides) - 1))
        return PredictedGain(
            mean=first.mean + sum(g.mean - first.mean for g in joint),
            variance=first.variance + sum(g.variance - first.variance for g in joint),
        )

    def _whole(self, stack: Mapping[str, Version]) -> Side:
        companions = {name: self._representative(name, stack[name]) for name in self._companions if name in stack}
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

    @cached_property
    def _measured_texts(self) -> frozenset[tuple[str, str]]:
        """Measured versions of the framework and of its companions."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        companions = ((name, side.companions.get(name, "")) for side in sides for name in self._companions)
        versions = ((self.name, side.version) for side in sides)
        return frozenset(pair for pair in (*versions, *companions) if pair[1])

    @cached_property
    def _measured_releases(self) -> frozenset[tuple[str, int, int]]:
        """Minor releases of the framework and of its companions of which a version was measured."""
        versions = [(name, Version(text)) for name, text in self._measured_texts]
        return frozenset((name, version.major, version.minor) for name, version in versions)

    def estimate(self, stack: Mapping[str, Version], against: Mapping[str, Version], *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, with the contrasts that support it."""
        speeds = self.speeds([self._whole(stack), self._whole(against)])
        gain = self.gain(stack, against)
        half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(max(0.0, gain.variance))
        weights = speeds.sums.contrast_weights(0, 1).tolist()
        weighted = sorted(
            zip(weights, self._process.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
        )
        return Estimate(
            speedup=math.exp(gain.mean),
            low=math.exp(gain.mean - half),
            high=math.exp(gain.mean + half),
            confidence=confidence,
            measured={str(stack[self.name]), str(against[self.name])} <= {str(v) for v in self.versions},
            weighted_contrasts=tuple((float(w), c) for w, c in weighted if w),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> list[Effect]:
        """Return the predicted speed-up at each indicator, by label; an empty list if no version differs."""
        if not self.differs(stack, baseline):
            return []
        return [self._effect(label[0], self.gain(stack, baseline, {label: 1.0})) for label in sorted(self._shares)]

    def setting_effect(self, stack: Mapping[str, Version], name: str, value: str, over: str = "") -> Effect | None:
        """Return the predicted effect of a value of a setting on the speed of a stack; none if it was not measured.

        Args:
            stack: The stack.
            name: Name of the setting.
            value: Its value; empty for its absence.
            over: The value that it is compared with, by default its absence.
        """
        if not all(self.has_measured_setting(name, text) for text in (value, over) if text):
            return None
        return self._effect(f"{name}={value}", self.gain_of_setting(stack, name, value, over))

    def has_measured_setting(self, name: str, value: str) -> bool:
        """Whether a value of a setting was measured on a machine that says something about this one.

        A reduced precision must have been measured on a processor with the same feature for such matrices.
        """
        feature = side_on(Side(version="", companions={}, settings={name: value}), self.machine).settings[name]
        return any(
            side_on(side, c.machine).settings[name] == feature
            for c in self._process.contrasts
            for side in (c.side, c.reference)
            if name in side.settings
        )

    def gain_of_setting(self, stack: Mapping[str, Version], name: str, value: str, over: str = "") -> PredictedGain:
        """Return the log speed-up of a stack by a value of a setting over another one, by default over its absence."""
        (gain,) = self.gains_of_settings(stack, [(stack[self.name], {name: value}, {name: over} if over else {})])
        return gain

    def gains_of_settings(
        self,
        stack: Mapping[str, Version],
        requests: Sequence[tuple[Version, Mapping[str, str], Mapping[str, str]]],
    ) -> list[PredictedGain]:
        """Return the log speed-ups of a stack by settings over others, each with another version of the framework."""
        sides = [
            replace(self._whole({**stack, self.name: version}), settings=dict(settings))
            for version, *both in requests
            for settings in both
        ]
        return self.speeds(sides).gains(range(0, len(sides), 2), range(1, len(sides), 2)) if sides else []

    def _effect(self, subject: str, gain: PredictedGain) -> Effect:
        speedup, low, high = interval_of(gain)
        return Effect(subject=subject, package=self.name, speedup=speedup, low=low, high=high)

    def change(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], gain: PredictedGain
    ) -> PredictedChange:
        """Return the prediction for a change, with the comparisons that support it."""
        speedup, low, high = interval_of(gain)
        versions = {str(stack[self.name]), str(baseline[self.name])}
        families = {family for _, family in self._shares}
        plain = [c for c in self._process.contrasts if not (c.is_control or c.side.settings or c.reference.settings)]
        contrasts = [c for c in plain if (c.label, c.family) in self._shares] or [
            c for c in plain if c.family in families
        ]
        direct = [c for c in contrasts if {c.side.version, c.reference.version} == versions]
        related = direct or [c for c in contrasts if {c.side.version, c.reference.version} & versions]
        return PredictedChange(
            package=self.name,
            speedup=speedup,
            low=low,
            high=high,
            measured=versions <= {str(v) for v in self.versions},
            evidence=tuple(evidence_line(c) for c in related or contrasts),
        )


def _changed(stack: Mapping[str, Version], name: str, version: Version | None) -> dict[str, Version]:
    """Return a stack with another version of one package, or without it."""
    rest = {other: v for other, v in stack.items() if other != name}
    return rest if version is None else {**rest, name: version}
