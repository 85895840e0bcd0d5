"""Run-time settings that were compared with their absence, and what they are worth on a machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.catalogue.settings import shipped_settings
from knowledge.domain.observation import BENCHMARK, PUBLISHED
from knowledge.estimate.gains import SettingValue
from knowledge.estimate.programs import PROGRAMS
from knowledge.estimate.setting_effect import MeasurementSource
from knowledge.estimate.similarity import element_type_of, precision_feature, similarity_of
from knowledge.estimate.workloads import TimePart
from knowledge.evidence.contrasts import Contrast, Machine

LEAST_SIMILARITY = 0.3
"""Minimum similarity of an accelerator whose settings are listed: what is the default differs between generations."""
USUAL_VALUES = ("", "tf32")
"""Values that a setting is compared with: the default, and TF32, which is the default of accelerators that have it."""
OWN_SOURCE = "measured with this program"
"""Name of the source of the program's own measurements."""
_WHOLE = frozenset({*PROGRAMS, BENCHMARK})
"""Indicators whose own measurements count: what a setting does to a single operation says little about a program."""
_NAMES: Mapping[tuple[str, str], SettingValue] = {
    ("precision", "amp"): ("amp", "float16"),
    ("precision", "fp16"): ("amp", "float16"),
    ("precision", "bf16"): ("amp", "bfloat16"),
    ("precision", "amp_bf16"): ("amp", "bfloat16"),
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
        is_of_machine: Whether this program compared it on the machine that predictions are for.
    """

    change: Change
    contrasts: tuple[Contrast, ...]
    is_of_machine: bool = False

    @property
    def value(self) -> SettingValue:
        """The setting and its value as in the catalogue of settings."""
        name, value, _ = self.change
        return _NAMES.get((name, value), (name, value))

    def of_tasks(self, parts: Sequence[TimePart]) -> tuple[Contrast, ...]:
        """Return the contrasts of parts of a workload."""
        return tuple(c for c in self.contrasts if any(part.matches(c.label, c.family) for part in parts))


SettingPair = tuple[ComparedSetting, ComparedSetting]


def setting_change(c: Contrast) -> Change | None:
    """Return the only setting in which the sides of a contrast differ; ``None`` if anything else differs."""
    stacks = ((side.version, dict(side.companions)) for side in (c.side, c.reference))
    return _changed_setting(c) if next(stacks) == next(stacks) else None


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
    for c in contrasts:
        change = setting_change(c) if c.family == PUBLISHED else _changed_setting(c) if c.family in _WHOLE else None
        if change is not None and change[1] and change[2] in USUAL_VALUES and _acts_alike(c, change[0], machine):
            changes[change].append(c)
    nearest: dict[tuple[str, str], tuple[float, Change]] = {}
    for change, listed in changes.items():
        similarity = max(similarity_of(c.machine, machine) if c.family == PUBLISHED else 1.0 for c in listed)
        if similarity >= max(LEAST_SIMILARITY, nearest.get(change[:2], (0.0, change))[0]):
            nearest[change[:2]] = similarity, change
    return tuple(
        ComparedSetting(
            change=change,
            contrasts=tuple(changes[change]),
            is_of_machine=any(
                c.family != PUBLISHED and c.machine.identity == machine.identity for c in changes[change]
            ),
        )
        for change in sorted(change for _, change in nearest.values())
    )


def _acts_alike(c: Contrast, name: str, machine: Machine) -> bool:
    """Whether a setting is the same on the machine of a contrast and on another: a precision depends on features."""
    kind = element_type_of(name, c.side.settings.get(name, "")) if machine.is_processor else ""
    return not kind or precision_feature(kind, c.machine) == precision_feature(kind, machine)


def compared_pairs(contrasts: Iterable[Contrast], settings: Sequence[ComparedSetting]) -> tuple[SettingPair, ...]:
    """Return the pairs of settings that were measured together, without any other setting."""
    by_record = {setting.change[:2]: setting for setting in settings}
    pairs: dict[tuple[Change, Change], SettingPair] = {}
    for c in contrasts:
        present = [by_record.get(item) for item in sorted(c.side.settings.items())]
        if len(present) == 2 and c.family in _WHOLE and present[0] and present[1]:
            pairs[present[0].change, present[1].change] = present[0], present[1]
    return tuple(pair for _, pair in sorted(pairs.items()))


def preferred(settings: Iterable[ComparedSetting], parts: Sequence[TimePart]) -> list[ComparedSetting]:
    """Return each value of a setting by one of its names in the sources.

    It is that of this program's measurements on the machine, of the workload's tasks, or the usual one.

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

    def weight(setting: ComparedSetting) -> tuple[bool, bool, int]:
        own = setting.of_tasks(parts)
        return setting.is_of_machine, bool(own), len(own or setting.contrasts)

    return [max(listed, key=weight) for listed in by_value.values()]


def _trains(part: TimePart) -> bool:
    return part.indicator == "training_step" or part.parameters.get("mode") == "training"


def sources_of(contrasts: Iterable[Contrast]) -> tuple[MeasurementSource, ...]:
    """Return the sources of contrasts, with the number of their pairs, the most first."""
    years: dict[str, list[int]] = defaultdict(list)
    for c in contrasts:
        years[c.source or OWN_SOURCE].append(c.year)
    sources = (
        MeasurementSource(name=name, pairs=len(listed), first_year=min(listed), last_year=max(listed))
        for name, listed in years.items()
    )
    return tuple(sorted(sources, key=lambda source: (-source.pairs, source.name)))
