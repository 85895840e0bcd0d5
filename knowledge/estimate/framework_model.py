"""Model of one framework whose versions were compared: predictions for a workload on a machine.

The log speed of a stack is a sum of effects: of the framework's version, of each companion's (NumPy, CUDA, cuDNN, ...),
of each pair of both (:mod:`knowledge.estimate.kernel`). A change of one companion changes its own effect and that of
its pair with the framework. Means add up, and so do variances, with the covariance between the change of the framework
and that of each companion. Covariances between two companions are left out, so gains are tables of the framework's
version with each companion, which the optimiser and the reports share.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from knowledge.estimate.evidence import COMPANIONS, Contrast, Machine, Side
from knowledge.estimate.gaussian_process import GaussianProcess, Term
from knowledge.estimate.interface import (
    NORMAL_QUANTILE,
    CompanionGain,
    Effect,
    Evidence,
    FrameworkGains,
    PredictedChange,
    PredictedGain,
)

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

_OWN = frozenset({"framework", "release"})
_COMPANION = frozenset({"companion", "pair"})
Labels = Mapping[tuple[str, str], float]
"""Weight of each indicator, by label and family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted speed-up and the contrasts that support it.

    Attributes:
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end of its interval.
        confidence: Probability, under the model, that the interval contains the true value.
        measured: Whether both versions were measured.
        weighted_contrasts: Contrasts with their weights, largest contribution first: the log speed-up is the sum of
            weight times mean.
    """

    speedup: float
    low: float
    high: float
    confidence: float
    measured: bool
    weighted_contrasts: tuple[tuple[float, Contrast], ...]


class _Grid(NamedTuple):
    """Gains of the candidates of a framework (rows) with the versions of one companion (columns), the baseline's first.

    Attributes:
        means: Gains over the baseline's framework and companion, without the framework's own effect.
        variances: Variances of ``means``, with twice the covariance with the framework's own effect.
        companion_gains: Gains over the same version of the framework with the baseline's companion.
        companion_variances: Variances of ``companion_gains``.
        framework_gains: Gains over the baseline's framework with the same companion, without its own effect.
        framework_variances: Variances of ``framework_gains``, with twice the covariance with the framework's own
            effect.
    """

    means: Array
    variances: Array
    companion_gains: Array
    companion_variances: Array
    framework_gains: Array
    framework_variances: Array


class FrameworkModel:
    """Model of one framework, for a workload on a machine."""

    def __init__(
        self, name: str, process: GaussianProcess, shares: Mapping[tuple[str, str], float], machine: Machine
    ) -> None:
        self._name = name
        self._process = process
        self._shares = shares
        self._machine = machine

    @cached_property
    def versions(self) -> frozenset[Version]:
        """Versions of the framework that were compared."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        return frozenset(Version(side.version) for side in sides)

    @property
    def sizes(self) -> int:
        """Number of sizes and element types of indicators that count."""
        return len(self._shares)

    @cached_property
    def usual_reference(self) -> Version:
        """The version that was most often the reference."""
        return Version(statistics.mode(c.reference.version for c in self._process.contrasts))

    @cached_property
    def _companions(self) -> tuple[str, ...]:
        """Companions of the measured stacks, without CUDA libraries: which of those a candidate installs is unknown."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        return tuple(sorted({name for side in sides for name in side.companions if name in COMPANIONS}))

    def gains(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], *, share: float
    ) -> FrameworkGains:
        """Return gains over a baseline: of the framework's versions, and of its companions with each of them.

        Args:
            candidates: Candidate versions by package.
            baseline: Versions of the baseline, including the framework's.
            share: Share of the workload's time that is spent in the framework.
        """
        import numpy as np

        own, anchor = list(candidates[self._name]), baseline[self._name]
        terms = [Term(side=_side(v), effects=_OWN) for v in [*own, anchor]]
        grids: dict[str, tuple[list[Version | None], int]] = {}
        for companion in self._companions:
            base = baseline.get(companion)
            versions = [base, *(v for v in [*candidates.get(companion, ()), None] if v != base)]
            grids[companion] = versions, len(terms)
            # The last row is the baseline's version of the framework with each version of the companion.
            terms += [_companion_term(v, companion, w) for v in [*own, anchor] for w in versions]
        posterior = self._process.posterior(terms, self._shares, self._machine)
        own_gains = posterior.difference_from(range(len(own)), len(own))
        mean, variance = np.array(own_gains.mean), np.array(own_gains.variance)
        changes: dict[str, _Grid] = {}
        for companion, (versions, start) in grids.items():
            shape = len(own), len(versions)
            rows = range(start, start + shape[0] * shape[1])
            last = rows.stop
            joint = posterior.difference_from(rows, last)
            covariance = -np.einsum("ik,ijk->ij", own_gains.whitened, joint.whitened.reshape(*shape, -1))
            # The first column is the baseline's version; gains over it have a variance of their own.
            companion_moves = [
                posterior.difference_from(rows[i * shape[1] : (i + 1) * shape[1]], rows[i * shape[1]])
                for i in range(shape[0])
            ]
            framework_moves = [posterior.difference_from(rows[j :: shape[1]], last + j) for j in range(shape[1])]
            changes[companion] = _Grid(
                means=joint.mean.reshape(shape),
                variances=joint.variance.reshape(shape) + 2 * covariance,
                companion_gains=np.array([m.mean for m in companion_moves]),
                companion_variances=np.array([m.variance for m in companion_moves]),
                framework_gains=np.array([b.mean for b in framework_moves]).T,
                framework_variances=np.array(
                    [b.variance - 2 * np.einsum("ik,ik->i", own_gains.whitened, b.whitened) for b in framework_moves]
                ).T,
            )
            mean, variance = mean + changes[companion].means[:, 0], variance + changes[companion].variances[:, 0]
        factor = share**2 * self._process.amplitudes.widening**2

        def gain(value: float, variance: float) -> PredictedGain:
            return PredictedGain(mean=float(share * value), variance=float(factor * variance))

        return FrameworkGains(
            framework=self._name,
            alone={v: gain(mean[i], variance[i]) for i, v in enumerate(own)},
            with_companion={
                (v, companion, w): CompanionGain(
                    joint=gain(
                        mean[i] + grid.means[i, j] - grid.means[i, 0],
                        variance[i] + grid.variances[i, j] - grid.variances[i, 0],
                    ),
                    own=gain(grid.companion_gains[i, j], grid.companion_variances[i, j]),
                    framework=gain(
                        mean[i] + grid.framework_gains[i, j] - grid.means[i, 0],
                        variance[i] + grid.framework_variances[i, j] - grid.variances[i, 0],
                    ),
                )
                for companion, grid in changes.items()
                for i, v in enumerate(own)
                for j, w in enumerate(grids[companion][0])
            },
            comparisons=max(1, len(self.versions - {anchor}) + self._measured_companions(candidates, baseline)),
        )

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

    def differs(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> bool:
        """Whether two stacks differ in a version that the model uses."""
        return self._whole(stack) != self._whole(baseline)

    def gain(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], shares: Labels | None = None
    ) -> PredictedGain:
        """Return the log speed-up of a stack over a baseline, for a workload or for the given indicators."""
        one, other = stack[self._name], baseline[self._name]
        terms = [Term(side=_side(one), effects=_OWN), Term(side=_side(other), effects=_OWN)]
        for companion in self._companions:
            terms.append(_companion_term(one, companion, stack.get(companion)))
            terms.append(_companion_term(other, companion, baseline.get(companion)))
        posterior = self._process.posterior(terms, shares or self._shares, self._machine)
        own, *changes = (posterior.difference_from([place], place + 1) for place in range(0, len(terms), 2))
        mean, variance = float(own.mean[0]), float(own.variance[0])
        for change in changes:
            mean += float(change.mean[0])
            # Effects are independent a priori; their covariance comes from the measurements of both.
            variance += float(change.variance[0]) - 2 * float(own.whitened[0] @ change.whitened[0])
        return PredictedGain(mean=mean, variance=self._process.amplitudes.widening**2 * variance)

    def _whole(self, stack: Mapping[str, Version]) -> Side:
        companions = {name: str(stack[name]) for name in self._companions if name in stack}
        return Side(version=str(stack[self._name]), companions=companions, settings={})

    def estimate(self, stack: Mapping[str, Version], against: Mapping[str, Version], *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, with the contrasts that support it."""
        terms = [Term(side=self._whole(stack)), Term(side=self._whole(against))]
        posterior = self._process.posterior(terms, self._shares, self._machine)
        gain = self.gain(stack, against)
        half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(max(0.0, gain.variance))
        weights = posterior.weights(0, 1).tolist()
        weighted = sorted(
            zip(weights, self._process.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
        )
        return Estimate(
            speedup=math.exp(gain.mean),
            low=math.exp(gain.mean - half),
            high=math.exp(gain.mean + half),
            confidence=confidence,
            measured={str(stack[self._name]), str(against[self._name])} <= {str(v) for v in self.versions},
            weighted_contrasts=tuple((float(w), c) for w, c in weighted if w),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> list[Effect]:
        """Return the predicted speed-up at each indicator, by label; an empty list if no version differs."""
        if not self.differs(stack, baseline):
            return []
        return [self._effect(label[0], self.gain(stack, baseline, {label: 1.0})) for label in sorted(self._shares)]

    def setting_effect(self, stack: Mapping[str, Version], name: str, value: str) -> Effect | None:
        """Return the predicted effect of a setting on the speed of a stack; none if the setting was not measured."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        if not any(side.settings.get(name) == value for side in sides):
            return None
        plain = self._whole(stack)
        terms = [Term(side=replace(plain, settings={name: value})), Term(side=plain)]
        gains = self._process.posterior(terms, self._shares, self._machine).difference_from([0], 1)
        variance = self._process.amplitudes.widening**2 * float(gains.variance[0])
        return self._effect(f"{name}={value}", PredictedGain(mean=float(gains.mean[0]), variance=variance))

    def _effect(self, subject: str, gain: PredictedGain) -> Effect:
        speedup, low, high = _interval(gain)
        return Effect(subject=subject, package=self._name, speedup=speedup, low=low, high=high)

    def change(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], gain: PredictedGain
    ) -> PredictedChange:
        """Return the prediction for a change, with the comparisons that support it."""
        speedup, low, high = _interval(gain)
        versions = {str(stack[self._name]), str(baseline[self._name])}
        families = {family for _, family in self._shares}
        plain = [c for c in self._process.contrasts if not (c.is_control or c.side.settings or c.reference.settings)]
        contrasts = [c for c in plain if (c.label, c.family) in self._shares] or [
            c for c in plain if c.family in families
        ]
        direct = [c for c in contrasts if {c.side.version, c.reference.version} == versions]
        related = direct or [c for c in contrasts if {c.side.version, c.reference.version} & versions]
        return PredictedChange(
            package=self._name,
            speedup=speedup,
            low=low,
            high=high,
            measured=versions <= {str(v) for v in self.versions},
            evidence=tuple(evidence_line(c) for c in related or contrasts),
        )


def _interval(gain: PredictedGain) -> tuple[float, float, float]:
    """Return a speed-up with the ends of its interval."""
    half = NORMAL_QUANTILE * math.sqrt(max(0.0, gain.variance))
    return math.exp(gain.mean), math.exp(gain.mean - half), math.exp(gain.mean + half)


def _side(version: Version) -> Side:
    return Side(version=str(version), companions={}, settings={})


def _companion_term(version: Version, companion: str, other: Version | None) -> Term:
    """Return the effects of a companion with a version of the framework; an absent companion has none."""
    companions = {} if other is None else {companion: str(other)}
    return Term(side=Side(version=str(version), companions=companions, settings={}), effects=_COMPANION)


def evidence_line(c: Contrast) -> Evidence:
    """Return a contrast as evidence for a report."""
    return Evidence(
        block=c.block,
        indicator=c.label,
        version=c.side.version,
        reference=c.reference.version,
        speedup=math.exp(c.mean),
        low=math.exp(c.low),
        high=math.exp(c.high),
        rounds=c.rounds,
        hardware=c.machine.name,
    )
