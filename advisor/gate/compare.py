"""Comparison of two locks: the changes, their predicted effect on speed, and the limits of the policy."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

from advisor.domain.words import speed_text, workload_text
from advisor.gate.findings import Cause, Finding
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.scope import Scope
from advisor.gate.setting_changes import SettingChange
from advisor.resolve.score.predictor import Predictor, performance_versions
from knowledge.estimate.interface import Effect, Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """A package whose version differs; the version is none where the package is absent."""

    package: str
    before: Version | None
    after: Version | None

    @property
    def kind(self) -> str:
        """`added`, `removed`, `upgraded` or `downgraded`."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "upgraded" if self.after > self.before else "downgraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockComparison:
    """A lock compared with its base.

    Attributes:
        base: Display name of the base.
        changes: Packages whose version differs: first those that were measured, then those that the project names.
        listed: Packages that reports list one by one; they may put the others into groups.
        prediction: Predicted speed-up over the base; none if one of the stacks cannot run.
        effects: Predicted speed-up of each indicator, significant ones first, then by size.
        not_predicted: Why there is no prediction; empty if there is one.
        settings: Run-time settings that differ, by file.
    """

    base: str
    changes: tuple[PackageChange, ...]
    prediction: Prediction | None
    effects: tuple[Effect, ...]
    not_predicted: str = ""
    settings: tuple[SettingChange, ...] = ()
    listed: frozenset[str] = frozenset()

    def without_prediction(self, reason: str) -> LockComparison:
        """Return the comparison without predictions, for a reason."""
        settings = tuple(replace(change, effects=()) for change in self.settings)
        return replace(self, prediction=None, effects=(), not_predicted=reason, settings=settings)


def changes_between(before: Mapping[str, Version], after: Mapping[str, Version]) -> tuple[PackageChange, ...]:
    """Return the packages whose version differs, sorted by name."""
    return tuple(
        PackageChange(package=name, before=before.get(name), after=after.get(name))
        for name in sorted({**before, **after})
        if before.get(name) != after.get(name)
    )


def compare(
    base: str,
    before: Mapping[str, Version],
    after: Mapping[str, Version],
    predictor: Predictor,
    *,
    settings: tuple[SettingChange, ...] = (),
    direct: Collection[str] = (),
) -> LockComparison:
    """Compare a lock with its base.

    Args:
        base: Display name of the base.
        before: Versions of the base.
        after: Versions of the lock.
        predictor: Predictions from the observations.
        settings: Run-time settings that differ.
        direct: Packages that the project names.
    """
    measured = performance_versions({**before, **after})
    changes = changes_between(before, after)
    return LockComparison(
        base=base,
        changes=tuple(sorted(changes, key=lambda c: (c.package not in measured, c.package not in direct, c.package))),
        listed=frozenset({*measured, *direct}),
        prediction=predictor.predict(after, before),
        effects=tuple(sorted(predictor.effects(after, before), key=effect_order)),
        settings=settings,
    )


def effect_order(effect: Effect) -> tuple[bool, float, str]:
    """Return the sort key of an effect: significant effects first, then by size."""
    return not effect.is_significant, -abs(math.log(effect.speedup)), effect.subject


def check_regression(scope: Scope, comparison: LockComparison) -> Iterator[Finding]:
    """Yield the predicted loss of speed, if it is significant and exceeds the policy's `max-regression`."""
    prediction, allowed = comparison.prediction, scope.policy.max_regression
    if prediction is None or prediction.speedup >= 1 - allowed or prediction.high >= 1:
        return
    slower = min(prediction.changes, key=lambda c: c.speedup)
    # The speed of a framework also depends on other packages, such as NumPy.
    before = next(
        (str(c.before) for c in comparison.changes if c.package == slower.package), "with the base's packages"
    )
    yield scope.finding(
        "ADV007",
        f"`{slower.package} {scope.lock.versions[slower.package]}` is predicted to be "
        f"{speed_text(prediction, before)}, {workload_text(prediction)}; {1 - allowed:.3g} times is allowed",
        package=slower.package,
        cause=Cause.of(performance_versions(scope.lock.versions)),
    )


def check_setting_regression(scope: Scope, comparison: LockComparison) -> Iterator[Finding]:
    """Yield the changed settings whose predicted loss of speed is significant and exceeds `max-regression`.

    Settings that are only added are compared with the default, whatever the base is (ADV016). A loss that faster
    versions outweigh is none.
    """
    allowed = scope.policy.max_regression
    by_versions = max(1.0, comparison.prediction.speedup) if comparison.prediction is not None else 1.0
    for change in comparison.settings:
        for effect in change.effects if change.before else ():
            if effect.speedup * by_versions < 1 - allowed and effect.high < 1:
                yield scope.finding(
                    "ADV007",
                    f"`{effect.package}` with {change.text} is predicted to be {speed_text(effect, 'in the base')}; "
                    f"{1 - allowed:.3g} times is allowed",
                    package=effect.package,
                    place=change.place,
                    subject=change.name,
                )


def check_gap(scope: Scope, best: RecommendedStack, prediction: Prediction) -> Iterator[Finding]:
    """Yield the predicted gap to the recommended stack, if it is significant and exceeds the policy's `max-gap`.

    Args:
        scope: The lock, the target and the policy.
        best: The recommended stack.
        prediction: Its predicted speed-up over the lock.
    """
    allowed = scope.policy.max_gap
    if not exceeds_gap(prediction, allowed):
        return
    faster = max(prediction.changes, key=lambda c: c.speedup)
    yield scope.finding(
        "ADV008",
        f"the recommended stack is predicted to be {speed_text(prediction)}, {workload_text(prediction)}, with "
        f"`{faster.package} {best.versions[faster.package]}` in place of {scope.lock.versions[faster.package]}; "
        f"{1 + allowed:.3g} times is allowed",
        package=faster.package,
        cause=Cause.of(performance_versions(scope.lock.versions)),
    )


def exceeds_gap(prediction: Prediction, allowed: float) -> bool:
    """Whether a predicted speed-up is significant and exceeds the allowed one."""
    return prediction.speedup > 1 + allowed and prediction.low > 1
