"""Measure which differences between two stacks make the program of a project slower, or make it fail."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from advisor.api.measurements.benchmark import open_machine
from advisor.api.measurements.laboratory import (
    MachineLaboratory,
    earlier_rounds,
    experiment_block,
    interpreter_here,
    only_experiment,
)
from advisor.api.measurements.measured_program import measured_program
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.measurements.stack_ends import StackEnds
from advisor.api.options import ProjectOptions
from advisor.api.stores import open_writable_store
from advisor.domain.progress import activity
from advisor.experiment.bisection import GOOD, Bisection, Combination, PathSection, is_same_failure
from advisor.experiment.stack_pair import StackDifference, StackEnd, StackPair
from advisor.locks.lock import Lock
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.ratio import Ratio

FEWEST_RUNS = 12
"""Runs in which two stacks can differ clearly: the first ones, and three rounds with the control."""
Notify = Callable[["ProjectBisection", int, Combination | None], None]
"""Called before each run with the measurement, the round and the combination; none is the control."""
_MOST_SHARES = 1.1
"""Largest sum of the culprits' shares in the loss that noise explains."""
_SLOWEST = 20.0
"""Duration of a run over that of the good stack, from which on it is killed: it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What explains a part of the loss, or a failure.

    Attributes:
        differences: Differences that change together.
        slowdown: Time with them over the time without them; ``None`` for a failure.
        share: Their share of the whole loss, of logarithms; ``None`` for a failure. The sum of the shares is above 1 if
            other differences make the program faster, or if culprits hide each other.
    """

    differences: tuple[StackDifference, ...]
    slowdown: Ratio | None
    share: float | None


@dataclass(kw_only=True)
class ProjectBisection:
    """A bisection of two stacks of a project: what was measured so far, and what it says.

    Attributes:
        pair: The two stacks.
        machine: Where they run.
        bisection: Which stacks run next, and what is certain.
        minutes: Time that it took, with that of earlier bisections that counts.
        is_verdict: Whether it is the comparison for a verdict, whose options have other names.
    """

    pair: StackPair
    machine: MachineLaboratory
    bisection: Bisection
    minutes: float = 0.0
    is_verdict: bool = False

    def run(self, notify: Callable[[int, Combination | None], None]) -> None:
        """Measure until the loss is explained, the time is over, or Ctrl-C.

        Args:
            notify: Called before each run with the round and the combination; ``None`` stands for the control.

        Raises:
            InputError: If the good stack fails before anything is certain, an end exceeds a limit, or the budget is too
                small.
            UnavailableError: If the machine is disturbed all the time.
        """
        started = time.monotonic()
        if not self.pair.groups:
            self.bisection.verdict, self.bisection.ending = "equal", "complete"
            return
        for arm, end in enumerate((self.pair.good, self.pair.bad)):
            self.machine.check_limits(arm, f"`{end.name}`")
        self.bisection.notify = notify
        self.bisection.run()
        self._check_ending()
        self.minutes = (time.monotonic() - started + self.machine.recalled_seconds) / 60

    def label(self, combination: Combination | None) -> str:
        """Return what a combination is, in a few words; ``None`` stands for the control."""
        if combination is None:
            return "good again (A/A)"
        if combination in (GOOD, self.bisection.bad):
            return "bad" if combination else "good"
        return f"good with {len(combination)} of {len(self.bisection.bad)} differences"

    @property
    def _budget_option(self) -> str:
        return "--measure" if self.is_verdict else "--budget"

    def _check_ending(self) -> None:
        bisection, machine = self.bisection, self.machine
        if bisection.verdict != "open":
            return
        if bisection.ending == "disturbed" and bisection.counts[GOOD] < 2 and machine.disturbance:
            raise UnavailableError(
                f"the machine is not quiet: {machine.disturbance.reason}", hint=machine.disturbance.remedy
            )
        self._check_failing_bad()
        has_both = bisection.counts[GOOD] > 1 and bisection.counts[bisection.bad] > 0
        is_early = bisection.ending == "time" and not has_both
        if is_early or (bisection.ending == "good-failed" and machine.is_over_time):
            good, bad, budget = machine.seconds_of(0), machine.seconds_of(1), bisection.budget_seconds
            least = math.ceil((bad + max(good, budget / 2 if machine.is_over_time else 0) * FEWEST_RUNS) / 60)
            takes = "one run takes longer"
            if not machine.is_over_time:
                # The next run may build an environment, so later ones can be faster.
                takes = f"{FEWEST_RUNS} runs are needed; the next takes {good:.1f} s (good) or {bad:.1f} s (bad)"
            raise InputError(
                f"the budget of {budget:g} s is too small: {takes}",
                hint=f"two stacks need at least about `{self._budget_option} {least}m`; a smaller benchmark needs less",
            )
        if bisection.ending == "good-failed":
            other = "" if self.is_verdict else "name a stack with which it runs as `--good`; "
            raise InputError(
                f"the program fails with the good stack, `{self.pair.good.name}`: {bisection.failures[GOOD]}",
                hint=f"{other}the copy of the project has only files that git does not ignore",
            )

    def _check_failing_bad(self) -> None:
        """Refuse a budget that ended before the failure of the bad stack was certain."""
        bisection = self.bisection
        failure = bisection.last_failures.get(bisection.bad)
        if bisection.ending != "time" or failure is None or bisection.counts[bisection.bad]:
            return
        failing_runs = 2 * (math.log2(len(self.pair.groups) + 1) + 1)
        least = math.ceil(failing_runs * self.machine.timeout_seconds(1, is_first=True) / 60)
        raise InputError(
            f"the budget of {bisection.budget_seconds:g} s is too small: the program fails with the bad stack, "
            f"`{self.pair.bad.name}`: {failure}",
            hint=f"it needs up to `{self._budget_option} {least}m` if every failing run hangs",
        )

    @property
    def has_loss(self) -> bool:
        """Whether the bad stack is certainly slower, or fails."""
        return self.bisection.verdict in ("slower", "failing")

    @property
    def failure(self) -> str:
        """How the bad stack fails; empty if that is not the verdict."""
        return self.bisection.failures[self.bisection.bad] if self.bisection.verdict == "failing" else ""

    @property
    def slowdown(self) -> Ratio | None:
        """Time of the bad stack over that of the good one; ``None`` if it is not known."""
        return self._slowdown(self.bisection.whole)

    @property
    def remaining(self) -> Ratio | None:
        """Time of the bad stack without culprits and dependents over that of the good one; ``None`` if not measured."""
        without = self.bisection.without
        return None if without is None else self._slowdown(PathSection(GOOD, without))

    def _slowdown(self, section: PathSection) -> Ratio | None:
        return None if self.bisection.verdict == "failing" else self.bisection.slowdown(section)

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """What explains the loss, the largest part first."""
        whole = self.slowdown
        culprits = [
            Culprit(
                differences=self.pair.differences_in(section.differences),
                slowdown=own,
                share=own.mean / whole.mean if own and whole else None,
            )
            for section in self.bisection.culprits
            for own in (self._slowdown(section),)
        ]
        return tuple(sorted(culprits, key=lambda c: -c.slowdown.mean if c.slowdown else 0.0))

    @property
    def has_shares(self) -> bool:
        """Whether the culprits' losses can be parts of the whole; noise makes their sum a little larger."""
        return sum(culprit.share or 0.0 for culprit in self.culprits) <= _MOST_SHARES

    @property
    def exceeds_loss(self) -> bool:
        """Whether the culprits' losses are certainly larger than the whole."""
        whole, losses = self.slowdown, [c.slowdown for c in self.culprits if c.slowdown]
        least = sum(own.mean - own.half_width for own in losses)
        return whole is not None and least > whole.mean + whole.half_width

    @property
    def recovery(self) -> tuple[StackDifference, ...]:
        """What must be as in the good stack: the culprits, and the differences that need one of them."""
        return (*(d for culprit in self.culprits for d in culprit.differences), *self.dependents)

    @property
    def dependents(self) -> tuple[StackDifference, ...]:
        """Further differences that must be as in the good stack, because they need a culprit."""
        explained = frozenset().union(*(section.differences for section in self.bisection.culprits))
        return self.pair.differences_in(self.bisection.bad - self.bisection.without_culprits() - explained)

    @property
    def pins(self) -> tuple[str, ...]:
        """Requirements and settings with which the bad stack recovers."""
        return tuple(difference.pin for difference in self.recovery if difference.pin)

    @property
    def unresolved(self) -> tuple[tuple[str, str], ...]:
        """Stacks whose failures are not explained, each with the failure: good, and those that fail in another way."""
        is_failing, failures = self.bisection.verdict == "failing", self.bisection.failures
        return tuple(
            (self.pair.name(combination), failure)
            for combination, failure in failures.items()
            if combination == GOOD or not (is_failing and is_same_failure(failure, self.failure))
        )

    @property
    def unconfirmed(self) -> tuple[tuple[str, str], ...]:
        """Stacks whose last run failed, each with the failure, which is not certain yet."""
        failures = self.bisection.last_failures.items() - self.bisection.failures.items()
        return tuple(sorted((self.pair.name(combination), failure) for combination, failure in failures))

    @property
    def rounds(self) -> int:
        """Number of rounds, with those of earlier bisections that count."""
        return self.bisection.rounds + len(self.bisection.earlier_rounds)

    @property
    def combinations(self) -> int:
        """Number of stacks that ran."""
        return len({*(c for c, runs in self.bisection.counts.items() if runs), *self.bisection.failures})

    @property
    def minutes_left(self) -> float:
        """About how long it would still take; 0 if it is complete."""
        if self.bisection.ending == "complete":
            return 0.0
        # A stack that hangs does it twice.
        failing = 2 * len(self.unconfirmed) * self.machine.timeout_seconds(1, is_first=True)
        return (self.bisection.seconds_left() + failing) / 60

    @property
    def disturbance(self) -> str:
        """What disturbed runs, which were repeated; empty if nothing did."""
        return self.machine.disturbance.reason if self.machine.disturbance else ""


@contextmanager
def open_bisection(
    options: ProjectOptions, limits: ExperimentOptions, *, good: str, bad: str | None
) -> Iterator[ProjectBisection]:
    """Prepare a bisection of two stacks; the copy of the project and its indexes exist until the end of the block.

    Args:
        options: The project and its indexes.
        limits: Time, tolerance and further limits.
        good: A lock, a commit or a date.
        bad: The same; by default the project's lock.

    Raises:
        InputError: If the project has nothing to measure, or a stack cannot be read.
        NoStackError: If the project has no stack on a date.
        UnavailableError: If another experiment runs on this machine, or an index cannot be read.
    """

    def read(ends: StackEnds) -> tuple[StackEnd, StackEnd]:
        return ends.read(good, "--good"), ends.current() if bad is None else ends.read(bad, "--bad")

    with _open(options, limits, read, "bisect") as bisection:
        yield bisection


@contextmanager
def open_comparison(
    options: ProjectOptions, limits: ExperimentOptions, *, before: Lock, after: Lock
) -> Iterator[ProjectBisection]:
    """Prepare the comparison of two locks alone, as :func:`open_bisection`: a loss is not explained."""

    def read(ends: StackEnds) -> tuple[StackEnd, StackEnd]:
        return ends.of_lock(before, "the base"), ends.of_lock(after, "the change")

    changed = frozenset(name for name, version in after.versions.items() if before.versions.get(name) != version)
    with _open(options, limits, read, "verdict", preferred=changed) as comparison:
        comparison.bisection.explains, comparison.is_verdict = False, True
        yield comparison


@contextmanager
def _open(
    options: ProjectOptions,
    limits: ExperimentOptions,
    read: Callable[[StackEnds], tuple[StackEnd, StackEnd]],
    command: str,
    *,
    preferred: frozenset[str] = frozenset(),
) -> Iterator[ProjectBisection]:
    python = interpreter_here(options, f"advisor {command}")
    environments = cache_directory(options.indexes.cache_directory) / "environments"
    budget = limits.budget_seconds or 0.0
    with (
        only_experiment(environments),
        open_machine(options, python) as setup,
        measured_program(setup) as program,
        open_writable_store(options.resolution.knowledge) as store,
    ):
        program = replace(program, preferred=preferred)
        ends = StackEnds(options=options, setup=setup)
        with activity("reading the stacks"):
            pair = ends.pair(*read(ends))
        machine = MachineLaboratory(
            setup=setup,
            program=program,
            options=limits,
            store=store,
            environments=environments,
            arms=[],
            block=experiment_block(setup, program, [pair.arm(frozenset(range(len(pair.groups))))], budget),
            # Observations name versions, not files: those of stacks that differ in files alone cannot be matched.
            earlier=[] if pair.has_equal_versions else earlier_rounds(program, store),
            slowest=_SLOWEST,
        )
        bisection = Bisection(
            needs=pair.needs,
            laboratory=machine,
            add=lambda combination: machine.arms.append(pair.arm(combination)),
            budget_seconds=budget,
            tolerance=limits.tolerance,
        )
        yield ProjectBisection(pair=pair, machine=machine, bisection=bisection)
