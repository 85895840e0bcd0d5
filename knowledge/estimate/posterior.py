"""What the observations imply for stacks that nobody measured: scores for the optimiser, predictions for people.

The log speed of a stack is a sum of effects: of the framework's version, of each companion's (NumPy, CUDA, cuDNN, ...),
of each pair of both (:mod:`knowledge.estimate.kernel`). So its posterior mean over the baseline is a sum of unary and
pairwise terms, and so is its variance, but for covariances among three packages and more. The score is the certainty
equivalent of a cautious choice, mean - (risk / 2) x variance (Pratt, "Risk Aversion in the Small and in the Large",
Econometrica 32, 1964), which decomposes the same way.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import NO_FAILURE
from knowledge.estimate.evidence import COMPANIONS, Contrast, Machine, Run, Side, machine_of
from knowledge.estimate.interface import Change, Effect, Evidence, PackageChoice, Prediction, ScoreTerms
from knowledge.estimate.process import Gains, Posterior, Process, Term
from knowledge.estimate.workloads import Workload

if TYPE_CHECKING:
    from knowledge.estimate.fits import Fits

CONFIDENCE = 0.95
RISK = 64.0
"""How much variance counts against a gain: one of 5 % is worth something where it is known to 4 % (one standard
deviation), one of 20 % where it is known to 8 %. By `python benchmarks/estimator.py --only advice`, lesser ones follow
the luck of few rounds; much greater ones follow no measurement at all."""
_OWN = frozenset({"framework", "release"})
_PAIR = frozenset({"pair"})
_COMPANION = frozenset({"companion"})


class PosteriorEstimator:
    """The estimator for one machine and one workload; see :class:`knowledge.estimate.interface.Estimator`."""

    def __init__(
        self, fits: Fits, *, hardware: HardwareProfile, workload: Workload, frameworks: Collection[str]
    ) -> None:
        self._fits = fits
        self._hardware = hardware
        self._workload = workload
        self._frameworks = frozenset(frameworks)
        self._modelled: dict[str, FrameworkModel | None] = {}

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that were seen not to run on like hardware, each with its reason."""
        if name not in self._frameworks:
            return {}
        device = self._device(name)
        return find_failures(self._fits.runs(name, device), machine_of(self._hardware, device))

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the certainty equivalent of every candidate over the baseline, as unary and pairwise terms."""
        measured = self._measured(candidates)
        unary: dict[PackageChoice, float] = {}
        pairs: dict[tuple[PackageChoice, PackageChoice], float] = {}
        for name in measured:
            modelled = self.model(name)
            assert modelled is not None
            found = modelled.terms(candidates, baseline, share=1 / len(measured))
            for choice, value in found.unary.items():
                unary[choice] = unary.get(choice, 0.0) + value
            pairs |= found.pairs
        return ScoreTerms(unary=unary, pairs=pairs)

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a comparison bears on a version; true of what is no framework, since nobody measures that."""
        if name not in self._frameworks:
            return True
        modelled = self.model(name)
        return modelled is not None and version in modelled.versions

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline; the measured frameworks share the workload equally."""
        measured = [name for name in self._measured(stack) if name in baseline]
        share = 1 / max(1, len(measured))
        changes = []
        for name in measured:
            modelled = self.model(name)
            assert modelled is not None
            if stack[name] != baseline[name]:
                changes.append(modelled.change(stack, baseline))
        mean = share * sum(math.log(c.speedup) for c in changes)
        half = share * math.sqrt(sum(math.log(c.high / c.speedup) ** 2 for c in changes))
        return Prediction(
            speedup=math.exp(mean),
            low=math.exp(mean - half),
            high=math.exp(mean + half),
            confidence=CONFIDENCE,
            workload=self._workload.name,
            changes=tuple(changes),
            unmeasured=tuple(sorted(n for n in self._frameworks & set(stack) - set(measured) if self._counts(n))),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each indicator of the workload, by package and label."""
        return tuple(
            effect
            for name in self._measured(stack)
            if name in baseline and (modelled := self.model(name)) is not None
            for effect in modelled.effects(stack, baseline)
        )

    def setting_effects(
        self, stack: Mapping[str, Version], settings: Mapping[str, Mapping[str, str]]
    ) -> tuple[Effect, ...]:
        """Predict what settings do to the speed of a stack, each against its default.

        Args:
            stack: The stack.
            settings: By framework of the stack, the settings that are set for it; those that were never measured on
                it are left out of the answer.
        """
        return tuple(
            effect
            for name in self._measured(stack)
            if (modelled := self.model(name)) is not None
            for setting, value in sorted(settings.get(name, {}).items())
            if (effect := modelled.setting_effect(stack, setting, value)) is not None
        )

    def _measured(self, names: Iterable[str]) -> list[str]:
        """Return of which packages versions were compared, sorted."""
        return sorted(name for name in self._frameworks & set(names) if self.model(name) is not None)

    def _counts(self, name: str) -> bool:
        """Whether a framework has a part in the workload, as far as measurements tell what runs through it."""
        process = self._fits.process(name, self._device(name))
        return process is None or not self._workload.backends or process.backend in self._workload.backends

    def _device(self, framework: str) -> str:
        return "cuda" if self._hardware.gpu and framework != "numpy" else "cpu"

    def model(self, name: str) -> FrameworkModel | None:
        """Return the model of a framework, or none where nothing of the workload compared its versions."""
        if name not in self._modelled:
            device = self._device(name)
            process = self._fits.process(name, device)
            shares = label_shares(process.contrasts, self._workload) if process is not None else {}
            self._modelled[name] = (
                FrameworkModel(name, process, shares, machine_of(self._hardware, device))
                if process is not None and shares
                else None
            )
        return self._modelled[name]


def find_failures(runs: Iterable[Run], machine: Machine) -> dict[str, str]:
    """Return the versions that failed on machines of a kind and never ran there; failing to install proves nothing."""
    ran: set[str] = set()
    failed: dict[str, str] = {}
    for run in runs:
        if run.machine.kind != machine.kind:
            continue
        if run.status == "ok":
            ran.add(run.version)
        elif run.status not in NO_FAILURE:
            # An ABI break is of the two, and the rules say which.
            beside = f" beside numpy {run.numpy}" if run.numpy else ""
            failed[run.version] = f"{run.status} in block {run.block}{beside}"
    return {version: reason for version, reason in failed.items() if version not in ran}


def label_shares(contrasts: Sequence[Contrast], workload: Workload) -> dict[tuple[str, str], float]:
    """Return the weight of each measured indicator, by label and family; they sum to 1, or there are none.

    A family's weight is shared by its sizes and element types. Only indicators at which versions were compared count.
    """
    labels = sorted(
        {
            (c.label, c.family)
            for c in contrasts
            if c.side.version != c.reference.version and (not workload.backends or c.backend in workload.backends)
        }
    )
    weights = {label: workload.weight_of(*label) for label in labels}
    families = {family for (_, family), weight in weights.items() if weight > 0}
    total = sum(workload.weights[family] for family in families)
    inside = {family: sum(w for (_, f), w in weights.items() if f == family) for family in families}
    return {
        label: workload.weights[label[1]] / total * weight / inside[label[1]]
        for label, weight in weights.items()
        if weight > 0
    }


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


class FrameworkModel:
    """One framework of which versions were compared, for a workload on a machine."""

    def __init__(self, name: str, process: Process, shares: Mapping[tuple[str, str], float], machine: Machine) -> None:
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

    def terms(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version], *, share: float
    ) -> ScoreTerms:
        """Return the terms of the framework and its companions; exact for a framework with one companion.

        Covariances among the framework and two companions are left out.
        """
        import numpy as np

        name = self._name
        own = list(candidates[name])
        anchor = baseline.get(name, own[0])
        caution = RISK / 2 * share * self._process.amplitudes.widening**2
        asked = [Term(side=_side(v), effects=_OWN) for v in [*own, anchor]]
        beside = {c: list(candidates[c]) for c in self._companions if candidates.get(c)}
        first: dict[str, int] = {}
        for companion, versions in beside.items():
            other = baseline.get(companion, versions[0])
            first[companion] = len(asked)
            asked += [Term(side=_side(anchor, companion, c), effects=_COMPANION) for c in [*versions, other]]
            pairs_of = [*((v, c) for v in own for c in versions), (anchor, other)]
            asked += [Term(side=_side(v, companion, c), effects=_PAIR) for v, c in pairs_of]
        found = self._process.posterior(asked, self._shares, self._machine)
        mine = found.less(range(len(own)), len(own))
        unary = self._unary(name, own, mine, share, caution)
        pairs: dict[tuple[PackageChoice, PackageChoice], float] = {}
        for companion, versions in beside.items():
            start = first[companion]
            theirs = found.less(range(start, start + len(versions)), start + len(versions))
            unary |= self._unary(companion, versions, theirs, share, caution)
            start += len(versions) + 1
            size = len(own) * len(versions)
            both = found.less(range(start, start + size), start + size)
            grid = both.told.reshape(len(own), len(versions), -1)
            # Effects are independent before anything is measured: what is told of both makes their covariance.
            covariance = -(
                mine.told @ theirs.told.T
                + np.einsum("in,ijn->ij", mine.told, grid)
                + np.einsum("jn,ijn->ij", theirs.told, grid)
            )
            value = (both.mean - caution * both.variance).reshape(covariance.shape) - 2 * caution * covariance
            for left, row in zip(own, (share * value).tolist(), strict=True):
                for right, term in zip(versions, row, strict=True):
                    pairs[(name, left), (companion, right)] = term
        return ScoreTerms(unary=unary, pairs=pairs)

    @staticmethod
    def _unary(
        name: str, versions: Sequence[Version], gains: Gains, share: float, caution: float
    ) -> dict[PackageChoice, float]:
        values = (share * (gains.mean - caution * gains.variance)).tolist()
        return {(name, version): value for version, value in zip(versions, values, strict=True)}

    def gain(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> tuple[float, float]:
        """Return mean and standard deviation of the log speed-up of a stack over a baseline."""
        return self._told(self._posterior(stack, baseline))

    def _posterior(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Posterior:
        asked = [Term(side=self._whole(stack)), Term(side=self._whole(baseline))]
        return self._process.posterior(asked, self._shares, self._machine)

    def _told(self, posterior: Posterior) -> tuple[float, float]:
        found = posterior.less([0], 1)
        return float(found.mean[0]), self._process.amplitudes.widening * math.sqrt(float(found.variance[0]))

    def _whole(self, stack: Mapping[str, Version]) -> Side:
        companions = {name: str(stack[name]) for name in self._companions if name in stack}
        return Side(version=str(stack[self._name]), companions=companions, settings={})

    def estimate(self, stack: Mapping[str, Version], against: Mapping[str, Version], *, confidence: float) -> Estimate:
        """Return the predicted speed-up of a stack over another, and the contrasts that carry it, weightiest first."""
        found = self._posterior(stack, against)
        gain, deviation = self._told(found)
        half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * deviation
        weights = found.weights(0, 1).tolist()
        carried = sorted(
            zip(weights, self._process.contrasts, strict=True), key=lambda c: (-abs(c[0] * c[1].mean), c[1].label)
        )
        return Estimate(
            speedup=math.exp(gain),
            low=math.exp(gain - half),
            high=math.exp(gain + half),
            confidence=confidence,
            measured={str(stack[self._name]), str(against[self._name])} <= {str(v) for v in self.versions},
            carried=tuple((float(w), c) for w, c in carried if w),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> list[Effect]:
        """Return the predicted speed-up at each indicator, by label; nothing where no version differs."""
        asked = [Term(side=self._whole(stack)), Term(side=self._whole(baseline))]
        if asked[0].side == asked[1].side:
            return []
        return [
            self._effect(label[0], self._process.posterior(asked, {label: 1.0}, self._machine))
            for label in sorted(self._shares)
        ]

    def setting_effect(self, stack: Mapping[str, Version], name: str, value: str) -> Effect | None:
        """Return what a setting does to the speed of a stack; none where it was never measured."""
        sides = [side for c in self._process.contrasts for side in (c.side, c.reference)]
        if not any(side.settings.get(name) == value for side in sides):
            return None
        plain = self._whole(stack)
        asked = [Term(side=replace(plain, settings={name: value})), Term(side=plain)]
        return self._effect(f"{name}={value}", self._process.posterior(asked, self._shares, self._machine))

    def _effect(self, subject: str, posterior: Posterior) -> Effect:
        gain, deviation = self._told(posterior)
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
        low, high = math.exp(gain - half), math.exp(gain + half)
        return Effect(subject=subject, package=self._name, speedup=math.exp(gain), low=low, high=high)

    def change(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Change:
        """Tell what is predicted for a change, and what bears on it."""
        gain, deviation = self.gain(stack, baseline)
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
        asked = {str(stack[self._name]), str(baseline[self._name])}
        contrasts = [
            c
            for c in self._process.contrasts
            if not (c.twin or c.side.settings or c.reference.settings) and (c.label, c.family) in self._shares
        ]
        head_to_head = [c for c in contrasts if {c.side.version, c.reference.version} == asked]
        bearing = head_to_head or [c for c in contrasts if {c.side.version, c.reference.version} & asked]
        return Change(
            package=self._name,
            speedup=math.exp(gain),
            low=math.exp(gain - half),
            high=math.exp(gain + half),
            measured=asked <= {str(v) for v in self.versions},
            evidence=tuple(evidence_line(c) for c in bearing or contrasts),
        )


def _side(version: Version, companion: str = "", other: Version | None = None) -> Side:
    return Side(version=str(version), companions={companion: str(other)} if companion else {}, settings={})


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
