"""How far the effect of a setting on one kind of machine is from its effect on the kinds where it was measured."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from knowledge.domain.observation import BENCHMARK
from knowledge.estimate.discrepancy import BLOCK_OF_MODEL, WHOLE_MODEL
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.stack_discrepancy import Program, Ratio, effects_of, ratios_by_run

_PRIOR_DEGREES = 1.0
"""Weight of the framework's discrepancy, in degrees of freedom, when that of one setting is estimated. A judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Effects of a setting on other kinds of machines.

    Attributes:
        squared_effect: Mean square of the log ratios, beyond the noise.
        spread: Mean variance of one run between kinds, beyond the noise.
        degrees: Degrees of freedom of the spread.
    """

    squared_effect: float
    spread: float
    degrees: int


class MachineDiscrepancy:
    """Discrepancy of the predicted effects of settings on a kind of machine.

    It is 0 for settings that were measured on this kind, and for stacks with equal settings. For another, it is
    proportional to the effect, the predicted one or the usual one on the kinds where it was measured, and shrunk
    towards how much these differ.
    """

    def __init__(self, contrasts: Iterable[Contrast], kind: str, relative: float) -> None:
        """Create it.

        Args:
            contrasts: Contrasts of one framework on processors.
            kind: Kind of the machine that predictions are for.
            relative: The framework's discrepancy, as a share of the effects.
        """
        self._kind = kind
        self._relative = relative
        self._measured: dict[tuple[Program, Program], _Measured | None] = {}
        self._ratios = ratios_by_run(c for c in contrasts if c.family in (WHOLE_MODEL, BLOCK_OF_MODEL, BENCHMARK))

    def between(self, one: Program, other: Program, effect: float) -> float:
        """Return the standard deviation of the log ratio of two stacks on this kind of machine.

        Args:
            one: A stack.
            other: Another one.
            effect: The predicted log ratio.
        """
        if one[1] == other[1]:
            return 0.0
        key = min((one, other), (other, one))
        if key not in self._measured:
            self._measured[key] = self._measure(*key)
        measured = self._measured[key]
        if measured is None:
            return 0.0
        prior = self._relative**2 * max(effect**2, measured.squared_effect)
        total = _PRIOR_DEGREES * prior + measured.degrees * measured.spread
        return math.sqrt(max(0.0, total) / (_PRIOR_DEGREES + measured.degrees))

    def _measure(self, one: Program, other: Program) -> _Measured | None:
        """Return what was measured elsewhere; none if nothing was, or if this kind was measured."""
        effects: dict[str, dict[str, list[Ratio]]] = defaultdict(lambda: defaultdict(list))
        for (_, label, kind), ratio in effects_of(self._ratios, one, other):
            effects[label][kind].append(ratio)
        kinds = {kind for by_kind in effects.values() for kind in by_kind}
        if self._kind in kinds or not kinds:
            return None
        every = [ratio for by_kind in effects.values() for listed in by_kind.values() for ratio in listed]
        spreads = [_spread(by_kind.values()) for by_kind in effects.values() if len(by_kind) > 1]
        return _Measured(
            squared_effect=statistics.fmean(mean**2 - noise for mean, noise in every),
            spread=statistics.fmean(spreads or [0.0]),
            degrees=len(kinds) - 1 if spreads else 0,
        )


def _spread(kinds: Iterable[list[Ratio]]) -> float:
    """Return the variance of an effect between kinds of machines beyond the noise, which may be negative."""
    means, noises = [], []
    for listed in kinds:
        means.append(statistics.fmean(mean for mean, _ in listed))
        noises.append(statistics.fmean(noise for _, noise in listed) / len(listed))
    return statistics.variance(means) - statistics.fmean(noises)
