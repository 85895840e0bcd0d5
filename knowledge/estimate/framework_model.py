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

from knowledge.estimate.evidence import Side
from knowledge.estimate.framework_evidence import Estimate, evidence_line, interval_of
from knowledge.estimate.interface import (
    CompanionGain,
    CompanionGains,
    Effect,
    FrameworkGains,
    PredictedChange,
    PredictedGain,
)
from knowledge.estimate.measured_framework import MeasuredFramework, with_version
from knowledge.estimate.similarity import side_on
from knowledge.estimate.speeds import Speeds
from knowledge.estimate.stack_discrepancy import Program, StackDiscrepancy, program_of
from knowledge.estimate.task_discrepancy import TaskDiscrepancy
from knowledge.estimate.workloads import OPERATIONS

_NONE = StackDiscrepancy((), 0.0)
Shares = Mapping[tuple[str, str], float]
"""Share of the time of each part at the anchor, by label and family of its indicator."""
SettingRequest = tuple[Version, Mapping[str, str], Mapping[str, str]]
"""A version of the framework, settings, and those that they are compared with."""


class FrameworkModel:
    """Model of one framework, for a workload on a machine."""

    def __init__(
        self,
        measured: MeasuredFramework,
        shares: Shares,
        *,
        basis: str = OPERATIONS,
        discrepancy: StackDiscrepancy | TaskDiscrepancy | None = None,
        profiled: Version | None = None,
    ) -> None:
        """Create the model.

        Args:
            measured: Measurements of the framework, seen from the machine that predictions are for.
            shares: Shares of the workload's time.
            basis: List of the workload's parts that the shares come from.
            discrepancy: Standard deviation of the gain of a whole program beyond that of the parts; none by default.
            profiled: Version of the framework at which the shares hold; by default the usual reference.
        """
        self.measured = measured
        self.name = measured.name
        self.machine = measured.machine
        self.basis = basis
        self._shares = shares
        self._discrepancy = discrepancy or _NONE
        self._profiled = profiled
        self._gains_of_settings: dict[tuple[object, Program, Program], PredictedGain] = {}

    @property
    def sizes(self) -> int:
        """Number of sizes and element types of indicators that count."""
        return len(self._shares)

    @property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared."""
        return self.measured.versions

    @cached_property
    def anchor(self) -> Side:
        """The stack at which the shares of the time hold: the profiled version or the usual reference."""
        return self.measured.usual_stack(self._profiled)

    def speeds(self, sides: Sequence[Side], shares: Shares | None = None) -> Speeds:
        """Return the speeds of stacks, for the workload or for other parts."""
        import numpy as np

        process, discrepancy = self.measured.process, _NONE if shares else self._discrepancy
        shares = shares or self._shares
        posterior = process.posterior([*sides, self.anchor], list(shares), self.machine)
        levels = posterior.levels()
        times = np.array(list(shares.values())) * np.exp(levels[-1] - levels[:-1])
        totals = times.sum(axis=1)
        weights = times / totals[:, None]
        return Speeds(
            means=-np.log(totals),
            sums=posterior.sums(np.vstack([weights, weights[:1]]), len(sides)),
            widening=process.amplitudes.widening,
            setting_widening=process.amplitudes.setting_widening,
            programs=[program_of(side_on(side, self.machine)) for side in sides],
            discrepancy=discrepancy,
            elsewhere=self.measured.elsewhere,
        )

    def gains(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], *, share: float
    ) -> FrameworkGains:
        """Return gains over a baseline: of the framework's versions, and of its companions with each of them.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
            share: Share of the workload's time that is spent in the framework.
        """
        stacks = self.measured.compared_stacks(candidates, baseline)
        pairs = stacks.pairs
        gains = self.speeds(stacks.sides).gains([one for one, _ in pairs], [other for _, other in pairs])
        by_pair = {
            pair: PredictedGain(mean=share * gain.mean, variance=share**2 * gain.variance)
            for pair, gain in zip(pairs, gains, strict=True)
        }
        return FrameworkGains(
            framework=self.name,
            alone={version: by_pair[stacks.alone[text]] for version, text in stacks.own.items()},
            with_companion=CompanionGains(
                own=stacks.own,
                companions=stacks.companions,
                cells={
                    key: CompanionGain(joint=by_pair[joint], own=by_pair[own], framework=by_pair[framework])
                    for key, (joint, own, framework) in stacks.cells.items()
                },
            ),
            comparisons=self.measured.comparisons(candidates, baseline),
        )

    def differs(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> bool:
        """Whether two stacks differ in a version that the model uses."""
        return self.measured.whole(stack) != self.measured.whole(baseline)

    def gain(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], shares: Shares | None = None
    ) -> PredictedGain:
        """Return the log speed-up of a stack over a baseline, for the workload or for the given parts.

        It is the gain of the tables: the changes of several companions add up.
        """
        version = stack[self.name]
        alone = {**baseline, self.name: version}
        changed = [name for name in self.measured.companions if stack.get(name) != baseline.get(name)]
        singles = [with_version(alone, name, stack.get(name)) for name in changed]
        sides = [self.measured.whole(s) for s in (baseline, alone, *singles)]
        speeds = self.speeds(sides, shares)
        first, *joint = speeds.gains(range(1, len(sides)), [0] * (len(sides) - 1))
        return PredictedGain(
            mean=first.mean + sum(g.mean - first.mean for g in joint),
            variance=first.variance + sum(g.variance - first.variance for g in joint),
        )

    def estimate(self, stack: Mapping[str, Version], against: Mapping[str, Version], *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, with the contrasts that support it."""
        speeds = self.speeds([self.measured.whole(stack), self.measured.whole(against)])
        gain = self.gain(stack, against)
        half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(max(0.0, gain.variance))
        weights = speeds.sums.contrast_weights(0, 1).tolist()
        weighted = sorted(
            zip(weights, self.measured.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
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
        if not all(self.measured.has_measured_setting(name, text) for text in (value, over) if text):
            return None
        return self._effect(f"{name}={value}", self.gain_of_setting(stack, name, value, over))

    def gain_of_setting(self, stack: Mapping[str, Version], name: str, value: str, over: str = "") -> PredictedGain:
        """Return the log speed-up of a stack by a value of a setting over another one, by default over its absence."""
        (gain,) = self.gains_of_settings(stack, [(stack[self.name], {name: value}, {name: over} if over else {})])
        return gain

    def gains_of_settings(
        self, stack: Mapping[str, Version], requests: Sequence[SettingRequest]
    ) -> list[PredictedGain]:
        """Return the log speed-ups of a stack by settings over others, each with another version of the framework.

        The optimum and the report ask for the same ones, so each is computed once.
        """
        keys, new = [], {}
        for version, one, other in requests:
            side = self.measured.whole({**stack, self.name: version})
            sides = replace(side, settings=dict(one)), replace(side, settings=dict(other))
            key = (tuple(sorted(side.companions.items())), program_of(sides[0]), program_of(sides[1]))
            keys.append(key)
            if key not in self._gains_of_settings:
                new[key] = sides
        if new:
            both = [side for sides in new.values() for side in sides]
            gains = self.speeds(both).gains(range(0, len(both), 2), range(1, len(both), 2))
            self._gains_of_settings.update(zip(new, gains, strict=True))
        return [self._gains_of_settings[key] for key in keys]

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
        plain = [c for c in self.measured.contrasts if not (c.is_control or c.side.settings or c.reference.settings)]
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
