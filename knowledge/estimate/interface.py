"""Interface of estimators: gains of candidates over the baseline, and predictions with their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from packaging.version import Version

if TYPE_CHECKING:
    from knowledge.estimate.setting_effect import SettingEffect
    from knowledge.estimate.setting_gains import SettingGains

RISK = 16.0
"""Risk aversion: weight of the variance against a gain. A gain must also be significant and at least one step of 1 %: a
log speed-up of 0.05 counts if its standard deviation is at most 0.025, one of 0.60 if it is at most 0.27. The value is
a judgement; `python -m benchmarks.held_out` prints the regret of the advice with it."""
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
"""Number of standard deviations on both sides that contain :data:`CONFIDENCE` of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGain:
    """A predicted log speed-up over the baseline.

    Attributes:
        mean: Mean, in natural-log units.
        variance: Variance.
    """

    mean: float
    variance: float

    @property
    def cautious(self) -> float:
        """Certainty equivalent: the mean minus a penalty for the variance."""
        return self.mean - RISK / 2 * self.variance

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The speed-up, between the lower and the upper end of its 95 % interval."""
        half = NORMAL_QUANTILE * math.sqrt(max(0.0, self.variance))
        return math.exp(self.mean - half), math.exp(self.mean), math.exp(self.mean + half)

    def is_significant(self, comparisons: int = 1) -> bool:
        """Whether its 95 % interval excludes zero, widened for the number of comparisons (Bonferroni)."""
        tail = (1 - CONFIDENCE) / 2 / max(1, comparisons)
        return abs(self.mean) > statistics.NormalDist().inv_cdf(1 - tail) * math.sqrt(max(0.0, self.variance))


NO_GAIN = PredictedGain(mean=0.0, variance=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionGain:
    """Gains of a framework's version together with another version of one companion.

    Attributes:
        joint: Gain of both changes over the baseline.
        own: Gain of the companion's change alone, with that version of the framework.
        framework: Gain of the framework's change alone, with that version of the companion.
    """

    joint: PredictedGain
    own: PredictedGain
    framework: PredictedGain


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionGains(Mapping[tuple[Version, str, Version | None], CompanionGain]):
    """Gains by version, companion and version of the companion; versions with the same representative share a gain.

    Attributes:
        own: Representative of each version of the framework.
        companions: By companion, the representative of each of its versions, and of its absence.
        cells: Gain by representative, companion and representative of the companion.
    """

    own: Mapping[Version, str]
    companions: Mapping[str, Mapping[Version | None, str]]
    cells: Mapping[tuple[str, str, str], CompanionGain]

    def __getitem__(self, key: tuple[Version, str, Version | None]) -> CompanionGain:
        """Return the gain of a version with a version of a companion."""
        version, companion, other = key
        return self.cells[self.own[version], companion, self.companions[companion][other]]

    def __iter__(self) -> Iterator[tuple[Version, str, Version | None]]:
        """Yield each version with each version of each companion."""
        for companion, others in self.companions.items():
            for version in self.own:
                for other in others:
                    yield version, companion, other

    def __len__(self) -> int:
        """Return the number of gains."""
        return len(self.own) * sum(map(len, self.companions.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkGains:
    """Gains over the baseline of a framework and its companions, scaled by the framework's share of the workload.

    Attributes:
        framework: The framework.
        alone: Gain by version, with every companion as in the baseline.
        with_companion: Gain by version, companion and version of the companion (none: absent). It contains the
            baseline's version of each companion, whose own gain is 0.
        comparisons: Number of measured versions of frameworks and companions other than the baseline's, to correct the
            significance for the selection of the best.
    """

    framework: str
    alone: Mapping[Version, PredictedGain]
    with_companion: Mapping[tuple[Version, str, Version | None], CompanionGain]
    comparisons: int = 1

    def groups(self) -> Iterator[tuple[tuple[Version, ...], str, tuple[Version | None, ...], CompanionGain]]:
        """Yield each gain with the versions of the framework and of the companion that share it."""
        table = self.with_companion
        if not isinstance(table, CompanionGains):
            yield from (((version,), companion, (other,), gain) for (version, companion, other), gain in table.items())
            return
        versions = _by_value(table.own)
        others = {companion: _by_value(texts) for companion, texts in table.companions.items()}
        for (own, companion, other), gain in table.cells.items():
            if own in versions:
                yield versions[own], companion, others[companion][other], gain

    def gain(self, stack: Mapping[str, Version]) -> PredictedGain:
        """Return the gain of a stack: means and variances of the companions' changes add up."""
        version = stack[self.framework]
        alone = self.alone[version]
        changes = [
            g.joint
            for (v, c, w), g in self.with_companion.items()
            if v == version and c != self.framework and stack.get(c) == w
        ]
        return PredictedGain(
            mean=alone.mean + sum(g.mean - alone.mean for g in changes),
            variance=alone.variance + sum(g.variance - alone.variance for g in changes),
        )


_T = TypeVar("_T")


def _by_value(texts: Mapping[_T, str]) -> dict[str, tuple[_T, ...]]:
    """Return the keys of each value, in their order."""
    keys: dict[str, list[_T]] = {}
    for key, text in texts.items():
        keys.setdefault(text, []).append(key)
    return {text: tuple(listed) for text, listed in keys.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerms:
    """Speed terms of the optimiser's objective: the gains of every measured framework of the baseline.

    Attributes:
        frameworks: Gains of each framework, ordered by name.
    """

    frameworks: tuple[FrameworkGains, ...] = field(default=())

    def score(self, stack: Mapping[str, Version]) -> float:
        """Return the cautious gain of a stack over the baseline."""
        return sum(f.gain(stack).cautious for f in self.frameworks if f.framework in stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured comparison that supports a prediction.

    Attributes:
        block: Name of the block of observations.
        indicator: Label of the indicator.
        version: Measured version.
        reference: Version of the reference.
        speedup: Reference seconds over seconds.
        low: Lower end of the speed-up's interval.
        high: Upper end.
        rounds: Number of paired rounds.
        hardware: Microarchitecture or GPU model of the machine.
        source: Who published it; empty if it was measured in rounds.
        year: Year of a published measurement, or 0.
    """

    block: str
    indicator: str
    version: str
    reference: str
    speedup: float
    low: float
    high: float
    rounds: int
    hardware: str
    source: str = ""
    year: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedChange:
    """Predicted effect of one package's change from the baseline.

    Attributes:
        package: The package.
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
        measured: Whether both versions were measured.
        evidence: Comparisons that support the prediction.
        left_out: Number of the user's comparisons that do not count, because there are too many.
    """

    package: str
    speedup: float
    low: float
    high: float
    measured: bool
    evidence: tuple[Evidence, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPrediction:
    """Predicted speed-up for one kind of workload, or one size of its programs.

    Attributes:
        workload: Name of the kind, or of the size.
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
    """

    workload: str
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted speed-up of a stack over the baseline.

    Attributes:
        speedup: Predicted speed-up; 1 if no measured package changed.
        low: Lower end of its interval.
        high: Upper end.
        score: Cautious log speed-up; the optimiser compares stacks by it.
        confidence: Probability, under the model, that the interval contains the true value.
        workload: Name of the workload; without a selected one, that of the kind for which the stack gains least.
        changes: Predicted changes by package.
        unmeasured: Frameworks of the stack that have not been measured on comparable hardware.
        newest_measured: Frameworks of the stack that are newer than every version that was compared on such a device,
            each with the newest one.
        not_compared: Frameworks whose versions in the two stacks were not compared on such a device.
        operations_only: Frameworks whose prediction comes from single operations only: no whole model was measured.
        kinds: Without a selected workload, the predictions for each kind; otherwise empty.
        sizes: Predictions for the sizes that programs of the workload have, by size; empty if the size is known.
        is_same: Whether the two stacks are the same.
        obstacle: Why one of the two stacks does not run on the target; empty if both do.
    """

    speedup: float
    low: float
    high: float
    score: float
    confidence: float
    workload: str
    changes: tuple[PredictedChange, ...]
    unmeasured: tuple[str, ...]
    newest_measured: tuple[tuple[str, str], ...] = ()
    not_compared: tuple[str, ...] = ()
    operations_only: tuple[str, ...] = ()
    kinds: tuple[KindPrediction, ...] = ()
    sizes: tuple[KindPrediction, ...] = ()
    is_same: bool = False
    obstacle: str = ""

    @property
    def is_known(self) -> bool:
        """Whether there is a speed-up to report: both stacks run, and they are the same or measured packages differ."""
        return not self.obstacle and (self.is_same or bool(self.changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Predicted effect of one change on one indicator, or of one setting on a workload.

    Attributes:
        subject: Label of the indicator, or the setting as ``name=value``.
        package: The framework that it runs on.
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
    """

    subject: str
    package: str
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTime:
    """Measured import time and memory of one version of a framework.

    Attributes:
        framework: Distribution that provides the framework.
        version: Its version.
        import_seconds: Median time of the import, in seconds, files in the page cache.
        memory_bytes: Median resident memory of the process after the import, with the interpreter; none if the system
            did not report it.
        runs: Number of runs, each in a fresh process.
        machine: Microarchitecture or accelerator model that it was measured on.
        indicator: The indicator with its version and parameters.
    """

    framework: str
    version: str
    import_seconds: float
    memory_bytes: float | None
    runs: int
    machine: str
    indicator: str


class Estimator(Protocol):
    """Predicts the speed of stacks from observations, on one machine and for one workload."""

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the gains of every candidate version of the given packages.

        Args:
            candidates: Candidate versions by package, newest first.
            baseline: Versions that speed is compared with.
        """

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was measured on comparable hardware; true for packages that are not frameworks."""

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        """Whether two versions of a package were compared on comparable hardware; false for unmeasured packages."""

    def setting_gains(
        self, candidates: Mapping[str, Sequence[Version]], stack: Mapping[str, Version]
    ) -> tuple[SettingGains, ...]:
        """Return the gains of the run-time settings of each framework of a stack, for its candidates.

        Args:
            candidates: Candidate versions by package.
            stack: A stack with the other packages, such as the baseline.
        """

    def compared_settings(self, stack: Mapping[str, Version]) -> tuple[SettingEffect, ...]:
        """Return what settings of the frameworks of a stack are worth, as far as measurements say it."""

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> float | None:
        """Return the share of the workload's time of some parts of it; none if no workload is selected.

        Args:
            name: The package that they run on.
            parts: Indicators with their parameters, as in the catalogue of workloads; ``dtype`` is the element type.
        """
