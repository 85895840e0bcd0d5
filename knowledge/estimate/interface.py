"""What an estimator promises: a score that is a sum over components, and predictions that say how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from packaging.version import Version

PackageChoice = tuple[str, Version]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerms:
    """A cautious log speed-up over the baseline as a sum of unary and pairwise terms.

    Attributes:
        unary: Term of each package version, in natural-log units; the baseline's own version scores zero, and so does
            a choice without a term.
        pairs: Term of each pair of package versions.
    """

    unary: Mapping[PackageChoice, float] = field(default_factory=dict)
    pairs: Mapping[tuple[PackageChoice, PackageChoice], float] = field(default_factory=dict)


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
class Change:
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
        confidence: Probability that the interval holds, under the model.
        workload: Name of the workload.
        changes: By package.
        unmeasured: Frameworks of the stack that no comparable observation bears on.
    """

    speedup: float
    low: float
    high: float
    confidence: float
    workload: str
    changes: tuple[Change, ...]
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
        """Return the score of every candidate version of the given packages.

        Args:
            candidates: By package, newest first.
            baseline: What speed is compared with; a package that it lacks is compared with its newest candidate.
        """

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline."""

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that were seen not to run on comparable hardware, each with its reason."""

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was measured on comparable hardware; true of packages that nobody measures."""
