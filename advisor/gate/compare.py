"""Two locks compared: what changed, what that is predicted to do, and whether the policy admits it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from advisor.gate.findings import Finding, Place
from advisor.gate.prediction import Outlook, performance_versions
from advisor.gate.recommendation import Recommended
from advisor.gate.scope import Scope
from advisor.project.switches import Switch
from knowledge.estimate.interface import Effect, Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """A package that differs; an absent version is none."""

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
    """What a lock is against its base.

    Attributes:
        base: What it was compared with, for people.
        changes: What differs, by name.
        prediction: Predicted speed-up over the base.
        effects: The same at each indicator, those that are beyond doubt first, the greatest first.
    """

    base: str
    changes: tuple[PackageChange, ...]
    prediction: Prediction
    effects: tuple[Effect, ...]


def changes_between(before: Mapping[str, Version], after: Mapping[str, Version]) -> tuple[PackageChange, ...]:
    """Return the packages that differ, by name."""
    return tuple(
        PackageChange(package=name, before=before.get(name), after=after.get(name))
        for name in sorted({**before, **after})
        if before.get(name) != after.get(name)
    )


def compare(base: str, before: Mapping[str, Version], after: Mapping[str, Version], outlook: Outlook) -> LockComparison:
    """Compare a lock with its base.

    Args:
        base: Name of the base, for people.
        before: Versions of the base.
        after: Versions of the lock.
        outlook: What the observations imply.
    """
    return LockComparison(
        base=base,
        changes=changes_between(before, after),
        prediction=outlook.predict(after, before),
        effects=tuple(sorted(outlook.effects(after, before), key=effect_sort_key)),
    )


def effect_sort_key(effect: Effect) -> tuple[bool, float, str]:
    """Sort key of effects: significant ones first, then the largest."""
    return effect.low <= 1 <= effect.high, -abs(math.log(effect.speedup)), effect.subject


def regression(scope: Scope, comparison: LockComparison) -> Iterator[Finding]:
    """Yield the predicted loss of speed, where it is beyond the policy's and beyond its own uncertainty."""
    found, allowed = comparison.prediction, scope.policy.max_regression
    if found.speedup >= 1 - allowed or found.high >= 1:
        return
    slower = min(found.changes, key=lambda c: c.speedup)
    before = next(c for c in comparison.changes if c.package == slower.package)
    yield scope.finding(
        "ADV007",
        f"`{slower.package} {before.after}` is predicted to run workload `{found.workload}` at {found.speedup:.3f}x "
        f"the speed of {before.before} [{found.low:.3f}, {found.high:.3f}]; {1 - allowed:.3f}x is allowed",
        package=slower.package,
        versions=performance_versions(scope.lock.versions),
    )


def gap(scope: Scope, best: Recommended, prediction: Prediction) -> Iterator[Finding]:
    """Yield the predicted gap to the recommended stack, where it is beyond the policy's and its own uncertainty.

    Args:
        scope: What is examined.
        best: The recommended stack.
        prediction: Its predicted speed-up over the lock.
    """
    allowed = scope.policy.max_gap
    if not lies_behind(prediction, allowed):
        return
    faster = max(prediction.changes, key=lambda c: c.speedup)
    yield scope.finding(
        "ADV008",
        f"the recommended stack is predicted {prediction.speedup:.3f}x as fast for workload `{prediction.workload}` "
        f"[{prediction.low:.3f}, {prediction.high:.3f}], with `{faster.package} {best.versions[faster.package]}` "
        f"in place of {scope.lock.versions[faster.package]}; {1 + allowed:.3f}x is allowed",
        package=faster.package,
        versions=performance_versions(scope.lock.versions),
    )


def lies_behind(prediction: Prediction, allowed: float) -> bool:
    """Whether a stack is beyond doubt and beyond what is allowed faster than what it was predicted against."""
    return prediction.speedup > 1 + allowed and prediction.low > 1


def slow_settings(
    scope: Scope, switches: Sequence[Switch], outlook: Outlook, *, backends: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the settings of the project that make the locked stack slower, beyond their own uncertainty.

    Args:
        scope: What is examined.
        switches: What the project sets.
        outlook: What the observations imply.
        backends: Backend of each package that is measured.
    """
    measured = {n: v for n, v in scope.lock.versions.items() if n in backends}
    for switch in switches:
        asked = {name: {switch.name: switch.value} for name in measured if switch.backend in ("", backends[name])}
        if not asked:
            continue
        for effect in outlook.setting_effects(scope.lock.versions, asked):
            if effect.high < 1:
                yield scope.finding(
                    "ADV016",
                    f"`{effect.subject}` is predicted to run `{effect.package} {measured[effect.package]}` at "
                    f"{effect.speedup:.3f}x the speed of the default [{effect.low:.3f}, {effect.high:.3f}]",
                    package=effect.package,
                    place=Place(path=str(switch.path), line=switch.line),
                    subject=effect.subject,
                )
