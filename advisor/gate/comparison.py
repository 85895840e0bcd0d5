"""Comparison of two locks: what changes, and its predicted effect on speed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

from advisor.gate.setting_changes import SettingChange
from advisor.resolve.score.predictor import Predictor, performance_versions
from knowledge.estimate.interface import Effect, Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """A package whose version differs; the version is `None` where the package is absent."""

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

    @property
    def texts(self) -> tuple[str, str, str]:
        """Its name, and both versions as texts; ``-`` is absent."""
        return self.package, str(self.before or "-"), str(self.after or "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockComparison:
    """A lock compared with its base.

    Attributes:
        base: Display name of the base.
        changes: Packages whose version differs: first those that were measured, then those that the project names.
        listed: Packages that reports list one by one; they may put the others into groups.
        prediction: Predicted speed-up over the base; `None` if one of the stacks cannot run.
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
    """Compare a lock with its base; ``direct`` are the packages that the project names."""
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
