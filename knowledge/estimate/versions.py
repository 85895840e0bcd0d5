"""The first model: each framework's versions as a Gaussian process, from paired comparisons.

For one indicator and one framework, f(v) is the log speed of version v. Neighbouring versions are alike:
f ~ N(0, K) with K(v, w) = s^2 exp(-d(v, w) / 2), where d counts minor releases. A block observes differences to its
reference, y = f(v) - f(r) + e. The errors e of one block share the reference's own error, so that its A/A comparison
(y = e) tells how much of every difference is the reference's bad luck; a surcharge is added where the hardware is only
similar. The posterior follows in closed form (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
eq. 2.23); s maximises the marginal likelihood (eq. 2.30) over a grid. So a version that was never measured is
uncertain, not zero, and small differences shrink towards none.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.compare import Comparison, compare_block
from knowledge.estimate.interface import Change, Evidence, Prediction, ScoreTerms
from knowledge.estimate.workloads import Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

CONFIDENCE = 0.95
CAUTION = 1.645
"""Standard deviations taken off a predicted gain: what is left is exceeded with 95 % probability."""
_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_LENGTH = 2.0
_SIMILAR_HARDWARE = 0.05
_OTHER_HARDWARE = 0.1
_LEAST_NOISE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contrast:
    """One observed difference of log speed between two versions, or between two slots of one version.

    Attributes:
        version: Version of the slot.
        reference: Version of the block's reference.
        mean: Mean log speed-up of the slot over the reference.
        noise: Standard deviation of the mean, by the rounds.
        surcharge: Standard deviation that other hardware adds.
        comparison: What was compared.
    """

    version: Version
    reference: Version
    mean: float
    noise: float
    surcharge: float
    comparison: Comparison


class VersionEstimator:
    """The estimator for one machine and one workload; see :class:`knowledge.estimate.interface.Estimator`."""

    def __init__(
        self,
        observations: Iterable[Observation],
        *,
        hardware: HardwareProfile,
        workload: Workload,
        frameworks: Collection[str],
    ) -> None:
        self._hardware = hardware
        self._workload = workload
        self._frameworks = frozenset(frameworks)
        self._relevant = [o for o in observations if self._bears(o)]
        self._failures = self._find_failures(self._relevant)

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that were seen not to run on like hardware, each with its reason."""
        return self._failures.get(name, {})

    def _find_failures(self, observations: Iterable[Observation]) -> dict[str, dict[str, str]]:
        """Find the versions that failed on like hardware and never ran there; a failed installation proves nothing."""
        ran: set[tuple[str, str | None]] = set()
        failed: dict[tuple[str, str | None], str] = {}
        for o in observations:
            key = (o.framework, o.stack.version_of(o.framework))
            if self._surcharge(o) or o.status in ("unsupported", "not-installed"):
                continue
            if o.status == "ok":
                ran.add(key)
            else:
                failed[key] = f"{o.status} in block {o.block}{_beside(o)}"
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for (framework, version), reason in failed.items():
            if version is not None and (framework, version) not in ran:
                found[framework][version] = reason
        return found

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the gain over the baseline that every candidate exceeds with 95 % probability.

        Uncertainty counts against moving away from the baseline: that nobody measured the newest version is no reason
        to leave it for one that somebody did, and a gain within the noise is none.
        """
        measured = self._measured(candidates)
        unary: dict[tuple[str, Version], float] = {}
        for name in measured:
            versions = list(candidates[name])
            anchor = baseline.get(name, versions[0])
            for version, (gain, deviation) in zip(versions, self._gains(name, versions, anchor), strict=True):
                unary[name, version] = (gain - CAUTION * deviation) / len(measured)
        return ScoreTerms(unary=unary)

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a comparison bears on a version; true of what is no framework, since nobody measures that."""
        if name not in self._frameworks:
            return True
        groups = self._contrasts.get(name, {}).values()
        return any(version in (c.version, c.reference) for group in groups for c in group)

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline; the measured frameworks share the workload equally."""
        measured = [name for name in self._measured(stack) if name in baseline]
        changes = tuple(self._change(n, stack[n], baseline[n]) for n in measured if stack[n] != baseline[n])
        share = 1 / max(1, len(measured))
        mean = share * sum(math.log(c.speedup) for c in changes)
        half = share * math.sqrt(sum(math.log(c.high / c.speedup) ** 2 for c in changes))
        return Prediction(
            speedup=math.exp(mean),
            low=math.exp(mean - half),
            high=math.exp(mean + half),
            confidence=CONFIDENCE,
            workload=self._workload.name,
            changes=changes,
            unmeasured=tuple(sorted(self._frameworks & set(stack) - set(self._measured(stack)))),
        )

    def _measured(self, names: Iterable[str]) -> list[str]:
        """Return which packages any comparison bears on, sorted."""
        # Without a framework among them there is nothing to compare, and no linear algebra to load.
        asked = self._frameworks & set(names)
        return sorted(name for name in asked if name in self._contrasts) if asked else []

    @cached_property
    def _contrasts(self) -> dict[str, dict[str, list[_Contrast]]]:
        return self._collect(compare_block(self._relevant))

    def _bears(self, o: Observation) -> bool:
        """Whether an observation is of the workload, and of the kind of device that the machine would use."""
        device = "cuda" if self._hardware.gpu and o.indicator.backend != "numpy" else "cpu"
        backends = self._workload.backends
        return (
            o.indicator.device == device
            # What a switch does says nothing about a version.
            and not o.settings
            and o.indicator.name in self._workload.weights
            and (not backends or o.indicator.backend in backends)
        )

    def _surcharge(self, o: Observation) -> float:
        """Standard deviation that log speed ratios gain by being taken on other hardware than the target."""
        if o.indicator.device == "cuda":
            theirs, ours = o.hardware.gpu, self._hardware.gpu
            if theirs is None or ours is None or theirs.capability is None or ours.capability is None:
                return _OTHER_HARDWARE
            if theirs.capability == ours.capability:
                return 0.0
            return _SIMILAR_HARDWARE if theirs.capability[0] == ours.capability[0] else _OTHER_HARDWARE
        if o.hardware.cpu.microarchitecture == self._hardware.cpu.microarchitecture:
            return 0.0
        return _SIMILAR_HARDWARE if o.hardware.cpu.vendor == self._hardware.cpu.vendor else _OTHER_HARDWARE

    def _collect(self, comparisons: Iterable[Comparison]) -> dict[str, dict[str, list[_Contrast]]]:
        """Turn comparisons into contrasts, by framework and indicator; a framework with one version has none."""
        found: dict[str, dict[str, list[_Contrast]]] = defaultdict(lambda: defaultdict(list))
        for c in comparisons:
            o = c.observation
            versions = o.stack.version_of(o.framework), c.reference.stack.version_of(o.framework)
            if o.framework == c.reference.framework and None not in versions:
                found[o.framework][c.indicator].append(
                    _Contrast(
                        version=Version(str(versions[0])),
                        reference=Version(str(versions[1])),
                        mean=c.mean,
                        noise=math.hypot(c.standard_error, _LEAST_NOISE),
                        surcharge=self._surcharge(o),
                        comparison=c,
                    )
                )
        return {
            name: {label: group for label, group in groups.items() if not all(c.comparison.twin for c in group)}
            for name, groups in found.items()
            if not all(c.comparison.twin for group in groups.values() for c in group)
        }

    def _gains(self, name: str, versions: Sequence[Version], anchor: Version) -> list[tuple[float, float]]:
        """Return mean and standard deviation of the log speed-up of versions over an anchor, for the workload.

        The errors of indicators count as fully dependent, which is the safe side: the standard deviation of the
        weighted sum is the weighted sum of standard deviations.
        """
        gains = [0.0] * len(versions)
        deviations = [0.0] * len(versions)
        groups = self._contrasts[name]
        for _, group in sorted(groups.items()):
            weight = self._weight(group, groups)
            mean, covariance = _condition(group, [*versions, anchor])
            for i in range(len(versions)):
                spread = float(covariance[i, i] + covariance[-1, -1] - 2 * covariance[i, -1])
                gains[i] += weight * float(mean[i] - mean[-1])
                deviations[i] += weight * math.sqrt(max(0.0, spread))
        return list(zip(gains, deviations, strict=True))

    def _weight(self, group: Sequence[_Contrast], groups: Mapping[str, Sequence[_Contrast]]) -> float:
        """Weight of one labelled indicator: its family's weight, shared with the family's other sizes and types."""
        families = [g[0].comparison.observation.indicator.name for g in groups.values()]
        family = group[0].comparison.observation.indicator.name
        total = sum(self._workload.weights[f] for f in set(families))
        return self._workload.weights[family] / total / families.count(family)

    def _change(self, name: str, version: Version, baseline: Version) -> Change:
        gain, deviation = self._gains(name, [version], baseline)[0]
        half = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * deviation
        groups = sorted(self._contrasts[name].items())
        contrasts = [c for _, group in groups for c in group if not c.comparison.twin]
        known = {v for c in contrasts for v in (c.version, c.reference)}
        asked = {version, baseline}
        head_to_head = [c for c in contrasts if {c.version, c.reference} == asked]
        bearing = head_to_head or [c for c in contrasts if {c.version, c.reference} & asked]
        return Change(
            package=name,
            speedup=math.exp(gain),
            low=math.exp(gain - half),
            high=math.exp(gain + half),
            measured=asked <= known,
            evidence=tuple(_evidence(c) for c in bearing or contrasts),
        )


def _beside(o: Observation) -> str:
    """Name the NumPy that a version failed beside: an ABI break is of the two, and the rules say which."""
    numpy = o.stack.version_of("numpy")
    return f" beside numpy {numpy}" if numpy is not None and o.framework != "numpy" else ""


def _condition(contrasts: Sequence[_Contrast], versions: Sequence[Version]) -> tuple[Array, Array]:
    """Condition the process on contrasts; return mean (n,) and covariance (n, n) at ``versions``."""
    import numpy as np

    every = sorted({*versions, *(v for c in contrasts for v in (c.version, c.reference))})
    index = {version: i for i, version in enumerate(every)}
    design = np.zeros((len(contrasts), len(every)))
    for row, c in enumerate(contrasts):
        design[row, index[c.version]] += 1.0
        design[row, index[c.reference]] -= 1.0
    seen = np.array([c.mean for c in contrasts])
    noise = _noise(contrasts)
    shape = np.exp(-_distances(tuple(every)) / _LENGTH)

    def likelihood(scale: float) -> float:
        total = design @ (scale**2 * shape) @ design.T + noise
        sign, determinant = np.linalg.slogdet(total)
        return float(-0.5 * (seen @ np.linalg.solve(total, seen) + determinant)) if sign > 0 else -math.inf

    prior = max(_SCALES, key=likelihood) ** 2 * shape
    gain = np.linalg.solve(design @ prior @ design.T + noise, design @ prior).T
    mean, covariance = gain @ seen, prior - gain @ design @ prior
    chosen = [index[version] for version in versions]
    return mean[chosen], covariance[np.ix_(chosen, chosen)]


def _noise(contrasts: Sequence[_Contrast]) -> Array:
    """Covariance (m, m) of the contrasts' errors.

    Slots compared with one reference share its error, which is half of each contrast's variance where slots are alike.
    So an A/A contrast that shows the reference slow explains why every slot of the block looks fast.
    """
    import numpy as np

    blocks = [c.comparison.block for c in contrasts]
    shared = np.array([[1.0 if i == j else 0.5 * (b == d) for j, d in enumerate(blocks)] for i, b in enumerate(blocks)])
    scale = np.array([c.noise for c in contrasts])
    covariance: Array = shared * np.outer(scale, scale) + np.diag([c.surcharge**2 for c in contrasts])
    return covariance


@lru_cache(maxsize=64)
def _distances(versions: tuple[Version, ...]) -> Array:
    """Distances (n, n) of versions: 1 a minor release, 0.1 a patch release, 1 another build of the same release."""
    import numpy as np

    minors = {release: i for i, release in enumerate(sorted({(v.major, v.minor) for v in versions}))}
    place = np.array([minors[v.major, v.minor] + min(v.micro, 9) / 10 for v in versions])
    builds = np.array([[float(v.local != w.local) for w in versions] for v in versions])
    distances: Array = np.abs(place[:, None] - place[None, :]) + builds
    return distances


def _evidence(contrast: _Contrast) -> Evidence:
    c = contrast.comparison
    gpu = c.observation.hardware.gpu
    return Evidence(
        block=c.block,
        indicator=c.indicator,
        version=str(contrast.version),
        reference=str(contrast.reference),
        speedup=math.exp(c.mean),
        low=math.exp(c.low),
        high=math.exp(c.high),
        rounds=c.rounds,
        hardware=gpu.model
        if gpu and c.observation.indicator.device == "cuda"
        else c.observation.hardware.cpu.microarchitecture,
    )
