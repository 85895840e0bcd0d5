"""How far one published task is from others: the uncertainty of a prediction for a model that nobody measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.kernel import side_key
from knowledge.estimate.stack_discrepancy import Program
from knowledge.estimate.workloads import TASKS, workload_catalogue

RELEASES, SETTINGS = "tasks", "settings of tasks"
"""Names of the discrepancies of versions and of settings among those of a framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDiscrepancy:
    """Discrepancy of the predicted gain of one stack over another for another task.

    Attributes:
        releases: Standard deviation if only the version differs.
        settings: Standard deviation if a setting differs.
    """

    releases: float
    settings: float

    def between(self, one: Program, other: Program) -> float:
        """Return the discrepancy of the gain of one stack over another; 0 if they are the same."""
        if one == other:
            return 0.0
        return self.releases if one[1] == other[1] else self.settings


def task_discrepancies(contrasts: Iterable[Contrast]) -> Mapping[str, float]:
    """Return the standard deviations of the tasks of one kind of workload, for the same change and accelerator.

    Args:
        contrasts: Contrasts of one framework and device.

    Returns:
        Standard deviations by name; only those with at least two tasks to compare.
    """
    kinds = _kinds_of_tasks()
    groups: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in contrasts:
        if c.family == PUBLISHED:
            words = words_of(c.label)
            task = words["task"], words["mode"]
            for kind in kinds.get(task, ()):
                key = c.block, c.machine.name, kind, side_key(c.side), side_key(c.reference)
                groups[key][words["task"]].append(c.mean)
    spreads: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for (*_, side, reference), tasks in groups.items():
        means = [statistics.fmean(listed) for listed in tasks.values()]
        if len(means) > 1:
            name = RELEASES if side[2] == reference[2] else SETTINGS  # type: ignore[index]
            spreads[name].append((statistics.variance(means), len(means) - 1))
    return {
        name: math.sqrt(sum(v * n for v, n in listed) / sum(n for _, n in listed)) for name, listed in spreads.items()
    }


def _kinds_of_tasks() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the general kinds of workloads that a task with its mode stands for."""
    kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
    for workload in workload_catalogue().values():
        for part in workload.parts.get(TASKS, ()) if workload.is_kind else ():
            kinds[part.parameters["task"], part.parameters["mode"]].append(workload.name)
    return {task: tuple(names) for task, names in kinds.items()}
