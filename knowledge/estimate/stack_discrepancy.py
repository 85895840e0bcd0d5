"""How far the predicted gain of one stack over another may be from that of a model that was not measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from knowledge.estimate.discrepancy import WHOLE_MODEL, architecture_and_mode
from knowledge.estimate.evidence import Contrast, Side
from knowledge.estimate.similarity import side_on

_PRIOR_DEGREES = 2.0
"""Weight of the framework's discrepancy, in degrees of freedom, when that of two of its stacks is estimated."""
_PRIOR_DEGREES_OF_SETTINGS = 1.0
"""The same for stacks with different settings: settings differ more from each other than releases do. A judgement."""
Program = tuple[str, tuple[tuple[str, str], ...]]
"""Version of a framework, and its settings, sorted."""
Run = tuple[str, str, str]
"""A block, the label of an indicator, and the kind of the machine."""
Ratio = tuple[float, float]
"""A log ratio, and its variance."""


class StackDiscrepancy:
    """Discrepancy of the predicted gain of one stack over another.

    Most releases change all models alike, or none; a few change some of them much. So the discrepancy of two stacks is
    estimated from the models that were measured with both, and shrunk towards that of the framework. So are settings;
    theirs is proportional to their effects, because most of them change hardly anything.
    """

    def __init__(self, contrasts: Iterable[Contrast], usual: float, relative_of_settings: float = 0.0) -> None:
        """Create it.

        Args:
            contrasts: Contrasts of one framework, if predictions come from whole models; else none.
            usual: The framework's discrepancy for predictions of this kind.
            relative_of_settings: The same for settings, as a share of their effects on the measured models.
        """
        self._usual = usual
        self._relative_of_settings = relative_of_settings
        self._known: dict[tuple[Program, Program], float] = {}
        self._ratios = ratios_by_run(c for c in contrasts if c.family == WHOLE_MODEL)

    def between(self, one: Program, other: Program) -> float:
        """Return the discrepancy of the gain of one stack over another; 0 if they have the same framework."""
        if one == other:
            return 0.0
        key = min((one, other), (other, one))
        if key not in self._known:
            self._known[key] = self._estimate(*key)
        return self._known[key]

    def _estimate(self, one: Program, other: Program) -> float:
        kinds: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
        for (block, label, _), ratio in effects_of(self._ratios, one, other):
            kinds[block, *architecture_and_mode(label)].append(ratio)
        total = degrees = 0.0
        for members in (m for m in kinds.values() if len(m) > 1):
            spread = statistics.variance(gain for gain, _ in members) - statistics.fmean(noise for _, noise in members)
            total += (len(members) - 1) * spread
            degrees += len(members) - 1
        prior, weight = self._usual**2, _PRIOR_DEGREES
        if one[1] != other[1]:
            effects = [mean**2 - noise for members in kinds.values() for mean, noise in members]
            prior = max(prior, self._relative_of_settings**2 * statistics.fmean(effects or [0.0]))
            weight = _PRIOR_DEGREES_OF_SETTINGS
        return math.sqrt(max(0.0, weight * prior + total) / (weight + degrees))


def ratios_by_run(contrasts: Iterable[Contrast]) -> dict[Run, dict[Program, Ratio]]:
    """Return the ratio of each program to the reference of its block, and its variance."""
    runs: dict[Run, dict[Program, Ratio]] = defaultdict(dict)
    for c in contrasts:
        if not c.is_control:
            ratios = runs[c.block, c.label, c.machine.kind]
            ratios[program_of(side_on(c.reference, c.machine))] = (0.0, 0.0)
            ratios[program_of(side_on(c.side, c.machine))] = (c.mean, c.error**2)
    return runs


def effects_of(
    runs: Mapping[Run, Mapping[Program, Ratio]], one: Program, other: Program
) -> Iterator[tuple[Run, Ratio]]:
    """Yield the ratio of two programs in each run of both, and its variance."""
    for run, ratios in runs.items():
        if one in ratios and other in ratios:
            (mean, variance), (from_mean, from_variance) = ratios[one], ratios[other]
            yield run, (mean - from_mean, variance + from_variance)


def program_of(side: Side) -> Program:
    """Return the version and settings of a side of a contrast."""
    return side.version, tuple(sorted(side.settings.items()))
