"""Comparison of a project with its base: versions and run-time settings that differ, and their effect on speed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from advisor.gate.findings import Place
from advisor.project.settings.interface import ProjectSetting
from advisor.resolve.score.predictor import Predictor, performance_versions
from knowledge.catalogue.settings import ANY, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.interface import Effect, Prediction

RecommendedValues = Mapping[str, Mapping[str, int | str]]
"""Recommended values of settings, by framework and name."""
_Key = tuple[str, str, tuple[str, ...]]
"""File, name of the setting, and the frameworks that it applies to."""


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
class SettingChange:
    """A setting that a file of a project sets otherwise than in the base.

    Attributes:
        name: Name of the setting.
        before: Its values in the base, sorted; empty if the file does not set it there.
        after: Its values in the project, sorted; empty if the file does not set it.
        backends: The frameworks that it applies to; empty for all that have the setting.
        place: The file, with the line in the project.
        effects: Predicted effects on the frameworks of the lock; empty if the change was not measured.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    backends: tuple[str, ...]
    place: Place
    effects: tuple[Effect, ...] = ()

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"

    @property
    def text(self) -> str:
        """The change for people, such as ``threads=4 in place of threads=8``."""
        before, after = (" or ".join(f"`{self.name}={v}`" for v in values) for values in (self.before, self.after))
        if not before:
            return after
        return f"{after} in place of {before}" if after else f"{before} removed"


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


def with_settings_of_lock(
    project_settings: Sequence[ProjectSetting], recommended: RecommendedValues, path: Path
) -> tuple[ProjectSetting, ...]:
    """Return the run-time settings of a project with those that its lock recommends and that nothing else sets."""
    of_lock = (
        ProjectSetting(
            name=name,
            value=str(value),
            backends=() if backend == ANY else (backend,),
            file=str(path),
            path=path,
            line=0,
            origin="lock",
        )
        for backend, values in sorted(recommended.items())
        for name, value in sorted(values.items())
    )
    return (
        *project_settings,
        *(
            s
            for s in of_lock
            if not any(s.name == o.name and _share_a_framework(s.backends, o.backends) for o in project_settings)
        ),
    )


def _share_a_framework(one: Collection[str], other: Collection[str]) -> bool:
    """Whether two settings apply to a common framework; no names are all frameworks."""
    return not one or not other or bool(set(one) & set(other))


def setting_changes(
    before: Iterable[ProjectSetting],
    after: Iterable[ProjectSetting],
    stacks: Sequence[Mapping[str, Version]],
    predictor: Predictor,
) -> tuple[SettingChange, ...]:
    """Return the settings that differ, with the predicted effect of each on the frameworks of a lock.

    A setting that moved to another file does not differ. Values that are known only when the program runs are left out.
    The stacks are the lock and its base: effects are those on the first that has the values.
    """
    old, new = _by_file(before), _by_file(after)
    was, becomes = (
        {key: tuple(sorted({s.value for s in listed})) for key, listed in side.items()} for side in (old, new)
    )
    keys = [key for key in sorted({*was, *becomes}) if was.get(key) != becomes.get(key)]
    moved = _moved(keys, was, becomes)
    changes = []
    for key in (key for key in keys if key not in moved):
        file, name, backends = key
        values = was.get(key, ()), becomes.get(key, ())
        # A file that sets several values is used in several ways.
        effects = _effects(key, *values, stacks, predictor) if max(map(len, values)) == 1 else ()
        place = Place(path=str(new[key][0].path), line=new[key][0].line) if key in new else Place(path=file)
        changes.append(
            SettingChange(name=name, before=values[0], after=values[1], backends=backends, place=place, effects=effects)
        )
    return tuple(changes)


def _by_file(project_settings: Iterable[ProjectSetting]) -> dict[_Key, list[ProjectSetting]]:
    by_file: dict[_Key, list[ProjectSetting]] = defaultdict(list)
    for used in project_settings:
        if used.value:
            by_file[used.file, used.name, used.backends].append(used)
    return dict(by_file)


def _moved(
    keys: Iterable[_Key], was: Mapping[_Key, tuple[str, ...]], becomes: Mapping[_Key, tuple[str, ...]]
) -> set[_Key]:
    """Return the settings that one file does not have any more, and another file has with the same values."""
    removed, added = [key for key in keys if key not in becomes], [key for key in keys if key not in was]
    return {
        key
        for one in removed
        for other in added
        if one[1] == other[1] and was[one] == becomes[other] and _share_a_framework(one[2], other[2])
        for key in (one, other)
    }


def _effects(
    key: _Key,
    before: tuple[str, ...],
    after: tuple[str, ...],
    stacks: Sequence[Mapping[str, Version]],
    predictor: Predictor,
) -> tuple[Effect, ...]:
    _, name, applies_to = key
    packages = [p for p in sorted(stacks[0]) if p in FRAMEWORKS and (not applies_to or FRAMEWORKS[p] in applies_to)]
    value, over = next(iter(after), ""), next(iter(before), "")
    effects: list[Effect] = []
    for package in packages:
        # An empty value is the default, which every version has.
        choices = [shipped_settings()[name].choice(FRAMEWORKS[package], v) for v in (value, over) if v]
        having = [s for s in stacks if package in s and all(c is not None and c.admits(s[package]) for c in choices)]
        if having:
            effects += predictor.setting_effects(having[0], {package: {name: value}}, {package: {name: over}})
    return tuple(effects)
