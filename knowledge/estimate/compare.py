"""Paired comparison of stacks within a block (a randomised block design)."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from knowledge.domain.observation import Observation
from knowledge.estimate.conditions import differing_conditions
from knowledge.estimate.moderation import Prior, estimate_prior


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
        standard_error: Of the mean, moderated by what the spreads of the block's other slots say.
        degrees: Degrees of freedom of the standard error.
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
    degrees: float
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
        return self.standard_error * _student(1 - (1 - self.confidence) / 2, self.degrees)


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
    ran under unequal conditions are left out; :func:`refusals` tells which. Intervals are Student's over the rounds'
    log ratios with moderated variances (:mod:`knowledge.estimate.moderation`), each widened for the number of
    comparisons in its block (Bonferroni), so that all of them hold together with the given confidence.

    Args:
        observations: Of any number of blocks; failed ones are passed over.
        confidence: Of all intervals of a block together.
    """
    ratios = [(pair, found) for pair in _pairs(observations) if len(found := _log_ratios(pair)) > 1]
    per_block = Counter(pair[0][0] for pair, _ in ratios)
    priors = _priors([(pair[0], values) for pair, values in ratios])
    return tuple(
        _compare(pair, values, priors[pair[0]], 1 - (1 - confidence) / per_block[pair[0][0]]) for pair, values in ratios
    )


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


def common_errors(observations: Iterable[Observation]) -> dict[str, float]:
    """Return, by block, the standard error that all indicators of a slot have in common.

    One process runs all indicators of a slot and round, and what slows it down slows all of them. So the mean over
    indicators is less sure than independent errors would make it: its variance over rounds exceeds the mean variance of
    one indicator by their number; the excess is common (the between-groups estimate of a one-way random-effects model,
    Searle, Casella and McCulloch, Variance Components, 1992, section 3.6), pooled over the block's slots.
    """
    ratios: dict[tuple[str, int], list[dict[int, float]]] = defaultdict(list)
    for pair in _pairs(observations):
        (block, _, slot), runs, reference = pair
        shared = [r for r in sorted(set(runs) & set(reference)) if not differing_conditions(runs[r], reference[r])]
        if len(shared) > 1:
            ratios[block, slot].append({r: math.log(_median(reference[r]) / _median(runs[r])) for r in shared})
    excesses: dict[str, list[float]] = defaultdict(list)
    for (block, _), rows in sorted(ratios.items()):
        rounds = sorted(set.intersection(*(set(row) for row in rows)))
        if len(rows) > 1 and len(rounds) > 1:
            table = [[row[r] for r in rounds] for row in rows]
            of_mean = statistics.variance([statistics.fmean(column) for column in zip(*table, strict=True)])
            of_one = statistics.fmean(statistics.variance(row) for row in table)
            # Of independent rows, the variance of the mean is `of_one / n`: what is beyond is common.
            excesses[block].append((of_mean - of_one / len(rows)) * len(rows) / (len(rows) - 1) / len(rounds))
    return {block: math.sqrt(max(0.0, statistics.fmean(found))) for block, found in excesses.items()}


_Key = tuple[str, str, int]
"""Block, label of the indicator run, slot."""
_Pair = tuple[_Key, dict[int, Observation], dict[int, Observation]]
_ENOUGH_SLOTS = 6


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


def _log_ratios(pair: _Pair) -> list[float]:
    """Return log(reference seconds / slot seconds) of every round in which both ran under equal conditions."""
    _, slot, reference = pair
    shared = [r for r in sorted(set(slot) & set(reference)) if not differing_conditions(slot[r], reference[r])]
    return [math.log(_median(reference[r]) / _median(slot[r])) for r in shared]


def _priors(ratios: Sequence[tuple[_Key, list[float]]]) -> dict[_Key, Prior]:
    """Return what the spreads of an indicator's slots have in common; of the whole block where those are few."""
    groups: dict[tuple[str, ...], list[tuple[float, int]]] = defaultdict(list)
    for key, values in ratios:
        entry = statistics.variance(values), len(values) - 1
        groups[key[:1]].append(entry)
        groups[key[:2]].append(entry)
    estimated: dict[tuple[str, ...], Prior] = {}
    found: dict[_Key, Prior] = {}
    for key, _ in ratios:
        group = key[:2] if len(groups[key[:2]]) >= _ENOUGH_SLOTS else key[:1]
        if group not in estimated:
            estimated[group] = estimate_prior(groups[group])
        found[key] = estimated[group]
    return found


def _compare(pair: _Pair, ratios: list[float], prior: Prior, confidence: float) -> Comparison:
    key, slot, reference = pair
    variance, degrees = prior.moderate(statistics.variance(ratios), len(ratios) - 1)
    first, other = slot[min(slot)], reference[min(reference)]
    return Comparison(
        block=key[0],
        indicator=key[1],
        slot=key[2],
        observation=first,
        reference=other,
        rounds=len(ratios),
        mean=statistics.fmean(ratios),
        standard_error=math.sqrt(variance / len(ratios)),
        degrees=degrees,
        confidence=confidence,
        twin=first.stack.identity == other.stack.identity and dict(first.settings) == dict(other.settings),
    )


def _median(observation: Observation) -> float:
    median = observation.median
    assert median is not None
    return median


@cache
def _student(probability: float, degrees: float) -> float:
    """Quantile of Student's t distribution."""
    # Not `scipy.stats`, whose import alone costs a second; and only once an interval is asked for.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
