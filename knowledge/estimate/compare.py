"""Paired comparison of stacks within a block (a randomised block design)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from knowledge.domain.observation import Observation
from knowledge.estimate.conditions import differing_conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much faster one slot of a block is than the reference of its backend, for one indicator.

    Attributes:
        block: The block.
        indicator: Label of the indicator run.
        slot: The compared slot.
        observation: One of its observations, for stack, framework and hardware.
        reference: One of the reference's observations.
        rounds: How many rounds both ran in.
        mean: Mean over rounds of log(reference seconds / slot seconds); positive is faster.
        standard_error: Of the mean.
        confidence: Of the interval, corrected for the number of comparisons.
        twin: Whether slot and reference are the same stack with the same settings (an A/A comparison).
    """

    block: str
    indicator: str
    slot: int
    observation: Observation
    reference: Observation
    rounds: int
    mean: float
    standard_error: float
    confidence: float
    twin: bool

    @property
    def low(self) -> float:
        """Lower end of the interval of the mean."""
        return self.mean - self._half

    @property
    def high(self) -> float:
        """Upper end of the interval of the mean."""
        return self.mean + self._half

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0 <= self.high

    @property
    def _half(self) -> float:
        return self.standard_error * _student(1 - (1 - self.confidence) / 2, self.rounds - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A slot that is not compared with its reference.

    Attributes:
        block: The block.
        indicator: Label of the indicator run.
        slot: The slot.
        observation: One of its observations.
        reason: What differed between the two, beside stack and settings.
        rounds: In how many rounds.
    """

    block: str
    indicator: str
    slot: int
    observation: Observation
    reason: str
    rounds: int


def compare_block(observations: Iterable[Observation], *, confidence: float = 0.95) -> tuple[Comparison, ...]:
    """Compare every slot of every block with its reference, paired by round.

    Drift of the machine hits reference and slot of one round alike, so it leaves their ratio. Rounds in which the two
    ran under unequal conditions are left out; :func:`refusals` tells which. Intervals are Student's
    over the rounds' log ratios, each widened for the number of comparisons in its block (Bonferroni), so that all of
    them hold together with the given confidence.

    Args:
        observations: Of any number of blocks; failed ones are passed over.
        confidence: Of all intervals of a block together.
    """
    pairs = _pairs(observations)
    per_block: dict[str, int] = defaultdict(int)
    for (block, _, _), _, _ in pairs:
        per_block[block] += 1
    found = (_compare(key, a, b, 1 - (1 - confidence) / per_block[key[0]]) for key, a, b in pairs)
    return tuple(comparison for comparison in found if comparison is not None)


def refusals(observations: Iterable[Observation]) -> tuple[Refusal, ...]:
    """Return which slots ran under other conditions than their reference, and so are not compared in those rounds."""
    found = []
    for (block, label, slot), runs, reference in _pairs(observations):
        shared = sorted(set(runs) & set(reference))
        unequal = [r for r in shared if differing_conditions(runs[r], reference[r])]
        if unequal:
            reason = "; ".join(differing_conditions(runs[unequal[0]], reference[unequal[0]]))
            found.append(
                Refusal(
                    block=block,
                    indicator=label,
                    slot=slot,
                    observation=runs[unequal[0]],
                    reason=reason,
                    rounds=len(unequal),
                )
            )
    return tuple(found)


_Pair = tuple[tuple[str, str, int], dict[int, Observation], dict[int, Observation]]


def _pairs(observations: Iterable[Observation]) -> list[_Pair]:
    """Return block, indicator and slot with the runs of the slot and of its reference, by round."""
    seconds: dict[tuple[str, str, int], dict[int, Observation]] = defaultdict(dict)
    references: dict[tuple[str, str], int] = {}
    for o in observations:
        if o.status == "ok":
            seconds[o.block, o.indicator.label, o.slot][o.round] = o
            if o.reference:
                references[o.block, o.indicator.label] = o.slot
    return [
        (key, rounds, seconds[key[0], key[1], references[key[0], key[1]]])
        for key, rounds in sorted(seconds.items())
        if references.get((key[0], key[1]), key[2]) != key[2]
    ]


def _compare(
    key: tuple[str, str, int], slot: dict[int, Observation], reference: dict[int, Observation], confidence: float
) -> Comparison | None:
    shared = [r for r in sorted(set(slot) & set(reference)) if not differing_conditions(slot[r], reference[r])]
    if len(shared) < 2:
        return None
    ratios = [math.log(_median(reference[r]) / _median(slot[r])) for r in shared]
    mean = statistics.fmean(ratios)
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
    first, other = slot[shared[0]], reference[shared[0]]
    return Comparison(
        block=key[0],
        indicator=key[1],
        slot=key[2],
        observation=first,
        reference=other,
        rounds=len(shared),
        mean=mean,
        standard_error=error,
        confidence=confidence,
        twin=first.stack.identity == other.stack.identity and dict(first.settings) == dict(other.settings),
    )


def _median(observation: Observation) -> float:
    median = observation.median
    assert median is not None
    return median


@cache
def _student(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution."""
    # Not `scipy.stats`, whose import alone costs a second; and only once an interval is asked for.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
