"""Results about run-time settings: their effects, and where these come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSource:
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
class SettingEffect:
    """Predicted effect of a run-time setting on a workload, compared with what happens without it.

    Attributes:
        package: The framework.
        setting: The setting as ``name=value``, as in the catalogue of settings.
        measured_as: The same with the names of the measurements.
        over: What it is compared with, as ``name=value``.
        workload: Name of the workload, or of a kind of workload.
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end.
        sources: Sources of this comparison, most pairs first: pairs at the tasks of the workload, or at
            other tasks if there are none.
        same_tasks: Whether the pairs are at the tasks of the workload.
        accelerator_pairs: Number of these pairs that were measured on the same model of accelerator or processor.
    """

    package: str
    setting: str
    measured_as: str
    over: str
    workload: str
    speedup: float
    low: float
    high: float
    sources: tuple[SettingSource, ...]
    same_tasks: bool
    accelerator_pairs: int
