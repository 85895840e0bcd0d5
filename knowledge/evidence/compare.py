"""Paired comparison of stacks within a block (a randomised block design)."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.domain.observation import Observation
from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.evidence.conditions import differing_conditions
from knowledge.evidence.paired_ratio import Location, Prior, estimate_prior, locate, student_quantile, winsorised

WIDEST_FACTOR = 4.0
"""If the upper end of an interval is more than this many times its lower end, the comparison has no result."""
References = Mapping[tuple[str, str], int]
"""Arm that the other arms are compared with, by block and label of the indicator run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(WithRatio):
    """Speed of one arm of a block relative to the reference, at one indicator.

    Attributes:
        block: The block.
        indicator: Label of the indicator run.
        arm: The compared arm.
        observation: An observation of the arm, for stack, framework and hardware.
        reference: An observation of the reference.
        rounds: Number of rounds that both ran in.
        ratio: Reference seconds over the arm's: a trimmed mean over rounds of the logarithm. Its interval is Student's,
            corrected for the number of comparisons. Its variance is moderated by the variances of
            the other arms at this indicator.
        degrees: Degrees of freedom of the variance.
        of_medians: log(median of the reference's rounds / median of the arm's), over the same rounds.
        medians_error: Standard error of ``of_medians``. It is not paired, so it includes the drift of the machine.
        is_control: Whether arm and reference are the same stack with the same settings (an A/A comparison).
    """

    block: str
    indicator: str
    arm: int
    observation: Observation
    reference: Observation
    rounds: int
    ratio: Ratio
    degrees: float
    of_medians: float
    medians_error: float
    is_control: bool

    @property
    def conclusive(self) -> bool:
        """Whether there is a result: the rounds are numerous and quiet enough.

        The ends of the interval are within :data:`WIDEST_FACTOR` of each other, and the ratio agrees with the medians.
        """
        return 2 * self.ratio.half_width <= math.log(WIDEST_FACTOR) and self.agrees_with_medians

    @property
    def agrees_with_medians(self) -> bool:
        """Whether the ratio agrees with the medians, which tables print next to it.

        They may differ by the half-width of the interval plus three standard errors of the medians.
        """
        return abs(self.of_medians - self.ratio.mean) <= self.ratio.half_width + 3 * self.medians_error

    @property
    def significant(self) -> bool:
        """Whether there is a result and its interval excludes zero."""
        return self.conclusive and self.is_significant

    @property
    def normal_error(self) -> float:
        """Standard error of the normal distribution with the same 95 % interval.

        With few degrees of freedom, Student's interval is wider than a normal interval of the same standard error.
        """
        probability = 0.975
        return (
            self.ratio.deviation * student_quantile(probability, self.degrees) / student_quantile(probability, math.inf)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Rounds of an arm that are not compared with its reference.

    Attributes:
        block: The block.
        indicator: Label of the indicator run.
        arm: The arm.
        observation: An observation of the arm.
        reason: Conditions that differed between arm and reference.
        rounds: Number of these rounds.
    """

    block: str
    indicator: str
    arm: int
    observation: Observation
    reason: str
    rounds: int


def compare_block(
    observations: Iterable[Observation], *, confidence: float = 0.95, references: References | None = None
) -> tuple[Comparison, ...]:
    """Compare every arm of every block with its reference, paired by round.

    Drift of the machine affects reference and arm of one round equally, so their ratio does not depend on it. Rounds in
    which the two ran under unequal conditions are left out; :func:`refusals` returns them. A disturbance affects only
    one of the two, so the ratio is a trimmed mean of the log ratios of the rounds
    (:mod:`knowledge.evidence.paired_ratio`). Intervals are Student's with moderated variances
    (:mod:`knowledge.evidence.paired_ratio`), each widened for the number of comparisons in its block
    (Bonferroni), so that all of them hold together with the given confidence.

    Args:
        observations: Observations of any number of blocks; failed runs are ignored.
        confidence: Joint confidence of all intervals of a block.
        references: Arms to compare with, instead of the measured references.

    Returns:
        Comparisons in order of block, label and arm.
    """
    ratios = [(pair, logs) for pair in _pairs(observations, references) if len(logs := _log_ratios(pair)) > 1]
    located = [(pair, locate(logs), len(logs)) for pair, logs in ratios]
    per_block = Counter(pair[0][0] for pair, _, _ in located)
    priors = _priors([(pair[0], location) for pair, location, _ in located])
    return tuple(
        _compare(pair, location, rounds, priors[pair[0]], 1 - (1 - confidence) / per_block[pair[0][0]])
        for pair, location, rounds in located
    )


def refusals(observations: Iterable[Observation], *, references: References | None = None) -> tuple[Refusal, ...]:
    """Return the rounds in which arms ran under other conditions than their reference; they are not compared.

    ``references`` are arms to compare with, instead of the measured references.
    """
    refused = []
    for (block, label, arm), runs, reference in _pairs(observations, references):
        shared = sorted(set(runs) & set(reference))
        unequal = [r for r in shared if differing_conditions(runs[r], reference[r])]
        if unequal:
            reason = "; ".join(differing_conditions(runs[unequal[0]], reference[unequal[0]]))
            refused.append(
                Refusal(
                    block=block,
                    indicator=label,
                    arm=arm,
                    observation=runs[unequal[0]],
                    reason=reason,
                    rounds=len(unequal),
                )
            )
    return tuple(refused)


def common_shares(observations: Iterable[Observation]) -> dict[str, float]:
    """Return, by block, the share of a contrast's variance that all indicators of an arm have in common.

    One process runs all indicators of an arm in a round, so a disturbance of the process slows all of them, and the
    mean over indicators is less certain than with independent errors. The log ratios of each of n indicators are scaled
    to variance 1. Then the variance over rounds of their mean is (1 + (n - 1) share) / n, the intraclass correlation
    (Searle, Casella and McCulloch, Variance Components, 1992, section 3.6). It is pooled over the block's arms. Ratios
    are Winsorised first, as for the contrast itself.
    """
    ratios: dict[tuple[str, int], list[dict[int, float]]] = defaultdict(list)
    for pair in _pairs(observations):
        block, _, arm = pair[0]
        if len(shared := _shared_rounds(pair)) > _FEWEST_ROUNDS:
            ratios[block, arm].append(dict(zip(shared, _log_ratios(pair), strict=True)))
    shares: dict[str, list[float]] = defaultdict(list)
    for (block, _), rows in sorted(ratios.items()):
        rounds = sorted(set.intersection(*(set(row) for row in rows)))
        scaled = [values for row in rows if (values := _standardised([row[r] for r in rounds]))]
        if (count := len(scaled)) > 1:
            of_mean = statistics.variance([statistics.fmean(column) for column in zip(*scaled, strict=True)])
            shares[block].append((count * of_mean - 1) / (count - 1))
    return {block: min(_LARGEST_SHARE, max(0.0, statistics.fmean(values))) for block, values in shares.items()}


def _standardised(ratios: Sequence[float]) -> list[float]:
    """Return log ratios, Winsorised and scaled to variance 1; an empty list if they are too few or do not vary."""
    if len(ratios) <= _FEWEST_ROUNDS:
        return []
    clipped = winsorised(ratios, 1)
    deviation = statistics.stdev(clipped)
    return [value / deviation for value in clipped] if deviation > 0 else []


_Key = tuple[str, str, int]
"""Block, label of the indicator run, arm."""
_Pair = tuple[_Key, dict[int, Observation], dict[int, Observation]]
_FEWEST_ROUNDS = 3
_LARGEST_SHARE = 0.95


def measured_references(observations: Iterable[Observation]) -> dict[tuple[str, str], int]:
    """Return the arms that were measured as references, by block and label, where their runs succeeded."""
    return {(o.block, o.indicator.label): o.arm for o in observations if o.reference and o.status == "ok"}


def _pairs(observations: Iterable[Observation], references: References | None = None) -> list[_Pair]:
    """Return block, indicator and arm with the runs of the arm and of its reference, by round."""
    observations = tuple(observations)
    references = measured_references(observations) if references is None else references
    runs: dict[_Key, dict[int, Observation]] = defaultdict(dict)
    for o in observations:
        if o.status == "ok":
            runs[o.block, o.indicator.label, o.arm][o.round] = o
    return [
        (key, rounds, runs[key[0], key[1], references[key[0], key[1]]])
        for key, rounds in sorted(runs.items())
        if references.get((key[0], key[1]), key[2]) != key[2]
    ]


def _shared_rounds(pair: _Pair) -> list[int]:
    """Return the rounds in which arm and reference ran under equal conditions."""
    _, arm, reference = pair
    return [r for r in sorted(set(arm) & set(reference)) if not differing_conditions(arm[r], reference[r])]


def _log_ratios(pair: _Pair) -> list[float]:
    """Return log(reference seconds / arm seconds) of every round in which both ran under equal conditions."""
    _, arm, reference = pair
    return [math.log(_median(reference[r])) - math.log(_median(arm[r])) for r in _shared_rounds(pair)]


def _priors(located: Sequence[tuple[_Key, Location]]) -> dict[_Key, Prior]:
    """Return the prior of the variances of each indicator's arms.

    Other indicators are not used: in one block their variances differ by a factor of a hundred.
    """
    groups: dict[tuple[str, str], list[tuple[_Key, Location]]] = defaultdict(list)
    for key, location in located:
        groups[key[:2]].append((key, location))
    return {
        key: prior
        for group in groups.values()
        for prior in [estimate_prior([(location.variance, location.degrees) for _, location in group])]
        for key, _ in group
    }


def _compare(pair: _Pair, location: Location, rounds: int, prior: Prior, confidence: float) -> Comparison:
    key, arm, reference = pair
    variance, degrees = prior.moderate(location.variance, location.degrees)
    first, other = arm[min(arm)], reference[min(reference)]
    shared = _shared_rounds(pair)
    logs = [[math.log(_median(runs[r])) for r in shared] for runs in (reference, arm)]
    return Comparison(
        block=key[0],
        indicator=key[1],
        arm=key[2],
        observation=first,
        reference=other,
        rounds=rounds,
        ratio=Ratio(
            mean=location.value,
            variance=variance / rounds,
            quantile=student_quantile(1 - (1 - confidence) / 2, degrees),
        ),
        degrees=degrees,
        of_medians=statistics.median(logs[0]) - statistics.median(logs[1]),
        medians_error=math.sqrt(sum(locate(values).variance for values in logs) / rounds),
        is_control=first.stack.identity == other.stack.identity and dict(first.settings) == dict(other.settings),
    )


def _median(observation: Observation) -> float:
    median = observation.median
    assert median is not None
    return median
