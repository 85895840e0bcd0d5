"""The estimator: gains for the optimiser and predictions for reports, also for stacks that were not measured.

The score is the certainty equivalent, mean - (risk / 2) x variance (Pratt, "Risk Aversion in the
Small and in the Large", Econometrica 32, 1964), of the gain over the baseline
(:mod:`knowledge.estimate.framework_model`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import NO_FAILURE
from knowledge.estimate.compared_settings import effect_of_change, gains_of_settings, setting_effects
from knowledge.estimate.evidence import Contrast, Machine, RunOutcome
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.interface import (
    CONFIDENCE,
    NORMAL_QUANTILE,
    CompanionGains,
    Effect,
    FrameworkGains,
    PredictedChange,
    PredictedGain,
    Prediction,
    ProfileCoverage,
    ScoreTerms,
)
from knowledge.estimate.measured_framework import MeasuredFramework, Measurements
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.estimate.setting_gains import SettingGains
from knowledge.estimate.stack_discrepancy import StackDiscrepancy
from knowledge.estimate.task_discrepancy import RELEASES, SETTINGS, TaskDiscrepancy
from knowledge.estimate.time_shares import published_shares, share_of_parts, time_shares
from knowledge.estimate.workloads import MODELS, OPERATIONS, OWN, PROFILE, TASKS, Workload

if TYPE_CHECKING:
    from knowledge.estimate.model_cache import ModelCache


class PosteriorEstimator:
    """The estimator for one machine and one workload; see :class:`knowledge.estimate.interface.Estimator`."""

    def __init__(
        self,
        models: ModelCache,
        *,
        hardware: HardwareProfile,
        workload: Workload,
        frameworks: Collection[str],
        benchmark: Sequence[Contrast] = (),
        measurements: Measurements | None = None,
    ) -> None:
        """Create the estimator.

        Args:
            models: Models of the frameworks.
            hardware: The machine.
            workload: The workload.
            frameworks: Distributions that provide frameworks.
            benchmark: Measured ratios of the project's own benchmark.
            measurements: Measurements to share with the estimators of other workloads on the machine.
        """
        self._measurements = measurements or Measurements(models, hardware)
        self._workload = workload
        self._frameworks = frozenset(frameworks)
        self._benchmark = benchmark
        self._modelled: dict[str, FrameworkModel | None] = {}
        self._published: dict[str, FrameworkModel] = {}
        self._refused: set[str] = set()
        self._coverages: dict[str, ProfileCoverage] = {}

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""
        if name not in self._frameworks:
            return {}
        measurements = self._measurements
        return find_failures(measurements.models.runs(name, measurements.device(name)), measurements.machine(name))

    def prepare(self, names: Iterable[str]) -> None:
        """Do what the predictions of some packages need, whatever the stacks are."""
        for name in self._measured(names):
            if (modelled := self.model(name)) is not None:
                modelled.speeds([modelled.anchor])

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the gains of every candidate; see :meth:`_shares` for several frameworks."""
        terms = []
        for name, share in self._shares(baseline).items():
            modelled = self.model(name)
            if modelled is not None and candidates.get(name):
                gains = modelled.gains(candidates, baseline, share=share)
                terms.append(_measured_gains(gains, modelled, baseline) if modelled.basis == TASKS else gains)
        # Any of these comparisons could change the stack by chance.
        comparisons = sum(gains.comparisons for gains in terms)
        return ScoreTerms(frameworks=tuple(replace(gains, comparisons=comparisons) for gains in terms))

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was compared on comparable hardware; true for packages that are not frameworks."""
        if name not in self._frameworks:
            return True
        modelled = self.model(name)
        return modelled is not None and version in modelled.versions

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        """Whether two versions of a package were compared on comparable hardware; false for unmeasured packages."""
        modelled = self.model(name) if name in self._frameworks else None
        return modelled is not None and {version, other} <= set(modelled.versions)

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> float | None:
        """Return the share of the workload's time of some parts of it, which run on a package."""
        measured = None
        if name in self._frameworks:
            if not self._counts(name):
                return 0.0
            measured = self._measurements.of(name)
        return share_of_parts(self._workload, parts, measured.process.amplitudes if measured else None)

    def covers(self, stack: Mapping[str, Version]) -> bool:
        """Whether any framework of a stack was compared at the workload."""
        return bool(self._measured(stack))

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up of a stack over the baseline; see :meth:`_shares` for several frameworks."""
        changes: list[PredictedChange] = []
        gains: list[PredictedGain] = []
        not_compared: list[str] = []
        for name, share in self._shares(baseline).items():
            modelled = self.model(name)
            if modelled is None or name not in stack or not modelled.differs(stack, baseline):
                continue
            # Published pairs are of few releases: a step to a release that nobody published is not measured.
            if modelled.basis != TASKS or modelled.measured.has_measured_step(stack, baseline):
                gain = modelled.gain(stack, baseline)
                changes.append(modelled.change(stack, baseline, gain))
                gains.append(PredictedGain(mean=share * gain.mean, variance=share**2 * gain.variance))
            else:
                not_compared.append(name)
        mean = sum(g.mean for g in gains)
        half = NORMAL_QUANTILE * math.sqrt(max(0.0, sum(g.variance for g in gains)))
        counted = {name for name in self._measured(stack) if name in baseline}
        unmeasured = sorted(n for n in self._frameworks & set(stack) - counted if self._counts(n))
        models = [(name, modelled) for name in sorted(counted) if (modelled := self.model(name))]
        return Prediction(
            speedup=math.exp(mean),
            low=math.exp(mean - half),
            high=math.exp(mean + half),
            score=sum(g.cautious for g in gains),
            confidence=CONFIDENCE,
            workload=self._workload.name_of(next((OWN for _, m in models if m.basis == OWN), "")),
            changes=tuple(changes),
            unmeasured=tuple(unmeasured),
            newest_measured=tuple(
                (name, str(newest)) for name, m in models if stack[name] > (newest := max(m.versions))
            ),
            not_compared=tuple(not_compared),
            refused=tuple(n for n in unmeasured if n in self._refused),
            operations_only=tuple(n for n, modelled in models if modelled.basis == OPERATIONS),
            coverage=tuple(self._coverages[name] for name, _ in models if name in self._coverages),
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
        self,
        stack: Mapping[str, Version],
        settings: Mapping[str, Mapping[str, str]],
        over: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Effect, ...]:
        """Predict what settings do to a stack, each against its default or another value, with the advice's numbers.

        Args:
            stack: The stack.
            settings: Settings by framework of the stack, empty values for their absence; the result has no effects of
                settings without measurements.
            over: Values that they are compared with, by framework; by default their absence.
        """
        over = over or {}
        names = [name for name in self._measured(stack) if settings.get(name)]
        compared = self._models_of_settings(names)
        effects = []
        for name in names:
            for setting, value in sorted(settings[name].items()):
                other, effect = over.get(name, {}).get(setting, ""), None
                if name in compared:
                    model, measured = compared[name]
                    change = (setting, value, other)
                    effect = effect_of_change(model, measured.settings, stack, change, workload=self._workload)
                if effect is None and (own := self.model(name)) is not None:
                    # What was measured at single operations only is not a part of the advice.
                    effect = own.setting_effect(stack, setting, value, other)
                effects.append(effect)
        return tuple(effect for effect in effects if effect is not None)

    def compared_settings(self, stack: Mapping[str, Version]) -> tuple[SettingEffect, ...]:
        """Return what settings of the frameworks of a stack are worth, as far as measurements say it."""
        effects: list[SettingEffect] = []
        for model, measured in self._models_of_settings(stack).values():
            effects += setting_effects(model, measured.settings, stack, workload=self._workload)
        return tuple(sorted(effects, key=lambda e: (e.package, -e.speedup, e.setting, e.over)))

    def setting_gains(
        self, candidates: Mapping[str, Sequence[Version]], stack: Mapping[str, Version]
    ) -> tuple[SettingGains, ...]:
        """Return the gains of the settings of each framework, for its candidates.

        Args:
            candidates: Candidate versions by package.
            stack: A stack with the other packages, such as the baseline.
        """
        models = self._models_of_settings(name for name in stack if candidates.get(name))
        gains = []
        for name, (model, measured) in models.items():
            if measured.settings:
                gains.append(
                    gains_of_settings(
                        model,
                        measured.settings,
                        measured.setting_pairs,
                        stack,
                        candidates[name],
                        workload=self._workload,
                        share=1 / len(models),
                    )
                )
        return tuple(gains)

    def _models_of_settings(self, names: Iterable[str]) -> dict[str, tuple[FrameworkModel, MeasuredFramework]]:
        """Return the model of each framework whose settings were compared, with the measurements of them.

        Settings of accelerators were published for whole models.
        """
        models: dict[str, tuple[FrameworkModel, MeasuredFramework]] = {}
        for name in self._measured(names):
            measured, model = self._measurements.of(name), self.model(name)
            if measured is None or model is None:
                continue
            if not measured.machine.is_processor and model.basis != OWN:
                model = self._model_of_published_settings(measured)
            if model.sizes:
                models[name] = model, measured
        return models

    def _model_of_published_settings(self, measured: MeasuredFramework) -> FrameworkModel:
        if measured.name not in self._published:
            shares = published_shares(self._workload, measured.contrasts).shares
            self._published[measured.name] = FrameworkModel(
                measured, shares, basis=TASKS, discrepancy=self._discrepancy(measured, TASKS)
            )
        return self._published[measured.name]

    def _measured(self, names: Iterable[str]) -> list[str]:
        """Return the packages whose versions were compared, sorted."""
        return sorted(name for name in self._frameworks & set(names) if self.model(name) is not None)

    def _shares(self, names: Iterable[str]) -> dict[str, float]:
        """Return the share of the workload's time that each measured framework of a stack counts for, by name.

        The frameworks share a workload equally. The project's own benchmark measures the whole program: if versions of
        a framework were compared with it, it counts alone.
        """
        measured = self._measured(names)
        own = [name for name in measured if (model := self.model(name)) is not None and model.basis == OWN]
        return dict.fromkeys(own, 1.0) or dict.fromkeys(measured, 1 / max(1, len(measured)))

    def _counts(self, name: str) -> bool:
        """Whether a framework can belong to the workload, by the backend of its measurements."""
        measured, backends = self._measurements.of(name), self._workload.backends
        return measured is None or not backends or measured.process.backend in backends

    def model(self, name: str) -> FrameworkModel | None:
        """Return the model of a framework; none if its versions were not compared at the workload, or not usefully."""
        if name not in self._modelled:
            measured = self._measurements.of(name, [c for c in self._benchmark if c.framework == name])
            self._modelled[name] = None
            if measured:
                amplitudes = measured.process.amplitudes
                times = time_shares(measured.contrasts, self._workload, amplitudes, measured.machine)
                if times.refused:
                    self._refused.add(name)
                if times.basis == PROFILE:
                    self._coverages[name] = ProfileCoverage(framework=name, exact=times.exact, related=times.related)
                if times.shares:
                    self._modelled[name] = FrameworkModel(
                        measured,
                        times.shares,
                        basis=times.basis,
                        discrepancy=self._discrepancy(measured, times.basis),
                        profiled=_profiled_version(self._workload, times.basis),
                    )
        return self._modelled[name]

    def _discrepancy(self, measured: MeasuredFramework, basis: str) -> StackDiscrepancy | TaskDiscrepancy:
        """Return how far the workload may be from what was measured."""
        kind = self._workload.discrepancy(basis)
        if basis == TASKS:
            is_other, deviations = kind == MODELS, measured.process.amplitudes.discrepancies
            return TaskDiscrepancy(
                releases=deviations.get(RELEASES, 0.0) if is_other else 0.0,
                settings=deviations.get(SETTINGS, 0.0) if is_other else 0.0,
            )
        return measured.discrepancy(kind, by_models=kind == MODELS)


def _measured_gains(gains: FrameworkGains, model: FrameworkModel, baseline: Mapping[str, Version]) -> FrameworkGains:
    """Return gains without those of steps that nobody published, which count like unmeasured packages: as nothing.

    Their uncertainty would be a cost of every version but the baseline's, and a stack without the framework would avoid
    it. Companions were not published.
    """
    nothing = PredictedGain(mean=0.0, variance=0.0)
    alone = {
        version: gain if model.measured.has_measured_step({model.name: version}, baseline) else nothing
        for version, gain in gains.alone.items()
    }
    table = CompanionGains(own={version: str(version) for version in alone}, companions={}, cells={})
    return replace(gains, alone=alone, with_companion=table)


def _profiled_version(workload: Workload, basis: str) -> Version | None:
    """Return the version at which the shares of a profile hold; none if it is unknown, or for other shares."""
    if basis != PROFILE:
        return None
    try:
        return Version(workload.profiled_version)
    except InvalidVersion:
        return None


def find_failures(runs: Iterable[RunOutcome], machine: Machine) -> dict[str, str]:
    """Return the versions that failed and never ran on machines of one kind; failed installations do not count."""
    ran: set[str] = set()
    failed: dict[str, str] = {}
    for run in runs:
        if run.machine.kind != machine.kind:
            continue
        if run.status == "ok":
            ran.add(run.version)
        elif run.status not in NO_FAILURE:
            # The cause may be NumPy's binary interface, which the rules describe.
            numpy = f" with numpy {run.numpy}" if run.numpy else ""
            failed[run.version] = f"{run.status} in block {run.block}{numpy}"
    return {version: reason for version, reason in failed.items() if version not in ran}
