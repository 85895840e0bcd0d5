"""Measures arms in rounds until the choice is certain, or the time is over.

It does not know what an arm is, or how it is measured: `python -m benchmarks.planner` runs it on simulated machines.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from advisor.experiment.belief import Belief, prior_belief
from advisor.experiment.change import Change
from advisor.experiment.decision import Decision, Race
from advisor.experiment.paired_runs import PairedRuns
from advisor.experiment.policy import Policy, Situation, expected_excess
from knowledge.domain.ratio import CONFIDENCE, Ratio

REFERENCE = 0
"""Number of the arm that the others are compared with."""
CONTROL = -1
"""Number of the reference in its second run of a round, which shows the noise (A/A)."""
_MOST_COMBINATIONS = 12
"""Combinations of changes that are added while an experiment runs."""
_MOST_UNTRIED = 6
"""Changes that are tried together with the choice at once."""
_FIRST_ROUNDS = 4
"""Rounds after which an arm can differ clearly from the choice."""
_FIRST_DEVIATION = 0.02
"""Standard deviation of a run's logarithm, until it is known from enough runs."""
_FEWEST_DEGREES = 3
_ROUNDS_WITH_REFERENCE = 3
"""Rounds of each arm that have the reference, also once that is certainly slower than another arm."""
_REFERENCE_INTERVAL = 4
"""Rounds from one run of such a reference to the next, so that the control (A/A) continues."""
_MOST_DISTURBED = 6
"""Disturbed runs one after the other after which an experiment gives up, or an arm of which no run counts."""
_PROBABLE_GAIN = 0.9
"""Probability of a gain from which on a change is combined with others."""
_POSSIBLE_GAIN = 0.1
"""Probability of a gain above the tolerance from which on an unclear change is tried together with the choice."""

Ending = Literal["certain", "time", "failed", "interrupted", "disturbed"]
"""Why an experiment ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """One run of an arm.

    Attributes:
        seconds: Its result in seconds, or what stands for seconds; ``None`` if it failed.
        failure: Why it failed.
        disturbance: Why its result says nothing about the arm, such as other load; empty if nothing is wrong.
        result: What the program computed, such as its loss; ``None`` if that is not known.
        is_untried: Whether a failure says nothing about the arm, because its program did not run.
    """

    seconds: float | None
    failure: str = ""
    disturbance: str = ""
    result: float | None = None
    is_untried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an experiment may do.

    Attributes:
        budget_seconds: Time until it ends.
        tolerance: Largest acceptable loss of the choice, as a fraction of the speed.
        confidence: Probability that a certain choice is within the tolerance of the best arm.
        policy: Which arms run in the next round.
    """

    budget_seconds: float
    tolerance: float = 0.02
    confidence: float = CONFIDENCE
    policy: Policy = expected_excess


class Laboratory(ABC):
    """Where the arms of an experiment run: a machine, several of a cluster, or a simulated one.

    Attributes:
        rounds_at_once: Number of rounds that run at the same time, each on a machine of its own.
    """

    rounds_at_once: int = 1

    @abstractmethod
    def run(self, round_number: int, arm: int) -> ArmRun:
        """Run an arm once."""

    def run_rounds(self, numbers: Sequence[int], arms: Sequence[int]) -> Iterable[tuple[int, int, ArmRun]]:
        """Run several rounds with the same arms at once; yield the runs with their rounds and arms."""
        return ((number, arm, self.run(number, arm)) for number in numbers for arm in arms)

    @abstractmethod
    def seconds_of(self, arm: int) -> float:
        """Return the expected duration of the next run of an arm, with the building of its environment."""

    def combine(self, changes: Sequence[Change]) -> bool:
        """Add an arm with several changes, and return whether there is such an arm; its number is the next one."""
        return False

    def earlier_runs(self, arm: int) -> Iterable[tuple[int, ArmRun]]:
        """Yield the runs of an arm in earlier experiments, each after the number of its round, which is negative."""
        return ()

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()


@dataclass
class Experiment:
    """Arms with what was measured of them so far.

    Attributes:
        plan: What the experiment may do.
        arms: The changes of each arm; the first one, the reference, has none.
        laboratory: Where they run.
        notify: Called before each run with its round and its arm.
        failures: Why arms failed.
        untried: Arms whose failure says nothing about them.
        disturbance: Why the last run that does not count does not.
        counts: Number of runs of each arm.
        controls: Runs of the reference and of its control (A/A).
        results: What the program computed in each run of an arm.
        ending: Why the experiment ended.
    """

    plan: Plan
    arms: list[tuple[Change, ...]]
    laboratory: Laboratory
    notify: Callable[[int, int], None] = lambda *_: None
    failures: dict[int, str] = field(default_factory=dict)
    untried: set[int] = field(default_factory=set)
    disturbance: str = ""
    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    controls: PairedRuns = field(default_factory=PairedRuns)
    results: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    ending: Ending = "time"

    def __post_init__(self) -> None:
        """Begin."""
        self.race = Race(
            tolerance=math.log1p(self.plan.tolerance),
            changes=self.arms,
            most_arms=len(self.arms) + _MOST_COMBINATIONS,
            confidence=self.plan.confidence,
        )
        self.rounds = 0
        # Combinations that are arms, or that no stack has.
        self._tried = {frozenset(changes) for changes in self.arms}
        self._disturbed = 0
        self._disturbed_by_arm: dict[int, int] = defaultdict(int)
        self.earlier_runs = sum(self._recall(arm) for arm in (*range(len(self.arms)), CONTROL))
        self._end = self.laboratory.now() + self.plan.budget_seconds
        self.decision = Decision(choice=REFERENCE, open={})

    def record(self, round_number: int, arm: int, run: ArmRun) -> None:
        """Take a run into account."""
        is_reference = arm in (REFERENCE, CONTROL)
        # A program that ran, and fails once with the same stack, was disturbed.
        has_run = is_reference and self.counts[REFERENCE] > 1
        if run.disturbance or (run.seconds is None and has_run):
            self.disturbance = run.disturbance or run.failure
            self._disturbed += 1
            self._disturbed_by_arm[arm] += 1
            if arm > REFERENCE and not self.counts[arm] and self._disturbed_by_arm[arm] >= _MOST_DISTURBED:
                self._fail(arm, f"none of its runs counts: {self.disturbance}", is_untried=True)
            return
        self._disturbed = 0
        if run.seconds is None:
            self._fail(max(arm, REFERENCE), run.failure, is_untried=run.is_untried)
            return
        if run.result is not None:
            self.results[max(arm, REFERENCE)].append(run.result)
        if is_reference:
            self.controls.add(round_number, arm, run.seconds)
        self.race.runs.add(round_number, max(arm, REFERENCE), run.seconds, is_second=arm == CONTROL)
        if arm != CONTROL:
            self.counts[arm] += 1

    def _fail(self, arm: int, failure: str, *, is_untried: bool) -> None:
        self.failures[arm] = failure
        self.race.failed.add(arm)
        if is_untried:
            self.untried.add(arm)

    def run(self) -> None:
        """Run rounds until the choice is certain, no arm is left, the time is over, or Ctrl-C."""
        try:
            while True:
                self.decision = self.race.decide(self.belief())
                if self._is_over() or not self._round():
                    break
        except KeyboardInterrupt:
            self.ending = "interrupted"
        self.decision = self.last_decision()

    def last_decision(self) -> Decision:
        """Return which arm to choose if the experiment ended now."""
        return self.race.last_decision(self.belief())

    def _is_over(self) -> bool:
        if REFERENCE in self.failures:
            self.ending = "failed"
            return True
        if not self.decision.is_certain or self.counts[REFERENCE] < 2:
            return False
        if not self._combine_gains() and not self._try_with_choice():
            self.ending = "certain"
            return True
        self.decision = self.race.decide(self.belief())
        return False

    def _round(self) -> bool:
        """Run the reference and the arms that the policy names; return whether the time was enough."""
        self._combine_gains()
        number = self.rounds
        arms = [arm for arm in self._next_arms() if arm not in {REFERENCE, *self.race.dropped}]
        if self.laboratory.rounds_at_once > 1:
            return self._rounds_at_once([REFERENCE, *arms, CONTROL])
        needs_reference = len(arms) < 2 or any(self.counts[arm] < _ROUNDS_WITH_REFERENCE for arm in (REFERENCE, *arms))
        if needs_reference or REFERENCE not in self.race.dropped or number % _REFERENCE_INTERVAL == 0:
            arms = [REFERENCE, *arms, *([CONTROL] if number % 2 == 0 else [])]
        # Each round begins with another arm, so that none always has the same place.
        shift = number % len(arms)
        for arm in (*arms[shift:], *arms[:shift]):
            needed = self.laboratory.seconds_of(max(arm, REFERENCE)) if self.counts[REFERENCE] else 0.0
            if self.laboratory.now() + needed > self._end:
                return False
            self.notify(number, arm)
            self.record(number, arm, self.laboratory.run(number, arm))
            if self._disturbed >= _MOST_DISTURBED:
                self.ending = "disturbed"
                return False
        self.rounds += 1
        return True

    def _rounds_at_once(self, arms: Sequence[int]) -> bool:
        """Run several rounds with the same arms at once, each on a machine; return whether the time was enough."""
        numbers = range(self.rounds, self.rounds + self.laboratory.rounds_at_once)
        seconds = (self.laboratory.seconds_of(max(arm, REFERENCE)) for arm in arms)
        needed = sum(seconds) if self.counts[REFERENCE] else 0.0
        if self.laboratory.now() + needed > self._end:
            return False
        for arm in arms:
            self.notify(numbers[0], arm)
        for number, arm, run in self.laboratory.run_rounds(numbers, arms):
            self.record(number, arm, run)
        self.rounds = numbers[-1] + 1
        return True

    def _next_arms(self) -> Sequence[int]:
        belief, choice = self.belief(), self.decision.choice
        seconds = {arm: self.laboratory.seconds_of(arm) for arm in range(len(self.arms))}
        seconds_left = self._end - self.laboratory.now() - seconds[REFERENCE] - seconds[choice]
        open_arms = [arm for arm in self.decision.open if arm not in self.race.dropped]
        open_arms = [arm for arm in open_arms if seconds[arm] <= seconds_left] or open_arms

        def ask(arms: Iterable[int]) -> Sequence[int]:
            situation = Situation(
                belief=belief,
                noise_variance=self.noise_variance,
                alive=sorted({choice, *arms}),
                choice=choice,
                seconds=seconds,
                tolerance=self.race.tolerance,
            )
            return self.plan.policy(situation)

        arms = ask(open_arms)
        # Settings with equal results come first: an arm of a later class lets one that never ran run instead.
        orders = {arm: self._order(arm) for arm in open_arms if not self.counts[arm]}
        first_class = [arm for arm, order in orders.items() if order == min(orders.values())]
        later_classes = orders.keys() - first_class
        if not later_classes & set(arms):
            return arms
        candidates = [*arms, *ask(first_class), *ask(set(open_arms) - later_classes)]
        return [*dict.fromkeys(arm for arm in candidates if arm not in later_classes)][: len(arms)]

    def _order(self, arm: int) -> int:
        return max((change.order for change in self.arms[arm]), default=0)

    def _combine_gains(self) -> bool:
        """Add the arm with all changes that probably gain, unless it exists; return whether one was added."""
        belief, best = self.belief(), dict[str, tuple[float, Change]]()
        runs: dict[Change, int] = defaultdict(int)
        for arm, changes in enumerate(self.arms):
            for change in changes:
                runs[change] += self.counts[arm]
        for arm, changes in self._single_changes():
            gain = float(belief.mean[arm])
            if runs[changes[0]] < 2 or gain <= self.race.tolerance / 2:
                continue
            if belief.probability_of_gain(arm, REFERENCE, 0.0) >= _PROBABLE_GAIN:
                best[changes[0].name] = max(best.get(changes[0].name, (0.0, changes[0])), (gain, changes[0]), key=_gain)
        joined = tuple(change for _, change in sorted(best.values(), key=_gain, reverse=True))
        return len(joined) > 1 and self._add(joined)

    def _try_with_choice(self) -> bool:
        """Add arms with the choice and a change that is too small alone, as the time allows; return whether one was."""
        choice, belief, added = self.decision.choice, self.belief(), False
        own, left = self.arms[choice], self._end - self.laboratory.now()
        names = {change.name for change in own}
        possible = {
            arm: belief.probability_of_gain(arm, REFERENCE, self.race.tolerance)
            for arm, changes in self._single_changes()
            if own and changes[0].name not in names
        }
        new = [arm for arm in possible if frozenset((*own, *self.arms[arm])) not in self._tried]
        for arm in sorted(new, key=lambda arm: possible[arm], reverse=True)[:_MOST_UNTRIED]:
            left -= self.laboratory.seconds_of(arm) + _FIRST_ROUNDS * self.laboratory.seconds_of(choice)
            if left > 0 and possible[arm] >= _POSSIBLE_GAIN:
                added = self._add((*own, *self.arms[arm])) or added
        return added

    def _single_changes(self) -> Iterator[tuple[int, tuple[Change, ...]]]:
        """Yield the arms with one change that did not fail."""
        return ((n, changes) for n, changes in enumerate(self.arms) if len(changes) == 1 and n not in self.failures)

    def _add(self, changes: tuple[Change, ...]) -> bool:
        """Add the arm with some changes, unless it exists; return whether it was added."""
        own = frozenset(changes)
        if own in self._tried or len(self.arms) >= self.race.most_arms:
            return False
        self._tried.add(own)
        if not self.laboratory.combine(changes):
            return False
        self.arms.append(changes)
        self._recall(len(self.arms) - 1)
        return True

    def _recall(self, arm: int) -> int:
        """Take the earlier runs of an arm into account, and return their number."""
        runs = [*self.laboratory.earlier_runs(arm)]
        for number, run in runs:
            self.record(number, arm, run)
        return len(runs)

    @property
    def noise(self) -> float | None:
        """Standard deviation of the logarithm of a run's seconds within a round; ``None`` before enough runs."""
        fit = self.race.runs.fit()
        return math.sqrt(fit.variance) if fit.degrees >= _FEWEST_DEGREES else None

    @property
    def noise_variance(self) -> float:
        """Variance that is expected of the logarithm of a run's seconds within a round."""
        return (self.noise or _FIRST_DEVIATION) ** 2

    def belief(self) -> Belief:
        """Return what is expected of the arms now."""
        return prior_belief(self.arms).after(self.race.runs.fit(), self.noise_variance)

    def ratio(self, arm: int, other: int = REFERENCE) -> Ratio | None:
        """Return the speed of an arm over that of another one, with an interval that holds at all times.

        ``None`` if they did not run together often enough.
        """
        return self.race.runs.fit().ratio(arm, other, error=self.race.error)

    def control_ratio(self) -> Ratio | None:
        """Return the speed of the reference over itself (A/A); ``None`` if it did not run twice in enough rounds."""
        return self.controls.fit().ratio(CONTROL, REFERENCE, error=1 - self.plan.confidence)

    def seconds_left(self) -> float:
        """Return about how long the experiment would take until the choice is certain."""
        needed = self.race.rounds_left(self.decision, self.counts)
        own = sum(rounds * self.laboratory.seconds_of(arm) for arm, rounds in needed.items())
        # Runs of the reference in a round, with its control.
        runs = 2.0
        if self.laboratory.rounds_at_once == 1:
            runs = 2 / _REFERENCE_INTERVAL if REFERENCE in self.race.dropped else 1.5
        both = self.laboratory.seconds_of(REFERENCE) * runs
        if self.decision.choice != REFERENCE:
            both += self.laboratory.seconds_of(self.decision.choice)
        return own + max(needed.values(), default=0) * both


def _gain(item: tuple[float, Change]) -> float:
    return item[0]
