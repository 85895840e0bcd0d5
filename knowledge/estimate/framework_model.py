"""One framework of which versions were compared: what its observations imply for a workload on a machine.

The log speed of a stack is a sum of effects: of the framework's version, of each companion's (NumPy, CUDA, cuDNN, ...),
of each pair of both (:mod:`knowledge.estimate.kernel`). A change of one companion changes its own effect and that of
its pair with the framework. Means add up, and so do variances, with the covariance between the framework's change and
each companion's; covariances between two companions are left out, so that a gain is a table of the framework's version
with each companion, for the optimiser and for the reports alike.
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
    """A predicted speed-up and what carries it.

    Attributes:
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
        confidence: Probability that the interval holds, under the model.
        measured: Whether both versions were measured.
        carried: Contrasts with their weights, weightiest first: the log speed-up is the sum of weight times mean.
    """

    speedup: float
    low: float
    high: float
    confidence: float
    measured: bool
    carried: tuple[tuple[float, Contrast], ...]


class _Grid(NamedTuple):
    """What a framework's candidates (rows) gain beside the versions of one companion (columns), the baseline's first.

    Attributes:
        means: Over the baseline's framework and companion; the framework's own part is left out.
        variances: Of those, with twice the covariance with the framework's own part.
        moved: Over the same version of the framework beside the baseline's companion.
        moved_variance: Of those.
        beside: Over the baseline's framework beside the same version of the companion; without its own part.
        beside_variance: Of those, with twice the covariance with the framework's own part.
    """

    means: Array
    variances: Array
    moved: Array
    moved_variance: Array
    beside: Array
    beside_variance: Array


class FrameworkModel:
    """One framework of which versions were compared, for a workload on a machine."""

    def __init__(
        self, name: str, process: GaussianProcess, shares: Mapping[tuple[str, str], float], machine: Machine
    ) -> None:
        self._name = name
        self._process = process
        self._shares = shares
        self._machine = machine

    @cached_property
    def versions(self) -> frozenset[Version]:
        """Versions that were compared."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        return frozenset(Version(side.version) for side in sides)

    @property
    def sizes(self) -> int:
        """How many sizes and types of indicators count."""
        return len(self._shares)

    @cached_property
    def usual_reference(self) -> Version:
        """The version that most others were compared with."""
        return Version(statistics.mode(c.reference.version for c in self._process.contrasts))

    @cached_property
    def _companions(self) -> tuple[str, ...]:
        """Packages beside which it was compared; which CUDA a candidate would bring is not known of it."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        return tuple(sorted({name for side in sides for name in side.companions if name in COMPANIONS}))

    def gains(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], *, share: float
    ) -> FrameworkGains:
        """Return the gains over a baseline of the framework's versions, and of its companions beside each of them.

        Args:
            candidates: By package.
            baseline: Versions that the gains are over; the framework's among them.
            share: Of the workload's time that runs through the framework.
        """
        import numpy as np

        own, anchor = list(candidates[self._name]), baseline[self._name]
        asked = [Term(side=_side(v), effects=_OWN) for v in [*own, anchor]]
        grids: dict[str, tuple[list[Version | None], int]] = {}
        for companion in self._companions:
            now = baseline.get(companion)
            versions = [now, *(v for v in [*candidates.get(companion, ()), None] if v != now)]
            grids[companion] = versions, len(asked)
            # The last row is the baseline's version of the framework, beside each version of the companion.
            asked += [_beside(v, companion, w) for v in [*own, anchor] for w in versions]
        found = self._process.posterior(asked, self._shares, self._machine)
        mine = found.difference_from(range(len(own)), len(own))
        mean, variance = np.array(mine.mean), np.array(mine.variance)
        changes: dict[str, _Grid] = {}
        for companion, (versions, start) in grids.items():
            shape = len(own), len(versions)
            rows = range(start, start + shape[0] * shape[1])
            last = rows.stop
            theirs = found.difference_from(rows, last)
            covariance = -np.einsum("ik,ijk->ij", mine.whitened, theirs.whitened.reshape(*shape, -1))
            # The first column is what the baseline has; of a move away from it the own variance counts, too.
            moves = [
                found.difference_from(rows[i * shape[1] : (i + 1) * shape[1]], rows[i * shape[1]])
                for i in range(shape[0])
            ]
            beside = [found.difference_from(rows[j :: shape[1]], last + j) for j in range(shape[1])]
            changes[companion] = _Grid(
                means=theirs.mean.reshape(shape),
                variances=theirs.variance.reshape(shape) + 2 * covariance,
                moved=np.array([m.mean for m in moves]),
                moved_variance=np.array([m.variance for m in moves]),
                beside=np.array([b.mean for b in beside]).T,
                beside_variance=np.array(
                    [b.variance - 2 * np.einsum("ik,ik->i", mine.whitened, b.whitened) for b in beside]
                ).T,
            )
            mean, variance = mean + changes[companion].means[:, 0], variance + changes[companion].variances[:, 0]
        factor = share**2 * self._process.amplitudes.widening**2

        def gain(value: float, doubt: float) -> PredictedGain:
            return PredictedGain(mean=float(share * value), variance=float(factor * doubt))

        return FrameworkGains(
            framework=self._name,
            alone={v: gain(mean[i], variance[i]) for i, v in enumerate(own)},
            beside={
                (v, companion, w): CompanionGain(
                    joint=gain(
                        mean[i] + grid.means[i, j] - grid.means[i, 0],
                        variance[i] + grid.variances[i, j] - grid.variances[i, 0],
                    ),
                    own=gain(grid.moved[i, j], grid.moved_variance[i, j]),
                    framework=gain(
                        mean[i] + grid.beside[i, j] - grid.means[i, 0],
                        variance[i] + grid.beside_variance[i, j] - grid.variances[i, 0],
                    ),
                )
                for companion, grid in changes.items()
                for i, v in enumerate(own)
                for j, w in enumerate(grids[companion][0])
            },
            comparisons=max(1, len(self.versions - {anchor}) + self._measured_companions(candidates, baseline)),
        )

    def _measured_companions(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> int:
        """Return how many versions of companions were measured and could be chosen instead of the baseline's."""
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
        """Whether anything that the model looks at differs between two stacks."""
        return self._whole(stack) != self._whole(baseline)

    def gain(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], shares: Labels | None = None
    ) -> PredictedGain:
        """Return the log speed-up of a stack over a baseline, for a workload or for the given indicators."""
        one, other = stack[self._name], baseline[self._name]
        asked = [Term(side=_side(one), effects=_OWN), Term(side=_side(other), effects=_OWN)]
        for companion in self._companions:
            asked.append(_beside(one, companion, stack.get(companion)))
            asked.append(_beside(other, companion, baseline.get(companion)))
        found = self._process.posterior(asked, shares or self._shares, self._machine)
        own, *changes = (found.difference_from([place], place + 1) for place in range(0, len(asked), 2))
        mean, variance = float(own.mean[0]), float(own.variance[0])
        for change in changes:
            mean += float(change.mean[0])
            # Effects are independent before anything is measured: what is known of both makes their covariance.
            variance += float(change.variance[0]) - 2 * float(own.whitened[0] @ change.whitened[0])
        return PredictedGain(mean=mean, variance=self._process.amplitudes.widening**2 * variance)

    def _whole(self, stack: Mapping[str, Version]) -> Side:
        companions = {name: str(stack[name]) for name in self._companions if name in stack}
        return Side(version=str(stack[self._name]), companions=companions, settings={})

    def estimate(self, stack: Mapping[str, Version], against: Mapping[str, Version], *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, and the contrasts that carry it, weightiest first."""
        asked = [Term(side=self._whole(stack)), Term(side=self._whole(against))]
        found = self._process.posterior(asked, self._shares, self._machine)
        gain = self.gain(stack, against)
        half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(max(0.0, gain.variance))
        weights = found.weights(0, 1).tolist()
        carried = sorted(
            zip(weights, self._process.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
        )
        return Estimate(
            speedup=math.exp(gain.mean),
            low=math.exp(gain.mean - half),
            high=math.exp(gain.mean + half),
            confidence=confidence,
            measured={str(stack[self._name]), str(against[self._name])} <= {str(v) for v in self.versions},
            carried=tuple((float(w), c) for w, c in carried if w),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> list[Effect]:
        """Return the predicted speed-up at each indicator, by label; nothing where no version differs."""
        if not self.differs(stack, baseline):
            return []
        return [self._effect(label[0], self.gain(stack, baseline, {label: 1.0})) for label in sorted(self._shares)]

    def setting_effect(self, stack: Mapping[str, Version], name: str, value: str) -> Effect | None:
        """Return what a setting does to the speed of a stack; none where it was never measured."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        if not any(side.settings.get(name) == value for side in sides):
            return None
        plain = self._whole(stack)
        asked = [Term(side=replace(plain, settings={name: value})), Term(side=plain)]
        found = self._process.posterior(asked, self._shares, self._machine).difference_from([0], 1)
        variance = self._process.amplitudes.widening**2 * float(found.variance[0])
        return self._effect(f"{name}={value}", PredictedGain(mean=float(found.mean[0]), variance=variance))

    def _effect(self, subject: str, gain: PredictedGain) -> Effect:
        speedup, low, high = _interval(gain)
        return Effect(subject=subject, package=self._name, speedup=speedup, low=low, high=high)

    def change(
        self, stack: Mapping[str, Version], baseline: Mapping[str, Version], gain: PredictedGain
    ) -> PredictedChange:
        """Return what is predicted for a change, with the comparisons that support it."""
        speedup, low, high = _interval(gain)
        asked = {str(stack[self._name]), str(baseline[self._name])}
        families = {family for _, family in self._shares}
        plain = [c for c in self._process.contrasts if not (c.is_control or c.side.settings or c.reference.settings)]
        contrasts = [c for c in plain if (c.label, c.family) in self._shares] or [
            c for c in plain if c.family in families
        ]
        head_to_head = [c for c in contrasts if {c.side.version, c.reference.version} == asked]
        bearing = head_to_head or [c for c in contrasts if {c.side.version, c.reference.version} & asked]
        return PredictedChange(
            package=self._name,
            speedup=speedup,
            low=low,
            high=high,
            measured=asked <= {str(v) for v in self.versions},
            evidence=tuple(evidence_line(c) for c in bearing or contrasts),
        )


def _interval(gain: PredictedGain) -> tuple[float, float, float]:
    """Return a speed-up with the ends of its interval."""
    half = NORMAL_QUANTILE * math.sqrt(max(0.0, gain.variance))
    return math.exp(gain.mean), math.exp(gain.mean - half), math.exp(gain.mean + half)


def _side(version: Version) -> Side:
    return Side(version=str(version), companions={}, settings={})


def _beside(version: Version, companion: str, other: Version | None) -> Term:
    """Return what a companion adds beside a version of the framework: nothing where it is absent."""
    companions = {} if other is None else {companion: str(other)}
    return Term(side=Side(version=str(version), companions=companions, settings={}), effects=_COMPANION)


def evidence_line(c: Contrast) -> Evidence:
    """Return a contrast as a line of evidence."""
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
