"""Documented slow-downs in the score: weak evidence where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import count, interval_text, ratio_text
from advisor.resolve.score.costs import Candidates, Choice, Objective, PairedChoice, counted_steps
from knowledge.catalogue.entries import admits
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.ratio import MIN_GAIN, NO_GAIN, Ratio
from knowledge.estimate.interface import Estimator

FEWEST_PROGRAMS = 2
"""Fewest independent reports that say something about a program whose workload is not selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownScore:
    """What a documented slow-down costs in steps of speed, and a version without it gains; or why it costs nothing."""

    steps: int = 0
    gain: Ratio = NO_GAIN
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdowns:
    """The documented slow-downs on a target that count in the score: those of at least `min_gain`, as a fraction."""

    rules: RuleBook
    estimator: Estimator
    min_gain: float = MIN_GAIN

    def added_to(self, objective: Objective, candidates: Candidates) -> Objective:
        """Return the criterion speed with the documented slow-downs of the candidates.

        A slow-down that needs another package is a cost of pairs of versions, any other one a cost of versions.
        """
        costs: dict[Choice, int] = dict(objective.costs)
        pairs: dict[tuple[Choice, PairedChoice], int] = dict(objective.pairs)
        for rule in self.rules.slower:
            other = NormalizedName(rule.other)
            others = [(other, c.version) for c in candidates.get(other, ()) if admits(rule.other_versions, c.version)]
            names = [NormalizedName(name) for name in rule.packages]
            slow = [(n, c.version) for n in names for c in candidates.get(n, ()) if rule.concerns(n, c.version)]
            for choice in slow:
                if rule.other and not others:
                    continue
                steps = self.score(rule, *choice).steps
                if not rule.other:
                    costs[choice] = costs.get(choice, 0) + steps
                    continue
                for paired in others if steps else ():
                    pairs[choice, paired] = pairs.get((choice, paired), 0) + steps
        return replace(objective, costs=costs, pairs=pairs)

    def score(self, rule: SlowerRule, name: str, version: Version) -> SlowdownScore:
        """Return what a documented slow-down of one of its slow versions costs in the score."""
        share = self.estimator.time_share(name, rule.parts)
        if share is None:
            if not rule.whole:
                return SlowdownScore(reason="no workload is selected, and it is a slow-down of one operation")
            if len(rule.ratios) < FEWEST_PROGRAMS:
                return SlowdownScore(reason="no workload is selected, and it is the report of one program")
            share = 1.0
        if not share:
            return SlowdownScore(reason="it is not known to be a part of the workload")
        if self.estimator.has_compared(rule.measured_as or name, version, Version(rule.than)):
            return SlowdownScore(reason="both versions were measured on comparable hardware")
        gain = gain_without(rule, share)
        steps = counted_steps(gain, 1, self.min_gain)
        if steps <= 0:
            return SlowdownScore(reason="it is too small or too uncertain")
        return SlowdownScore(steps=steps, gain=gain)

    def gain(self, stack: Mapping[str, Version], before: Mapping[str, Version]) -> Ratio:
        """Return what a stack gains over another one by slow-downs that only one of them has, as they count."""
        own, avoided = (
            {(rule.id, name): self.score(rule, name, of[name]).gain for rule, name in self.rules.slowdowns_of(of)}
            for of in (stack, before)
        )
        total = NO_GAIN
        for key in sorted(own.keys() ^ avoided.keys()):
            total = total.times(avoided[key] if key in avoided else own[key].inverse())
        return total


def gain_without(rule: SlowerRule, share: float) -> Ratio:
    """Return the gain of a workload from a version without a documented slow-down.

    Of a workload whose part takes the share f (0 < f <= 1) of the time without the slow-down, a part that takes r times
    as long makes 1 + f (r - 1) times as much time. The variance follows from that of log r by the first derivative.
    """
    slower = 1 + share * (rule.ratio - 1)
    derivative = share * rule.ratio / slower
    return Ratio(mean=math.log(slower), variance=(derivative * rule.deviation) ** 2)


def slowdown_texts(
    versions: Mapping[str, Version], rules: RuleBook, *, scored: Slowdowns | None = None
) -> list[tuple[SlowerRule, str, str]]:
    """Return the documented slow-downs of a stack, each with the slow package and a sentence about it.

    The sentence says why the slow-down does not count, if `scored` is stated.
    """
    texts = []
    for rule, name in rules.slowdowns_of(versions):
        reason = scored.score(rule, name, versions[name]).reason if scored else ""
        text = f"{describe_slowdown(rule, versions, name)}{f' (not in the score: {reason})' if reason else ''}"
        texts.append((rule, name, text))
    return texts


def describe_slowdown(rule: SlowerRule, versions: Mapping[str, Version], name: str) -> str:
    """Return one sentence about a documented slow-down of a stack."""
    ratio = ratio_text(rule.reported_ratio, "time")
    with_other = f" with `{rule.other} {versions[rule.other]}`" if rule.other else ""
    text = (
        f"`{name} {versions[name]}`{with_other} is reported to take {ratio}x the time of {rule.than} "
        f"({count(len(rule.ratios), 'report')}): {rule.workload}"
    )
    if rule.reproduction is not None:
        text += f"; {reproduction_text(rule)}"
    if rule.fixed:
        text += f"; fixed in {rule.fixed}"
    if rule.workaround:
        text += f"; work-around: {rule.workaround}"
    return text


def reproduction_text(rule: SlowerRule) -> str:
    """Return what this program's own measurement of a documented slow-down gave."""
    measured = rule.reproduction
    if measured is None:
        return "not measured"
    confirmed = "confirmed" if measured.is_confirmed else "not confirmed"
    slow, fast = measured.versions
    program = f" with {measured.program}" if measured.program else ""
    return (
        f"{confirmed} by this program: {slow} takes {ratio_text(measured.ratio, 'time')}x the time of "
        f"{fast} {interval_text(measured, 'time')}{program} on {measured.machine}"
    )
