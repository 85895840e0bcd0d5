"""Which differences between a good and a bad stack make a program slower, or make it fail.

It is the isolation of differences of A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
IEEE Transactions on Software Engineering 28(2), 2002, doi:10.1109/32.988498, for losses that add up. Between the good
and the bad stack lies a path of stacks, each with one difference more. The losses of its steps sum up to the whole
loss, whether the differences interact or not. So a part of the path that is certainly slower at its end than at its
beginning is divided, and the other parts are left alone: with `k` culprits among `n` differences about `k log2(n)`
stacks are built, and no number of culprits is assumed. At the end, the bad stack without the culprits is measured. If
it is still slower, the path to it is searched again: then differences hid each other.

A failure is isolated in the same way. A stack that cannot be built or that fails in another way than the bad one is
unresolved, as in delta debugging: the path is divided at another stack. A failure counts only if the good stack runs
after it: otherwise the machine fails, not the stack.

All statements hold together with about the confidence, at every moment (:mod:`advisor.experiment.paired_runs`), also
those of several searches. `python -m benchmarks.bisection` compares this with other methods.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from advisor.experiment.experiment import CONTROL, ArmRun, Laboratory
from advisor.experiment.paired_runs import PairedRuns
from knowledge.domain.ratio import CONFIDENCE, Ratio

Combination = frozenset[int]
"""A stack between the two: the numbers of the differences that are as in the bad stack."""
GOOD: Combination = frozenset()
_MOST_DISTURBED = 6
"""Disturbed runs one after the other after which a bisection gives up."""
_MOST_SEARCHES = 5
"""Searches of a path, each of which may find culprits that others hid."""
_FIRST_ROUNDS = 4
"""Expected number of rounds of a comparison, as long as its noise is not known."""

Verdict = Literal["slower", "equal", "faster", "failing", "open"]
"""What is certain about the bad stack compared with the good one."""
Ending = Literal["complete", "time", "good-failed", "interrupted", "disturbed"]
"""Why a bisection ended."""


class PathSection(NamedTuple):
    """A part of a path: from a combination to one with further differences."""

    low: Combination
    high: Combination

    @property
    def differences(self) -> Combination:
        """The differences between its ends."""
        return self.high - self.low


class _EndedError(Exception):
    """Raised when the good stack fails, the next run would exceed the budget, or too many runs were disturbed."""


@dataclass
class Bisection:
    """The differences between a good and a bad stack, with what was measured so far.

    Attributes:
        needs: For each difference, the earlier ones that it needs: it cannot be as in the bad stack without them.
        laboratory: Where combinations run; its arm 0 is the good stack.
        add: Makes a combination the next arm of the laboratory.
        budget_seconds: Time until it ends.
        tolerance: Loss of speed that does not matter, as a fraction.
        confidence: Probability that all statements hold.
        explains: Whether a loss or a failure is explained; else it ends once the two stacks are compared.
        notify: Called before each run with the round and the combination; ``None`` stands for the control.
        runs: The runs.
        controls: Runs of the good stack and of its control (A/A).
        failures: Why combinations failed, each twice.
        last_failures: Why combinations failed in their last run.
        culprits: Parts of paths that explain the loss, each of one difference, unless none in between could run.
        without: The bad stack without the culprits, once it is known.
        verdict: What is certain about the bad stack.
        ending: Why it ended.
        is_recovered: Whether the bad stack without the culprits is as fast as the good one; ``None`` if not certain.
    """

    needs: Sequence[Combination]
    laboratory: Laboratory
    add: Callable[[Combination], None]
    budget_seconds: float
    tolerance: float = 0.02
    confidence: float = CONFIDENCE
    explains: bool = True
    notify: Callable[[int, Combination | None], None] = lambda *_: None
    runs: PairedRuns = field(default_factory=PairedRuns)
    controls: PairedRuns = field(default_factory=PairedRuns)
    failures: dict[Combination, str] = field(default_factory=dict)
    last_failures: dict[Combination, str] = field(default_factory=dict)
    culprits: list[PathSection] = field(default_factory=list)
    without: Combination | None = None
    verdict: Verdict = "open"
    ending: Ending = "time"
    is_recovered: bool | None = None

    def __post_init__(self) -> None:
        """Begin."""
        self.bad: Combination = frozenset(range(len(self.needs)))
        self.rounds = 0
        self.counts: dict[Combination, int] = defaultdict(int)
        self._numbers: dict[Combination, int] = {}
        self._open: tuple[PathSection, ...] = ()
        self._disturbed = 0
        self._search = 0
        self._end = self.laboratory.now() + self.budget_seconds
        self.earlier_runs = 0
        self.earlier_rounds: set[int] = set()
        for combination in self.whole:
            self._number(combination)

    @property
    def whole(self) -> PathSection:
        """The path from the good stack to the bad one."""
        return PathSection(GOOD, self.bad)

    def _number(self, combination: Combination) -> int:
        """Return the number of a combination among those that were needed so far; that of the good stack is 0.

        Its runs in earlier experiments are taken into account.
        """
        if combination not in self._numbers:
            own = self._numbers[combination] = len(self._numbers)
            self.add(combination)
            for arm in (own, CONTROL) if combination == GOOD else (own,):
                for number, run in self.laboratory.earlier_runs(arm):
                    self._record(number, combination, run, is_control=arm == CONTROL)
                    self.earlier_runs += 1
                    self.earlier_rounds.add(number)
        return self._numbers[combination]

    def _record(self, round_number: int, combination: Combination, run: ArmRun, *, is_control: bool) -> None:
        if run.seconds is None:
            return
        if combination == GOOD:
            self.controls.add(round_number, CONTROL if is_control else 0, run.seconds)
        self.runs.add(round_number, self._number(combination), run.seconds, is_second=is_control)
        if not is_control:
            self.counts[combination] += 1

    def run(self) -> None:
        """Measure until the loss is explained, the time is over, or Ctrl-C."""
        try:
            with suppress(_EndedError):
                self._run()
        except KeyboardInterrupt:
            self.ending = "interrupted"

    def _run(self) -> None:
        self.verdict = self.compare(self.whole)
        if self.verdict == "failing" and self.explains:
            self._isolate(self._search_failure)
        elif self.verdict == "slower" and self.explains:
            self._isolate(self._search_loss)
        self.ending = "complete"

    def _isolate(self, search: Callable[[PathSection], None]) -> None:
        """Search the path to the bad stack, then those to the bad stack without the culprits, until it recovers."""
        high = self.bad
        for self._search in range(_MOST_SEARCHES):
            earlier = len(self.culprits)
            search(PathSection(GOOD, high))
            self.without = high = self.without_culprits()
            self.is_recovered = self._recovers(high) if self.culprits else False
            if self.is_recovered or len(self.culprits) == earlier:
                return

    def _recovers(self, without: Combination) -> bool | None:
        """Return whether a stack is as fast as the good one, or runs; ``None`` if that is not certain."""
        if self.verdict == "failing":
            return not self._fails(without)
        if without == GOOD:
            return True
        verdict = self.compare(PathSection(GOOD, without))
        return None if verdict == "failing" else verdict in ("equal", "faster")

    def without_culprits(self) -> Combination:
        """Return the bad stack without the culprits, and without the differences that need them."""
        removed = frozenset().union(*(part.differences for part in self.culprits))
        present: set[int] = set()
        for difference in sorted(self.bad - removed):
            if self.needs[difference] <= present:
                present.add(difference)
        return frozenset(present)

    def _middles(self, part: PathSection, unusable: Container[Combination]) -> Iterator[Combination]:
        """Yield the usable combinations between the ends of a part, those in the middle first."""
        order = sorted(part.differences)
        for size in sorted(range(1, len(order)), key=lambda size: abs(2 * size - len(order))):
            middle = part.low | frozenset(order[:size])
            if middle not in unusable:
                yield middle

    # Speed

    def compare(self, part: PathSection) -> Verdict:
        """Measure the ends of a part until their difference is certain."""
        while (verdict := self.verdict_of(part)) == "open":
            self._round((part,))
        return verdict

    def verdict_of(self, part: PathSection) -> Verdict:
        """Return what is certain about the end of a part compared with its beginning."""
        if self.failures.keys() & set(part):
            return "failing"
        loss, half = self._loss(part)
        tolerance = math.log1p(self.tolerance)
        if abs(loss) + half < tolerance:
            return "equal"
        # Of a loss that is about half the tolerance, either may be said: each takes few rounds.
        if loss - half > 0 and loss > tolerance / 2:
            return "slower"
        return "faster" if loss + half < 0 and -loss > tolerance / 2 else "open"

    def _loss(self, part: PathSection) -> tuple[float, float]:
        """Return the logarithm of the slow-down over a part, and half its interval."""
        # Earlier runs of a new combination come first.
        low, high = map(self._number, part)
        fit = self.runs.fit()
        return fit.difference(low, high), fit.half_width(low, high, error=self.error)

    @property
    def error(self) -> float:
        """Probability that one of the comparisons of the current search ever misses the truth.

        The shares of the searches, 3/4, 3/16 and so on, add up to 1. A search compares the whole path, the parts of a
        binary tree (a part whose middle fails is not compared), and stacks without some of the culprits.
        """
        return (1 - self.confidence) * 3 * 0.25 ** (self._search + 1) / (3 * len(self.needs) + 2)

    def _search_loss(self, whole: PathSection) -> None:
        """Find the parts of one difference that are certainly slower at their end than at their beginning."""
        earlier, slower = len(self.culprits), [whole]
        # The halves that are not decided yet, with the part that they divide and its middle.
        halves: dict[PathSection, tuple[PathSection, Combination]] = {}
        while slower or halves:
            for part in slower:
                middle = next(self._middles(part, self.failures), None)
                if middle is None:
                    self.culprits.append(part)
                else:
                    halves[PathSection(part.low, middle)] = halves[PathSection(middle, part.high)] = part, middle
            # What earlier runs decide needs no round; a part whose middle fails is divided at another one.
            again = {half: part for half, (part, middle) in halves.items() if middle in self.failures}
            verdicts = {half: self.verdict_of(half) for half in halves if half not in again}
            slower = [*dict.fromkeys(again.get(h, h) for h in halves if h in again or verdicts[h] == "slower")]
            halves = {half: division for half, division in halves.items() if verdicts.get(half) == "open"}
            if halves and not slower:
                sections = [*halves]
                if rest := self._rest(whole, self.culprits[earlier:]):
                    if self.verdict_of(rest) in ("equal", "faster"):
                        return
                    sections.append(rest)
                self._round(sections)

    def _rest(self, whole: PathSection, culprits: Sequence[PathSection]) -> PathSection | None:
        """Return a path without its culprits if they seem to explain its whole loss: then nothing else matters."""
        fit = self.runs.fit()
        losses = [fit.difference(*map(self._number, section)) for section in (whole, *culprits)]
        if not culprits or abs(losses[0] - sum(losses[1:])) > math.log1p(self.tolerance):
            return None
        return PathSection(GOOD, self.without_culprits())

    def _round(self, parts: Sequence[PathSection]) -> None:
        """Run the ends of parts once each, in every second round also the control."""
        self._open = tuple(parts)
        combinations: list[Combination | None] = [*dict.fromkeys(end for part in parts for end in part)]
        if GOOD in combinations and self.rounds % 2:
            combinations.append(None)
        # Each round begins with another combination, so that none always has the same place.
        shift = self.rounds % len(combinations)
        for combination in (*combinations[shift:], *combinations[:shift]):
            self._measure(combination)
        self.rounds += 1

    # Failures

    def _fails(self, combination: Combination) -> bool:
        """Return whether a combination fails, twice; it runs unless that is known."""
        self._number(combination)
        if not self.counts[combination] and combination not in self.failures:
            self._measure(combination)
            self.rounds += 1
        return combination in self.failures

    def _search_failure(self, part: PathSection) -> None:
        """Find the part of one difference whose end fails as the bad stack, while its beginning does not."""
        unresolved: set[Combination] = set()
        failure = self.failures[part.high]
        while middle := next(self._middles(part, unresolved), None):
            self._open = (part,)
            if not self._fails(middle):
                part = PathSection(middle, part.high)
            elif is_same_failure(self.failures[middle], failure):
                part = PathSection(part.low, middle)
            else:
                unresolved.add(middle)
        self.culprits.append(part)

    # Runs

    def _measure(self, combination: Combination | None) -> None:
        """Run a combination, or the control; its failure counts if the good stack still runs."""
        stack = GOOD if combination is None else combination
        if stack in self.failures:
            return
        run = self._run_twice(combination)
        if run.seconds is not None:
            self._record(self.rounds, stack, run, is_control=combination is None)
            return
        # A full disk or a lost network says nothing about the stack.
        check = run if stack == GOOD else self._run_twice(GOOD)
        if check.seconds is None:
            self.failures[GOOD], self.ending = check.failure, "good-failed"
            raise _EndedError
        self.failures[stack] = run.failure

    def _run_twice(self, combination: Combination | None) -> ArmRun:
        """Run a combination, or the control; a failure is repeated once to be sure."""
        run = self._quiet_run(combination)
        return run if run.seconds is not None else self._quiet_run(combination)

    def _quiet_run(self, combination: Combination | None) -> ArmRun:
        stack = GOOD if combination is None else combination
        while True:
            arm = self._number(stack)
            needed = self.laboratory.seconds_of(arm) if self.counts[GOOD] else 0.0
            if self.laboratory.now() + needed > self._end:
                self.ending = "time"
                raise _EndedError
            self.notify(self.rounds, combination)
            run = self.laboratory.run(self.rounds, CONTROL if combination is None else arm)
            if not run.disturbance:
                self._disturbed = 0
                self.last_failures.pop(stack, None)
                if run.seconds is None:
                    self.last_failures[stack] = run.failure
                return run
            self._disturbed += 1
            if self._disturbed >= _MOST_DISTURBED:
                self.ending = "disturbed"
                raise _EndedError

    # What is known

    def slowdown(self, part: PathSection) -> Ratio | None:
        """Return the time at the end of a part over that at its beginning; ``None`` before it is known."""
        low, high = map(self._number, part)
        return self.runs.fit().ratio(low, high, error=self.error)

    def control_ratio(self) -> Ratio | None:
        """Return the speed of the good stack over itself (A/A); ``None`` if it did not run twice often enough."""
        return self.controls.fit().ratio(CONTROL, 0, error=1 - self.confidence)

    def seconds_left(self) -> float:
        """Return about how long it would take until the loss is explained."""
        return sum(map(self._seconds_left, self._open or (self.whole,)))

    def _seconds_left(self, part: PathSection) -> float:
        loss, half = self._loss(part)
        number, rounds = min(self.counts[part.low], self.counts[part.high]), _FIRST_ROUNDS
        tolerance = math.log1p(self.tolerance)
        if math.isfinite(half):
            margin = max(abs(loss), tolerance - abs(loss), tolerance / 2)
            rounds = max(1, math.ceil(number * (half / margin) ** 2) - number)
        seconds = sum(self.laboratory.seconds_of(self._number(end)) for end in part)
        return rounds * seconds * (1 + math.log2(max(1, len(part.differences))))


def is_same_failure(failure: str, other: str) -> bool:
    """Return whether two failures have the same message, whatever numbers and addresses it has."""
    own, others = (re.sub(r"0x[0-9a-fA-F]+|[0-9]+(\.[0-9]+)?", "0", text) for text in (failure, other))
    return own == others
