"""Results about run-time settings: their effects, and where these come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from knowledge.domain.ratio import Ratio, WithRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSource:
    """A source of measurements that a prediction rests on.

    Attributes:
        name: Its name, such as ``NVIDIA/DeepLearningExamples``.
        pairs: Number of pairs of measurements that differ in nothing else.
        first_year: Year of the earliest published one; 0 if this program measured them.
        last_year: Year of the latest.
    """

    name: str
    pairs: int
    first_year: int
    last_year: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectAtSize(WithRatio):
    """Predicted effect of a setting on programs of one size.

    Attributes:
        flops: Floating-point operations of a step.
        ratio: Predicted speed-up.
    """

    flops: float
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEffect(WithRatio):
    """Predicted effect of a run-time setting on a workload, compared with what happens without it.

    Attributes:
        package: The framework.
        setting: The setting as ``name=value``, as in the catalogue of settings.
        measured_as: The same with the names of the measurements.
        over: What it is compared with, as ``name=value``.
        workload: Name of the workload, or of a kind of workload.
        ratio: Predicted speed-up.
        sources: Sources of this comparison, most pairs first: pairs at the tasks of the workload, or at
            other tasks if there are none.
        same_tasks: Whether the pairs are at the tasks of the workload.
        accelerator_pairs: Number of these pairs that were measured on the same model of accelerator, or on a processor
            with the same features for matrices.
        sizes: Effects at the sizes that such programs have, the smallest first, or at the usual one of those that the
            user measured; empty if the size is known.
    """

    package: str
    setting: str
    measured_as: str
    over: str
    workload: str
    ratio: Ratio
    sources: tuple[MeasurementSource, ...]
    same_tasks: bool
    accelerator_pairs: int
    sizes: tuple[EffectAtSize, ...] = ()

    @property
    def gains_from(self) -> float:
        """Floating-point operations of a step from which on it is faster; 0 if that does not depend on the size."""
        faster = [size.low > 1 for size in self.sizes]
        if not any(faster) or all(faster) or not faster[-1]:
            return 0.0
        last = max(place for place, is_faster in enumerate(faster) if not is_faster)
        below, above = self.sizes[last], self.sizes[last + 1]
        # Between two sizes, the lower end of the interval changes linearly with the logarithm of the size.
        part = -math.log(below.low) / math.log(above.low / below.low)
        return float(below.flops * (above.flops / below.flops) ** part)
