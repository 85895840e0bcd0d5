"""Run-time settings that differ between a project and its base, and their predicted effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from advisor.gate.findings import Place
from advisor.project.project_settings import ProjectSetting
from advisor.resolve.predictor import Predictor
from knowledge.estimate.interface import Effect

_Key = tuple[str, str, tuple[str, ...]]
"""File, name of the setting, and the frameworks that it applies to."""


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


def setting_changes(
    before: Iterable[ProjectSetting],
    after: Iterable[ProjectSetting],
    versions: Mapping[str, Version],
    predictor: Predictor,
    *,
    backends: Mapping[str, str],
) -> tuple[SettingChange, ...]:
    """Return the settings that differ, with the predicted effect of each on the frameworks of a lock.

    A setting that moved to another file does not differ. Values that are known only when the program runs are left out.

    Args:
        before: Settings of the base.
        after: Settings of the project.
        versions: Versions of the lock.
        predictor: Predictions from the observations.
        backends: Backend of each measured package.
    """
    old, new = _by_file(before), _by_file(after)
    keys = [key for key in sorted({*old, *new}) if _values(old.get(key)) != _values(new.get(key))]
    moved = _moved(keys, old, new)
    changes = []
    for key in keys:
        if key in moved:
            continue
        listed = new.get(key) or old[key]
        was, is_now = _values(old.get(key)), _values(new.get(key))
        # A file that sets several values is used in several ways.
        effects = _effects(key, was, is_now, versions, predictor, backends) if max(len(was), len(is_now)) == 1 else ()
        place = Place(path=str(listed[0].path), line=listed[0].line) if key in new else Place(path=key[0])
        changes.append(
            SettingChange(name=key[1], before=was, after=is_now, backends=key[2], place=place, effects=effects)
        )
    return tuple(changes)


def _by_file(project_settings: Iterable[ProjectSetting]) -> dict[_Key, list[ProjectSetting]]:
    by_file: dict[_Key, list[ProjectSetting]] = defaultdict(list)
    for used in project_settings:
        if used.value:
            by_file[used.file, used.name, used.backends].append(used)
    return dict(by_file)


def _values(project_settings: Iterable[ProjectSetting] | None) -> tuple[str, ...]:
    return tuple(sorted({used.value for used in project_settings or ()}))


def _moved(
    keys: Iterable[_Key], old: Mapping[_Key, list[ProjectSetting]], new: Mapping[_Key, list[ProjectSetting]]
) -> set[_Key]:
    """Return the settings that one file does not have any more, and another file has with the same values."""
    removed = {(key[1:], _values(old[key])): key for key in keys if key not in new}
    added = {(key[1:], _values(new[key])): key for key in keys if key not in old}
    return {table[same] for same in removed.keys() & added.keys() for table in (removed, added)}


def _effects(
    key: _Key,
    before: tuple[str, ...],
    after: tuple[str, ...],
    versions: Mapping[str, Version],
    predictor: Predictor,
    backends: Mapping[str, str],
) -> tuple[Effect, ...]:
    _, name, applies_to = key
    packages = [p for p in sorted(versions) if p in backends and (not applies_to or backends[p] in applies_to)]
    value, over = next(iter(after), ""), next(iter(before), "")
    return (
        predictor.setting_effects(
            versions, {package: {name: value} for package in packages}, {package: {name: over} for package in packages}
        )
        if packages
        else ()
    )
