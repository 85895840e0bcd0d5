"""What an estimator promises: gains of candidates over the baseline, and predictions that say how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from packaging.version import Version

RISK = 64.0
"""How much variance counts against a gain. With the rule that a gain must be significant and worth a step of 1 %, a log
speed-up of 0.05 counts where its standard deviation is at most 0.025, one of 0.20 where it is at most 0.077. By
`python -m benchmarks.estimator --only advice`, lesser ones follow the luck of few rounds; much greater ones follow no
measurement at all."""
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
"""Standard deviations on both sides that hold :data:`CONFIDENCE` of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGain:
    """A predicted log speed-up over the baseline.

    Attributes:
        mean: Its mean, natural-log units.
        variance: Its variance.
    """

    mean: float
    variance: float

    @property
    def cautious(self) -> float:
        """Certainty equivalent: what a gain is worth to somebody who dislikes its variance."""
        return self.mean - RISK / 2 * self.variance

    def is_significant(self, comparisons: int = 1) -> bool:
        """Whether its 95 % interval excludes zero, widened for the number of comparisons (Bonferroni)."""
        tail = (1 - CONFIDENCE) / 2 / max(1, comparisons)
        return abs(self.mean) > statistics.NormalDist().inv_cdf(1 - tail) * math.sqrt(max(0.0, self.variance))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionGain:
    """What a framework's version gains with one companion away from the baseline.

    Attributes:
        joint: PredictedGain of both over the baseline.
        own: PredictedGain of the companion's change alone, beside that version of the framework.
        framework: PredictedGain of the framework's change alone, beside that version of the companion.
    """

    joint: PredictedGain
    own: PredictedGain
    framework: PredictedGain


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkGains:
    """Gains over the baseline of a framework and its companions, each part as far as it counts in the workload.

    Attributes:
        framework: The framework.
        alone: By its version, with every companion as in the baseline.
        beside: By its version, companion and the companion's version (none: absent); what the baseline has is among
            them, with no gain of its own.
        comparisons: How many versions of frameworks and companions were measured beside the baseline's: the best of
            many looks better than it is.
    """

    framework: str
    alone: Mapping[Version, PredictedGain]
    beside: Mapping[tuple[Version, str, Version | None], CompanionGain]
    comparisons: int = 1

    def gain(self, stack: Mapping[str, Version]) -> PredictedGain:
        """Return the gain of a stack: means and variances of the companions' changes add up."""
        version = stack[self.framework]
        alone = self.alone[version]
        changes = [
            g.joint
            for (v, c, w), g in self.beside.items()
            if v == version and c != self.framework and stack.get(c) == w
        ]
        return PredictedGain(
            mean=alone.mean + sum(g.mean - alone.mean for g in changes),
            variance=alone.variance + sum(g.variance - alone.variance for g in changes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerms:
    """What the optimiser knows of speed: the gains of every measured framework of the baseline.

    Attributes:
        frameworks: By name of the framework.
    """

    frameworks: tuple[FrameworkGains, ...] = field(default=())

    def score(self, stack: Mapping[str, Version]) -> float:
        """Return the cautious gain of a stack over the baseline."""
        return sum(f.gain(stack).cautious for f in self.frameworks if f.framework in stack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One comparison that bears on a package.

    Attributes:
        block: The block of observations.
        indicator: Label of the indicator.
        version: Version that was measured.
        reference: Version it was measured against.
        speedup: Reference seconds over seconds.
        low: Lower end of the speed-up's interval.
        high: Upper end.
        rounds: Paired rounds.
        hardware: Microarchitecture or GPU model that it was measured on.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedChange:
    """Predicted effect of one package's change from the baseline.

    Attributes:
        package: The package.
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
        measured: Whether both versions were measured.
        evidence: What carries the prediction.
    """

    package: str
    speedup: float
    low: float
    high: float
    measured: bool
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted speed-up of a stack over the baseline.

    Attributes:
        speedup: Predicted speed-up; 1 where nothing changed that was measured.
        low: Lower end of its interval.
        high: Upper end.
        score: Cautious log speed-up, which is what the optimiser compares.
        confidence: Probability that the interval holds, under the model.
        workload: Name of the workload.
        changes: By package.
        unmeasured: Frameworks of the stack that no comparable observation bears on.
    """

    speedup: float
    low: float
    high: float
    score: float
    confidence: float
    workload: str
    changes: tuple[PredictedChange, ...]
    unmeasured: tuple[str, ...]


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


class Estimator(Protocol):
    """What the observations imply for stacks, on one machine and for one workload."""

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the gains of every candidate version of the given packages.

        Args:
            candidates: By package, newest first.
            baseline: What speed is compared with.
        """

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that were seen not to run on comparable hardware, each with its reason."""

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was measured on comparable hardware; true of packages that nobody measures."""
