"""Run-time settings that were compared with their absence, and what they are worth on a machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

from knowledge.domain.observation import BENCHMARK, PUBLISHED
from knowledge.estimate.discrepancy import BLOCK_OF_MODEL, WHOLE_MODEL
from knowledge.estimate.evidence import Contrast, Machine, Side
from knowledge.estimate.framework_evidence import interval_of
from knowledge.estimate.interface import NORMAL_QUANTILE, Effect, PredictedGain
from knowledge.estimate.published_rows import DEFAULTS
from knowledge.estimate.setting_effect import SettingEffect, SettingSource
from knowledge.estimate.setting_gains import PairGain, SettingGains, SettingValue
from knowledge.estimate.similarity import side_on, similarity_of
from knowledge.estimate.workloads import TimePart, Workload
from knowledge.settings.catalogue import shipped_settings

if TYPE_CHECKING:
    from knowledge.estimate.framework_model import FrameworkModel

LEAST_SIMILARITY = 0.3
"""Minimum similarity of an accelerator whose settings are listed: what is the default differs between generations."""
USUAL_VALUES = ("", "tf32")
"""Values that a setting is compared with: the default, and TF32, which is the default of accelerators that have it."""
OWN_SOURCE = "measured with this program"
"""Name of the source of the program's own measurements."""
_WHOLE = frozenset({WHOLE_MODEL, BLOCK_OF_MODEL, BENCHMARK})
"""Indicators whose own measurements count: what a setting does to a single operation says little about a program."""
_NAMES: Mapping[tuple[str, str], SettingValue] = {
    ("precision", "amp"): ("amp", "float16"),
    ("precision", "fp16"): ("amp", "float16"),
    ("precision", "bf16"): ("amp", "bfloat16"),
    ("precision", "tf32"): ("tf32", "on"),
}
"""Settings of the catalogue that published ones stand for, if they have another name."""
Change = tuple[str, str, str]
"""Name of a setting, its value, and the value that it is compared with; empty values are the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSetting:
    """A value of a setting that was compared with another one.

    Attributes:
        change: Names as in the measurements.
        contrasts: The contrasts.
        releases: Releases that it was compared at, sorted.
    """

    change: Change
    contrasts: tuple[Contrast, ...]
    releases: tuple[Version, ...]

    @property
    def value(self) -> SettingValue:
        """The setting and its value as in the catalogue of settings."""
        name, value, _ = self.change
        return _NAMES.get((name, value), (name, value))

    def release_for(self, version: Version) -> Version:
        """Return the release at which the setting was compared that is nearest to a version.

        It is the newest one that is not newer, or else the oldest: nobody knows what a later release changes. Builds of
        one release are the same release.
        """
        public = _public(version)
        older = [r for r in self.releases if _public(r) <= public]
        return max(older, default=self.releases[0] if self.releases else version)

    def of_tasks(self, parts: Sequence[TimePart]) -> tuple[Contrast, ...]:
        """Return the contrasts of parts of a workload."""
        return tuple(c for c in self.contrasts if any(part.matches(c.label, c.family) for part in parts))


SettingPair = tuple[ComparedSetting, ComparedSetting]


@lru_cache(maxsize=1024)
def _public(version: Version) -> Version:
    """Return a version without its local part."""
    return version if version.local is None else Version(version.public)


class ReleaseSteps:
    """What releases differ by without settings: settings of other releases than the reference are read against it.

    A campaign compares each of its combinations with one reference, also those of another release with settings.
    """

    def __init__(self, contrasts: Iterable[Contrast]) -> None:
        """Find the contrasts between releases without settings.

        Args:
            contrasts: Contrasts of one framework.
        """
        self._steps = {
            _place_of(c): c.mean for c in contrasts if not (c.side.settings or c.reference.settings or c.is_control)
        }

    def step_of(self, c: Contrast) -> float | None:
        """Return the part of a contrast that is due to its release: 0 for equal ones, none if it was not measured."""
        return 0.0 if _stack_of(c.side) == _stack_of(c.reference) else self._steps.get(_place_of(c))


def _place_of(c: Contrast) -> tuple[object, ...]:
    return c.block, c.label, *_stack_of(c.side), *_stack_of(c.reference)


def _stack_of(side: Side) -> tuple[object, ...]:
    return side.version, tuple(sorted(side.companions.items()))


def setting_change(c: Contrast) -> Change | None:
    """Return the only setting in which the sides of a contrast differ; none if anything else differs."""
    return _changed_setting(c) if _stack_of(c.side) == _stack_of(c.reference) else None


def _changed_setting(c: Contrast) -> Change | None:
    """Return the only setting in which the sides of a contrast differ, whatever their releases; none for several."""
    one, other = c.side.settings, c.reference.settings
    names = [n for n in {*one, *other} if one.get(n) != other.get(n)]
    if len(names) != 1:
        return None
    (name,) = names
    return name, one.get(name, ""), other.get(name, "")


def compared_settings(contrasts: Sequence[Contrast], machine: Machine) -> tuple[ComparedSetting, ...]:
    """Return the settings that were compared at whole programs, models or blocks, sorted.

    Of published settings, those on similar accelerators count. Others count on every machine of their kind of device:
    the model says how uncertain their effect is on another one.

    Args:
        contrasts: Contrasts of one framework on one kind of device.
        machine: The machine that predictions are for.
    """
    changes: dict[Change, list[Contrast]] = defaultdict(list)
    releases = ReleaseSteps(contrasts)
    for c in contrasts:
        change = setting_change(c) if c.family == PUBLISHED else None
        if c.family in _WHOLE and releases.step_of(c) is not None:
            change = _changed_setting(c)
        if change is not None and change[1] and change[2] in USUAL_VALUES and _acts_alike(c, change[0], machine):
            changes[change].append(c)
    nearest: dict[tuple[str, str], tuple[float, Change]] = {}
    for change, listed in changes.items():
        similarity = max(similarity_of(c.machine, machine) if c.family == PUBLISHED else 1.0 for c in listed)
        if similarity >= max(LEAST_SIMILARITY, nearest.get(change[:2], (0.0, change))[0]):
            nearest[change[:2]] = similarity, change
    return tuple(
        ComparedSetting(change=change, contrasts=tuple(changes[change]), releases=_releases_of(changes[change]))
        for change in sorted(change for _, change in nearest.values())
    )


def _releases_of(contrasts: Iterable[Contrast]) -> tuple[Version, ...]:
    return tuple(sorted(map(Version, {c.side.version for c in contrasts if c.side.version})))


def _acts_alike(c: Contrast, name: str, machine: Machine) -> bool:
    """Whether a setting is the same on the machine of a contrast and on another: a precision depends on features."""
    return side_on(c.side, c.machine).settings.get(name) == side_on(c.side, machine).settings.get(name)


def compared_pairs(contrasts: Iterable[Contrast], settings: Sequence[ComparedSetting]) -> tuple[SettingPair, ...]:
    """Return the pairs of settings that were measured together, without any other setting."""
    by_record = {setting.change[:2]: setting for setting in settings}
    pairs: dict[tuple[Change, Change], SettingPair] = {}
    for c in contrasts:
        present = [by_record.get(item) for item in sorted(c.side.settings.items())]
        if len(present) == 2 and c.family in _WHOLE and present[0] and present[1]:
            pairs[present[0].change, present[1].change] = present[0], present[1]
    return tuple(pair for _, pair in sorted(pairs.items()))


def setting_effects(
    model: FrameworkModel,
    settings: Sequence[ComparedSetting],
    stack: Mapping[str, Version],
    *,
    workload: Workload,
) -> Iterator[SettingEffect]:
    """Yield the effect of each setting on a stack.

    Args:
        model: The model of the framework, for the workload on the machine.
        settings: The settings.
        stack: The stack.
        workload: The workload.
    """
    parts = workload.parts.get(model.basis, ())
    settings = preferred(settings, parts)
    requests = [
        (setting.release_for(stack[model.name]), {name: value}, {name: over} if over else {})
        for setting in settings
        for name, value, over in [setting.change]
    ]
    for setting, gain in zip(settings, model.gains_of_settings(stack, requests), strict=True):
        name, value, over = setting.change
        own = setting.of_tasks(parts)
        half = NORMAL_QUANTILE * math.sqrt(max(0.0, gain.variance))
        yield SettingEffect(
            package=model.name,
            setting="=".join(setting.value),
            measured_as=f"{name}={value}",
            over=f"{name}={over or DEFAULTS.get(name, 'default')}",
            workload=workload.name_of(model.basis),
            speedup=math.exp(gain.mean),
            low=math.exp(gain.mean - half),
            high=math.exp(gain.mean + half),
            sources=sources_of(own or setting.contrasts),
            same_tasks=bool(own),
            accelerator_pairs=sum(c.machine.name == model.machine.name for c in own or setting.contrasts),
        )


def effect_of_change(
    model: FrameworkModel,
    settings: Sequence[ComparedSetting],
    stack: Mapping[str, Version],
    change: Change,
    *,
    workload: Workload,
) -> Effect | None:
    """Return the effect of a value of a setting in place of another one; none if one of them was not compared.

    Args:
        model: The model of the framework, for the workload on the machine.
        settings: The settings.
        stack: The stack.
        change: The setting and its values, as in the catalogue of settings.
        workload: The workload.
    """
    name, *values = change
    by_value = {setting.value: setting for setting in preferred(settings, workload.parts.get(model.basis, ()))}
    sides = [by_value.get((name, value)) for value in values]
    compared = [side for side in sides if side is not None]
    if len(compared) < sum(map(bool, values)) or not compared:
        return None
    default = {compared[0].change[0]: compared[0].change[2]} if compared[0].change[2] else {}
    new, old = ({side.change[0]: side.change[1]} if side else default for side in sides)
    (gain,) = model.gains_of_settings(stack, [(compared[0].release_for(stack[model.name]), new, old)])
    speedup, low, high = interval_of(gain)
    return Effect(subject=f"{name}={values[0]}", package=model.name, speedup=speedup, low=low, high=high)


def gains_of_settings(
    model: FrameworkModel,
    settings: Sequence[ComparedSetting],
    pairs: Sequence[SettingPair],
    stack: Mapping[str, Version],
    versions: Sequence[Version],
    *,
    workload: Workload,
    share: float,
) -> SettingGains:
    """Return the gain of each setting, and of pairs that were measured together, for versions of the framework.

    Each is that at the nearest release at which it was compared: otherwise a version would be better than another only
    because less is known about it.

    Args:
        model: The model of the framework.
        settings: The settings.
        pairs: Pairs of them.
        stack: A stack with the other packages.
        versions: Versions of the framework.
        workload: The workload.
        share: Share of the workload's time that is spent in the framework.
    """
    parts = workload.parts.get(model.basis, ())
    by_value = {setting.value: setting for setting in preferred(settings, parts)}
    requests: dict[str, tuple[Version, dict[str, str], dict[str, str]]] = {}

    def ask(release: Version, one: Sequence[ComparedSetting], over: Sequence[ComparedSetting] = ()) -> str:
        """Ask for the gain of some settings over others, and return the key of the answer."""
        values = {setting.change[0]: setting.change[1] for setting in one}
        defaults = {setting.change[0]: setting.change[2] for setting in one if setting.change[2]}
        others = {setting.change[0]: setting.change[1] for setting in over}
        key = repr((str(release), values, defaults, others))
        requests.setdefault(key, (release, values, {**defaults, **others}))
        return key

    alone = {v: {value: ask(s.release_for(v), [s]) for value, s in by_value.items()} for v in versions}
    together = {
        v: {
            (a.value, b.value): [ask(release, [a, b]), ask(release, [a, b], [b]), ask(release, [a, b], [a])]
            for a, b in pairs
            if by_value.get(a.value) is a and by_value.get(b.value) is b
            for release in [a.release_for(v)]
        }
        for v in versions
    }
    answers = model.gains_of_settings(stack, list(requests.values()))
    gains = {key: _scaled(gain, share) for key, gain in zip(requests, answers, strict=True)}
    return SettingGains(
        framework=model.name,
        alone={v: {value: gains[key] for value, key in table.items()} for v, table in alone.items()},
        together={
            v: {
                values: PairGain(joint=gains[joint], first=gains[first], second=gains[second])
                for values, (joint, first, second) in table.items()
            }
            for v, table in together.items()
        },
    )


def preferred(settings: Iterable[ComparedSetting], parts: Sequence[TimePart]) -> list[ComparedSetting]:
    """Return each value of a setting by one of its names in the sources: that of the workload's tasks, or the usual.

    Settings that are for inference are left out of a workload that only trains.

    Args:
        settings: The settings.
        parts: Parts of the workload.
    """
    by_value: dict[SettingValue, list[ComparedSetting]] = defaultdict(list)
    only_trains = bool(parts) and all(map(_trains, parts))
    for setting in settings:
        own = shipped_settings().get(setting.value[0])
        if not (only_trains and own is not None and own.inference_only):
            by_value[setting.value].append(setting)

    def weight(setting: ComparedSetting) -> tuple[bool, int]:
        own = setting.of_tasks(parts)
        return bool(own), len(own or setting.contrasts)

    return [max(listed, key=weight) for listed in by_value.values()]


def _trains(part: TimePart) -> bool:
    return part.indicator == "training_step" or part.parameters.get("mode") == "training"


def _scaled(gain: PredictedGain, share: float) -> PredictedGain:
    return PredictedGain(mean=share * gain.mean, variance=share**2 * gain.variance)


def sources_of(contrasts: Iterable[Contrast]) -> tuple[SettingSource, ...]:
    """Return the sources of contrasts, with the number of their pairs, the most first."""
    years: dict[str, list[int]] = defaultdict(list)
    for c in contrasts:
        years[c.source or OWN_SOURCE].append(c.year)
    sources = (
        SettingSource(name=name, pairs=len(listed), first_year=min(listed), last_year=max(listed))
        for name, listed in years.items()
    )
    return tuple(sorted(sources, key=lambda source: (-source.pairs, source.name)))
