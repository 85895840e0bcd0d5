"""Which arm of an experiment to choose, and whether more measurements could change that.

The first arm is the reference: what the project would get without the experiment. An arm is dropped while the
reference, or an arm that is certainly faster than the reference, is certainly faster. The choice is certain once no arm
that is left can be faster than it by more than the tolerance.

All statements that something is certain hold together with about the confidence. A part of the error is for arms that
never ran, because it is too improbable that one of them is better. The rest is divided among the comparisons of the
true best arm with each other one (Bonferroni); the comparisons of other arms can do no harm.

While an experiment runs, another arm than the reference is chosen only if it is certainly faster. At its end there is
one more look, with intervals of Student's distribution: an arm may be chosen that is faster, although an interval that
holds at all times is too wide to say so. All in all, an arm that is not faster than the reference is chosen with at
most about one half of the error above, because only one side of the intervals matters, and that of the last look.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.experiment.belief import Belief
from advisor.experiment.paired_runs import Fit, PairedRuns
from knowledge.domain.ratio import CONFIDENCE, Ratio

_NEVER_RUN = 0.01
"""Probability that an arm which never ran is better than the choice by more than the tolerance."""
_LAST_LOOK = 0.02
"""Probability that the last look chooses an arm that is not faster than the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The state of an experiment after some rounds.

    Attributes:
        choice: The arm to choose now.
        open: By arm that may be faster than the choice by more than the tolerance: the largest logarithm of its speed
            over the choice's; infinite if they did not run together often enough.
        set_aside: Arms that never ran and are not open, because it is too improbable that they are better.
        ratio: Speed of the choice over the reference, if only the last look shows that it is faster.
    """

    choice: int
    open: Mapping[int, float]
    set_aside: frozenset[int] = frozenset()
    ratio: Ratio | None = None

    @property
    def is_certain(self) -> bool:
        """Whether no arm can be faster than the choice by more than the tolerance."""
        return not self.open


@dataclass
class Race:
    """Arms that run against each other until the choice is certain.

    Attributes:
        tolerance: Largest acceptable loss, as a logarithm of the speed.
        changes: The changes of each arm; the first one, the reference, has none. Arms are added at its end.
        most_arms: Largest number of arms that the experiment may compare.
        confidence: Probability that all statements of the experiment hold.
        runs: The runs.
        failed: Arms that failed.
        dropped: Arms that failed, or are certainly slower now than the reference or an arm that is certainly faster.
    """

    tolerance: float
    changes: Sequence[Sequence[object]]
    most_arms: int
    confidence: float = CONFIDENCE
    runs: PairedRuns = field(default_factory=PairedRuns)
    failed: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set, init=False)

    @property
    def error(self) -> float:
        """Probability that the comparison of two arms ever misses the truth."""
        return (1 - self.confidence - _NEVER_RUN) / max(1, self.most_arms - 1)

    def decide(self, belief: Belief) -> Decision:
        """Drop the arms that are certainly not the fastest, and return which one to choose now.

        Args:
            belief: What is expected of the arms, also of those that never ran.
        """
        fit = self.runs.fit()
        certain = self._certainly_faster(fit) - self.failed
        # Each time for all arms: what excluded one can fail later, or become uncertain by more noise.
        self.dropped = self.failed | self._excluded(fit, {0, *certain} - self.failed)
        alive = self._alive(belief)
        return self._decision(self._candidates(fit, alive, certain)[0], fit, belief, alive)

    def last_decision(self, belief: Belief) -> Decision:
        """Return which arm to choose when no more runs follow.

        Args:
            belief: What is expected of the arms, also of those that never ran.
        """
        decision, fit = self.decide(belief), self.runs.fit()
        if decision.is_certain:
            return decision
        alive, ratios, certain = self._alive(belief), self._faster_now(fit), self._certainly_faster(fit)
        candidates = self._candidates(fit, alive, certain)
        for arm in candidates[1:]:
            other = self._decision(arm, fit, belief, alive)
            if other.is_certain:
                return other
        choice = self._candidates(fit, alive, certain | ratios.keys(), incumbent=candidates[-1])[0]
        last = self._decision(choice, fit, belief, alive)
        if choice in (0, *certain):
            return last
        # The last look shows that the reference is slower.
        still_open = {arm: most for arm, most in last.open.items() if arm}
        return replace(last, open=still_open, ratio=ratios[choice])

    def _alive(self, belief: Belief) -> list[int]:
        return [arm for arm in range(len(belief.mean)) if arm not in self.dropped]

    def _faster_now(self, fit: Fit) -> dict[int, Ratio]:
        """Return the speeds over the reference of the arms that are faster for one look."""
        ratios = {arm: fit.ratio_now(arm, 0, error=_LAST_LOOK / (len(fit.arms) - 1)) for arm in fit.arms if arm}
        return {arm: ratio for arm, ratio in ratios.items() if ratio and ratio.low > 1}

    def _certainly_faster(self, fit: Fit) -> set[int]:
        """Return the arms that are certainly faster than the reference."""
        return {arm for arm in fit.arms if fit.difference(arm, 0) > fit.half_width(arm, 0, error=self.error)}

    def _candidates(
        self, fit: Fit, alive: Collection[int], faster: Collection[int], *, incumbent: int = 0
    ) -> list[int]:
        """Return the fastest arm, and arms with a part of its changes that seem slower by at most the tolerance.

        Args:
            fit: The speeds.
            alive: Arms that may be chosen.
            faster: Arms that are faster than the reference.
            incumbent: What counts as the fastest arm unless another one seems faster by more than the tolerance.

        Returns:
            Those with the fewest changes first.
        """
        fastest = max(set(faster) & set(alive), key=lambda arm: fit.difference(arm, 0), default=0)
        if incumbent in alive and fit.difference(fastest, incumbent) <= self.tolerance:
            fastest = incumbent
        parts = [
            arm
            for arm in alive
            if arm in (0, *faster)
            and set(self.changes[arm]) < set(self.changes[fastest])
            and fit.difference(fastest, arm) <= self.tolerance
        ]
        return [*sorted(parts, key=lambda arm: (len(self.changes[arm]), fit.difference(0, arm))), fastest]

    def _excluded(self, fit: Fit, faster: Collection[int]) -> set[int]:
        """Return the arms than which one of some others is certainly faster."""
        return {
            arm
            for arm in fit.arms
            if any(fit.difference(other, arm) > fit.half_width(other, arm, error=self.error) for other in faster)
        }

    def _decision(self, choice: int, fit: Fit, belief: Belief, alive: Collection[int]) -> Decision:
        open_arms, unlikely = {}, {}
        for arm in alive:
            if arm == choice:
                continue
            most = fit.difference(arm, choice) + fit.half_width(arm, choice, error=self.error)
            if most > self.tolerance:
                open_arms[arm] = most
            if arm not in fit.arms:
                unlikely[arm] = belief.probability_of_gain(arm, choice, self.tolerance)
        set_aside, total = set(), 0.0
        for arm, probability in sorted(unlikely.items(), key=lambda item: item[1]):
            total += probability
            if total > _NEVER_RUN:
                break
            set_aside.add(arm)
            open_arms.pop(arm, None)
        return Decision(choice=choice, open=open_arms, set_aside=frozenset(set_aside))

    def rounds_left(self, decision: Decision, counts: Mapping[int, int]) -> dict[int, int]:
        """Return about how many more rounds each open arm needs until it is certain whether it is better.

        An interval shrinks as one over the root of the number of rounds. An arm that may be equally fast needs an
        interval within the tolerance.
        """
        fit, needed = self.runs.fit(), {}
        for arm in decision.open:
            difference, number = fit.difference(arm, decision.choice), counts.get(arm, 0)
            half = fit.half_width(arm, decision.choice, error=self.error)
            margin = max(abs(difference), self.tolerance - difference, self.tolerance / 2)
            needed[arm] = 3 if not math.isfinite(half) else max(1, math.ceil(number * (half / margin) ** 2) - number)
        return needed
