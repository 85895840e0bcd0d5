"""Predictions without a selected workload: for every general kind, and cautious for all of them.

Nobody said what the program does, so a version counts as faster only by the gain that it has for the kind of workload
that gains least, and as slower by the loss of the kind that loses most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from packaging.version import Version

from knowledge.domain.hardware import HardwareProfile
from knowledge.estimate.interface import (
    CompanionGain,
    CompanionGains,
    Effect,
    FrameworkGains,
    KindPrediction,
    PredictedGain,
    Prediction,
    ScoreTerms,
)
from knowledge.estimate.measured_framework import Measurements
from knowledge.estimate.posterior import PosteriorEstimator
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.estimate.setting_gains import SettingGains, least_gains
from knowledge.estimate.workloads import Workload, workload_catalogue, workload_of_benchmark

if TYPE_CHECKING:
    from knowledge.estimate.framework_model import FrameworkModel
    from knowledge.estimate.model_cache import ModelCache

_T = TypeVar("_T")


class KindsEstimator:
    """The estimator for one machine without a workload; see :class:`knowledge.estimate.interface.Estimator`."""

    def __init__(self, models: ModelCache, *, hardware: HardwareProfile, frameworks: Collection[str]) -> None:
        self._frameworks = frozenset(frameworks)
        measurements = Measurements(models, hardware)
        self._by_kind = {
            workload.name: PosteriorEstimator(
                models, hardware=hardware, workload=workload, frameworks=frameworks, measurements=measurements
            )
            for workload in workload_catalogue().values()
            if workload.is_kind
        }

    @cached_property
    def _first(self) -> PosteriorEstimator:
        return next(iter(self._by_kind.values()))

    def failures(self, name: str) -> Mapping[str, str]:
        """Return the versions of a package that failed to run on comparable hardware, each with the reason."""
        return self._first.failures(name)

    def prepare(self, names: Collection[str]) -> None:
        """Do what the predictions of some packages need, whatever the stacks are."""
        for estimator in self._by_kind.values():
            estimator.prepare(names)

    def terms(self, candidates: Mapping[str, Sequence[Version]], baseline: Mapping[str, Version]) -> ScoreTerms:
        """Return the gains of every candidate, each for the kind of workload for which it gains least."""
        by_framework: dict[str, list[FrameworkGains]] = {}
        for estimator in self._by_kind.values():
            for gains in estimator.terms(candidates, baseline).frameworks:
                by_framework.setdefault(gains.framework, []).append(gains)
        return ScoreTerms(frameworks=tuple(_least(listed) for _, listed in sorted(by_framework.items())))

    def is_measured(self, name: str, version: Version) -> bool:
        """Whether a version was compared for any kind; true for packages that are not frameworks."""
        return any(estimator.is_measured(name, version) for estimator in self._by_kind.values())

    def has_compared(self, name: str, version: Version, other: Version) -> bool:
        """Whether two versions of a package were compared for any kind; false for unmeasured packages."""
        return any(estimator.has_compared(name, version, other) for estimator in self._by_kind.values())

    def time_share(self, name: str, parts: Sequence[Mapping[str, str]]) -> None:
        """Return none: no workload is selected."""

    def predict(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> Prediction:
        """Predict the speed-up for the kind for which the stack gains least, with the predictions of all kinds."""
        predictions = {name: e.predict(stack, baseline) for name, e in self._by_kind.items() if e.covers(stack)}
        if not predictions:
            return replace(self._first.predict(stack, baseline), workload="")
        least = min(predictions.values(), key=lambda p: p.score)
        return replace(
            least,
            unmeasured=tuple(sorted(set.intersection(*(set(p.unmeasured) for p in predictions.values())))),
            kinds=tuple(
                KindPrediction(workload=name, speedup=p.speedup, low=p.low, high=p.high)
                for name, p in predictions.items()
            ),
        )

    def effects(self, stack: Mapping[str, Version], baseline: Mapping[str, Version]) -> tuple[Effect, ...]:
        """Predict the speed-up of a stack over the baseline at each indicator of any kind."""
        return _distinct(e for estimator in self._by_kind.values() for e in estimator.effects(stack, baseline))

    def setting_effects(
        self,
        stack: Mapping[str, Version],
        settings: Mapping[str, Mapping[str, str]],
        over: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Effect, ...]:
        """Predict what settings do to the speed of a stack, each for the kind that loses most significantly, if any."""
        every = [e for estimator in self._by_kind.values() for e in estimator.setting_effects(stack, settings, over)]
        return _distinct(sorted(every, key=lambda e: (e.high >= 1, e.speedup)))

    def compared_settings(self, stack: Mapping[str, Version]) -> tuple[SettingEffect, ...]:
        """Return what settings are worth for each kind of workload."""
        every = [e for estimator in self._by_kind.values() for e in estimator.compared_settings(stack)]
        return tuple(sorted(every, key=lambda e: (e.package, e.setting, e.over, -e.speedup)))

    def setting_gains(
        self, candidates: Mapping[str, Sequence[Version]], stack: Mapping[str, Version]
    ) -> tuple[SettingGains, ...]:
        """Return the gains of the settings of each framework, each for the kind for which it gains least."""
        by_framework: dict[str, list[SettingGains]] = {}
        for estimator in self._by_kind.values():
            for gains in estimator.setting_gains(candidates, stack):
                by_framework.setdefault(gains.framework, []).append(gains)
        return tuple(least_gains(listed) for _, listed in sorted(by_framework.items()))

    def model(self, name: str) -> FrameworkModel | None:
        """Return the model of a framework for the first kind that has one."""
        return next((m for estimator in self._by_kind.values() if (m := estimator.model(name)) is not None), None)


def make_estimator(
    models: ModelCache,
    *,
    hardware: HardwareProfile,
    workload: Workload | None,
    frameworks: Collection[str],
    benchmark: str = "",
) -> PosteriorEstimator | KindsEstimator:
    """Return the estimator for a workload, or for all kinds of workloads.

    Args:
        models: Models of the frameworks.
        hardware: The machine.
        workload: The workload, if one is selected.
        frameworks: Distributions that provide frameworks.
        benchmark: Identity of the project's own benchmark, whose ratios come before every other measurement.
    """
    own = models.benchmark(benchmark) if benchmark else ()
    if own:
        workload = workload_of_benchmark(workload)
    if workload is None:
        return KindsEstimator(models, hardware=hardware, frameworks=frameworks)
    # The benchmark may have compared versions of a package that is no framework.
    packages = {*frameworks, *(c.framework for c in own)}
    return PosteriorEstimator(models, hardware=hardware, workload=workload, frameworks=packages, benchmark=own)


def _least(every: Sequence[FrameworkGains]) -> FrameworkGains:
    """Return the gains of one framework that are least for any kind, cell by cell."""

    def least(cells: Iterable[_T], gain: Callable[[_T], PredictedGain]) -> _T:
        return min(cells, key=lambda cell: gain(cell).cautious)

    first = every[0]
    # The kinds of one framework have the same measurements, so the same representatives.
    tables = [cast(CompanionGains, gains.with_companion) for gains in every]
    table = tables[0]
    return FrameworkGains(
        framework=first.framework,
        alone={v: least((g.alone[v] for g in every), lambda gain: gain) for v in first.alone},
        with_companion=CompanionGains(
            own=table.own,
            companions=table.companions,
            cells={key: least((other.cells[key] for other in tables), _joint) for key in table.cells},
        ),
        # Any of these comparisons, for any kind, could change the stack by chance.
        comparisons=sum(gains.comparisons for gains in every),
    )


def _joint(cell: CompanionGain) -> PredictedGain:
    return cell.joint


def _distinct(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return the first effect of each package and subject."""
    by_subject: dict[tuple[str, str], Effect] = {}
    for effect in effects:
        by_subject.setdefault((effect.package, effect.subject), effect)
    return tuple(by_subject.values())
