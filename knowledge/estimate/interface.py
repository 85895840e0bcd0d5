"""Interface of estimators: predictions with their uncertainty, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.estimate.gains import FrameworkGains, SettingGains
from knowledge.estimate.setting_effect import SettingEffect

if TYPE_CHECKING:
    from knowledge.evidence.contrasts import Contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(WithRatio):
    """One measured comparison that supports a prediction.

    Attributes:
        block: Name of the block of observations.
        indicator: Label of the indicator.
        version: Measured version.
        reference: Version of the reference.
        ratio: Reference seconds over seconds.
        rounds: Number of paired rounds.
        hardware: Microarchitecture or GPU model of the machine.
        source: Who published it; empty if it was measured in rounds.
        year: Year of a published measurement, or 0.
    """

    block: str
    indicator: str
    version: str
    reference: str
    ratio: Ratio
    rounds: int
    hardware: str
    source: str = ""
    year: int = 0


def evidence_line(c: Contrast) -> Evidence:
    """Return a contrast as evidence for a report."""
    return Evidence(
        block=c.block,
        indicator=c.label,
        version=c.side.version,
        reference=c.reference.version,
        ratio=c.ratio,
        rounds=c.rounds,
        hardware=c.machine.name,
        source=c.source,
        year=c.year,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(WithRatio):
    """A predicted speed-up and the contrasts that support it.

    Attributes:
        ratio: Predicted speed-up.
        confidence: Probability, under the model, that the interval contains the true value.
        measured: Whether both versions were measured.
        weighted_contrasts: Contrasts with their weights, largest contribution first: to first
            order, the log speed-up is the sum of weight times mean.
    """

    ratio: Ratio
    confidence: float
    measured: bool
    weighted_contrasts: tuple[tuple[float, Contrast], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedChange(WithRatio):
    """Predicted effect of one package's change from the baseline.

    Attributes:
        package: The package.
        ratio: Predicted speed-up.
        measured: Whether both versions were measured.
        evidence: Comparisons that support the prediction.
        left_out: Number of the user's comparisons that do not count, because there are too many.
    """

    package: str
    ratio: Ratio
    measured: bool
    evidence: tuple[Evidence, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPrediction(WithRatio):
    """Predicted speed-up for one kind of workload, or one size of its programs.

    Attributes:
        workload: Name of the kind, or of the size.
        ratio: Predicted speed-up.
    """

    workload: str
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(WithRatio):
    """Predicted speed-up of a stack over the baseline.

    Attributes:
        ratio: Predicted speed-up; 1 if no measured package changed.
        score: Cautious log speed-up; the optimiser compares stacks by it.
        confidence: Probability, under the model, that the interval contains the true value.
        workload: Name of the workload; without a selected one, the kind for which the stack gains least.
        changes: Predicted changes by package.
        unmeasured: Frameworks of the stack without a usable measurement on comparable hardware.
        newest_measured: Frameworks of the stack that are newer than every version that was compared on such a device,
            each with the newest one.
        not_compared: Frameworks whose versions in the two stacks were not compared on such a device.
        operations_only: Frameworks whose prediction comes from single operations only: no whole model was measured.
        kinds: Without a selected workload, the predictions for each kind; otherwise empty.
        sizes: Predictions for the sizes that programs of the workload have, by size; empty if the size is known.
        is_same: Whether the two stacks are the same.
        obstacle: Why one of the two stacks does not run on the target; empty if both do.
    """

    ratio: Ratio
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
class Effect(WithRatio):
    """Predicted effect of one change on one indicator, or of one setting on a workload.

    Attributes:
        subject: Label of the indicator, or the setting as ``name=value``.
        package: The framework that it runs on.
        ratio: Predicted speed-up.
    """

    subject: str
    package: str
    ratio: Ratio


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

    def terms(
        self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]
    ) -> tuple[FrameworkGains, ...]:
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
        """Return the share of the workload's time of some parts of it; ``None`` if no workload is selected.

        Args:
            name: The package that they run on.
            parts: Indicators with their parameters, as in the catalogue of workloads; ``dtype`` is the element type.
        """
