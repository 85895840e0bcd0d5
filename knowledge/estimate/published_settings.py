"""What run-time settings are worth on an accelerator, as far as published pairs of measurements say it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.evidence import Contrast, Machine
from knowledge.estimate.interface import NORMAL_QUANTILE
from knowledge.estimate.published_rows import DEFAULTS
from knowledge.estimate.setting_effect import PublishedSource, SettingEffect
from knowledge.estimate.similarity import similarity_of
from knowledge.estimate.workloads import TASKS, Workload

if TYPE_CHECKING:
    from knowledge.estimate.framework_model import FrameworkModel

LEAST_SIMILARITY = 0.3
"""Minimum similarity of an accelerator whose settings are listed: what is the default differs between generations."""
USUAL_VALUES = ("", "tf32")
"""Values that a setting is compared with: the default, and TF32, which is the default of accelerators that have it."""
Change = tuple[str, str, str]
"""Name of a setting, its value, and the value that it is compared with; empty values are the defaults."""


def setting_change(c: Contrast) -> Change | None:
    """Return the only setting in which the sides of a contrast differ; none if anything else differs."""
    one, other = c.side, c.reference
    names = [n for n in {*one.settings, *other.settings} if one.settings.get(n) != other.settings.get(n)]
    if one.version != other.version or one.companions != other.companions or len(names) != 1:
        return None
    (name,) = names
    return name, one.settings.get(name, ""), other.settings.get(name, "")


def published_settings(
    model: FrameworkModel,
    contrasts: Sequence[Contrast],
    stack: Mapping[str, Version],
    *,
    workload: Workload,
) -> tuple[SettingEffect, ...]:
    """Return the effects of settings that were published for accelerators like this one, the largest first.

    Args:
        model: The model of the framework, for the workload on the machine.
        contrasts: Contrasts of the framework on such a device.
        stack: The stack.
        workload: The workload.
    """
    changes: dict[Change, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        change = setting_change(c) if c.family == PUBLISHED else None
        if change is not None and change[1] and change[2] in USUAL_VALUES:
            changes[change].append(c)
    effects = []
    parts = workload.parts.get(TASKS, ())
    for (name, value, over), listed in _nearest(changes, model.machine).items():
        own = [c for c in listed if any(part.matches(c.label, c.family) for part in parts)]
        gain = model.gain_of_setting(stack, name, value, over)
        half = NORMAL_QUANTILE * math.sqrt(max(0.0, gain.variance))
        effects.append(
            SettingEffect(
                package=model.name,
                setting=f"{name}={value}",
                over=f"{name}={over or DEFAULTS[name]}",
                workload=workload.name,
                speedup=math.exp(gain.mean),
                low=math.exp(gain.mean - half),
                high=math.exp(gain.mean + half),
                sources=sources_of(own or listed),
                same_tasks=bool(own),
                same_accelerator=any(c.machine.name == model.machine.name for c in own or listed),
            )
        )
    return tuple(sorted(effects, key=lambda e: (-e.speedup, e.setting, e.over)))


def _nearest(changes: Mapping[Change, list[Contrast]], machine: Machine) -> dict[Change, list[Contrast]]:
    """Return each value of a setting with the comparison that was made on the most similar accelerators."""
    nearest: dict[tuple[str, str], tuple[float, Change]] = {}
    for change, listed in changes.items():
        similarity = max(similarity_of(c.machine, machine) for c in listed)
        if similarity >= max(LEAST_SIMILARITY, nearest.get(change[:2], (0.0, change))[0]):
            nearest[change[:2]] = similarity, change
    return {change: changes[change] for _, change in nearest.values()}


def sources_of(contrasts: Iterable[Contrast]) -> tuple[PublishedSource, ...]:
    """Return the published sources of contrasts, with the number of their pairs, the most first."""
    years: dict[str, list[int]] = defaultdict(list)
    for c in contrasts:
        if c.family == PUBLISHED:
            years[c.source].append(c.year)
    sources = (
        PublishedSource(name=name, pairs=len(listed), first_year=min(listed), last_year=max(listed))
        for name, listed in years.items()
    )
    return tuple(sorted(sources, key=lambda source: (-source.pairs, source.name)))
