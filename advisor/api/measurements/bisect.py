"""Measure which differences between two stacks make the program of a project slower, or make it fail."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from advisor.api.measurements.benchmark import open_machine
from advisor.api.measurements.laboratory import (
    MachineLaboratory,
    earlier_rounds,
    experiment_block,
    interpreter_here,
    machine_name,
    only_experiment,
)
from advisor.api.measurements.measured_program import measured_program
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.measurements.stack_ends import StackEnds
from advisor.api.options import ProjectOptions
from advisor.api.stores import open_writable_store
from advisor.domain.progress import activity
from advisor.experiment.bisection import GOOD, Bisection, Combination, Ending, PathSection, Verdict
from advisor.experiment.experiment import CONTROL, ArmRun
from advisor.experiment.stack_pair import StackDifference, StackPair
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.ratio import Ratio

_FEWEST_RUNS = 12
"""Runs in which two stacks can differ clearly: the first ones, and three rounds with the control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What explains a part of the loss, or a failure.

    Attributes:
        differences: Differences that change together.
        slowdown: Time with them over the time without them; ``None`` for a failure.
    """

    differences: tuple[StackDifference, ...]
    slowdown: Ratio | None


@dataclass(frozen=True, kw_only=True)
class BisectionResult:
    """What a bisection found out.

    Attributes:
        pair: The two stacks.
        machine: Name of the machine's accelerator or processor.
        hardware: The machine.
        program: What ran, in words.
        verdict: What is certain about the bad stack compared with the good one.
        ending: Why it ended.
        slowdown: Time of the bad stack over that of the good one; ``None`` if it is not known.
        failure: How the bad stack fails; empty if it does not.
        culprits: What explains the loss, the largest part first.
        dependents: Further differences that must be as in the good stack, because they need a culprit.
        without: The bad stack without culprits and dependents; ``None`` if it is not known yet.
        remaining: Its time over that of the good stack; ``None`` if it was not measured.
        is_recovered: Whether it is as fast as the good stack, or runs; ``None`` if that is not certain.
        unresolved: Combinations that fail in another way than the bad stack, each with the failure.
        control: Time of the good stack over itself (A/A).
        rounds: Number of rounds.
        combinations: Number of stacks that ran.
        minutes: Time that it took.
        minutes_left: About how long it would still take; 0 if it is complete.
        tolerance: Loss that does not matter.
        block: Name of the block of its observations.
        disturbance: What disturbed runs, which were repeated; empty if nothing did.
    """

    pair: StackPair
    machine: str
    hardware: HardwareProfile
    program: str
    verdict: Verdict
    ending: Ending
    slowdown: Ratio | None
    failure: str
    culprits: tuple[Culprit, ...]
    dependents: tuple[StackDifference, ...]
    without: Combination | None
    remaining: Ratio | None
    is_recovered: bool | None
    unresolved: tuple[tuple[str, str], ...]
    control: Ratio | None
    rounds: int
    combinations: int
    minutes: float
    minutes_left: float
    tolerance: float
    block: str
    disturbance: str = ""

    @property
    def has_loss(self) -> bool:
        """Whether the bad stack is certainly slower, or fails."""
        return self.verdict in ("slower", "failing")

    @property
    def pins(self) -> tuple[str, ...]:
        """Requirements and settings with which the bad stack recovers."""
        differences = [d for culprit in self.culprits for d in culprit.differences]
        return tuple(difference.pin for difference in (*differences, *self.dependents) if difference.pin)


@dataclass
class PairLaboratory:
    """Runs the combinations of two stacks on this machine."""

    pair: StackPair
    machine: MachineLaboratory
    _numbers: dict[Combination, int] = field(default_factory=dict, init=False)

    def number(self, combination: Combination) -> int:
        """Return the number of the arm of a combination; that of the good stack is 0."""
        if combination not in self._numbers:
            self._numbers[combination] = len(self._numbers)
            if len(self.machine.arms) < len(self._numbers):
                self.machine.arms.append(self.pair.arm(combination))
        return self._numbers[combination]

    def run(self, round_number: int, combination: Combination, *, is_control: bool) -> ArmRun:
        """Run a combination once."""
        return self.machine.run(round_number, CONTROL if is_control else self.number(combination))

    def seconds_of(self, combination: Combination) -> float:
        """Return the expected duration of the next run of a combination."""
        return self.machine.seconds_of(self.number(combination))

    def earlier_runs(self, combination: Combination, *, is_control: bool) -> Iterable[tuple[int, ArmRun]]:
        """Yield the runs of a combination in earlier experiments."""
        return self.machine.earlier_runs(CONTROL if is_control else self.number(combination))

    def now(self) -> float:
        """Return the time in seconds."""
        return self.machine.now()


@dataclass
class ProjectBisection:
    """A bisection of two stacks of a project.

    Attributes:
        pair: The two stacks.
        laboratory: Where they run.
        bisection: What was measured so far.
    """

    pair: StackPair
    laboratory: PairLaboratory
    bisection: Bisection

    def run(self, notify: Callable[[ProjectBisection, int, Combination | None], None]) -> BisectionResult:
        """Measure until the loss is explained, the time is over, or Ctrl-C.

        Args:
            notify: Called before each run with the bisection, the round and the combination (``None``: the control).

        Raises:
            InputError: If the good stack fails, an end exceeds a limit, or the budget is too small.
            UnavailableError: If the machine is disturbed all the time.
        """
        started = time.monotonic()
        if not self.pair.groups:
            self.bisection.verdict, self.bisection.ending = "equal", "complete"
            return self._result(0.0)
        for combination, end in ((GOOD, self.pair.good), (self.bisection.bad, self.pair.bad)):
            self.laboratory.machine.check_limits(self.laboratory.number(combination), f"`{end.name}`")
        self.bisection.notify = lambda number, combination: notify(self, number, combination)
        self.bisection.run()
        self._check_ending()
        return self._result((time.monotonic() - started) / 60)

    def label(self, combination: Combination | None) -> str:
        """Return what a combination is, in a few words; ``None`` stands for the control."""
        if combination is None:
            return "good again (A/A)"
        if combination in (GOOD, self.bisection.bad):
            return "bad" if combination else "good"
        return f"good with {len(combination)} of {len(self.bisection.bad)} differences"

    def _check_ending(self) -> None:
        bisection, machine = self.bisection, self.laboratory.machine
        if bisection.ending == "disturbed" and bisection.counts[GOOD] < 2 and machine.disturbance:
            raise UnavailableError(
                f"the machine is not quiet: {machine.disturbance.reason}", hint=machine.disturbance.remedy
            )
        is_early = bisection.ending == "time" and bisection.verdict == "open" and bisection.counts[GOOD] < 2
        if is_early or (bisection.ending == "good-failed" and machine.is_over_time):
            run, budget = machine.seconds_of(0), bisection.budget_seconds
            least = math.ceil(max(run, budget / 2 if machine.is_over_time else 0) * _FEWEST_RUNS / 60)
            raise InputError(
                f"the budget of {budget:g} s is too small: one run takes "
                f"{'longer' if machine.is_over_time else f'about {run:.1f} s'}",
                hint=f"two stacks need at least about `--budget {least}m`; a smaller benchmark needs less",
            )
        if bisection.ending == "good-failed":
            raise InputError(
                f"the program fails with the good stack, `{self.pair.good.name}`: {bisection.failures[GOOD]}",
                hint="name a stack with which it runs as `--good`; the copy of the project has only files that git "
                "does not ignore",
            )

    def _result(self, minutes: float) -> BisectionResult:
        bisection, machine = self.bisection, self.laboratory.machine
        whole = PathSection(low=GOOD, high=bisection.bad)
        is_failure = bisection.verdict == "failing"
        sections = [(section, None if is_failure else bisection.slowdown(section)) for section in bisection.culprits]
        sections.sort(key=lambda item: -item[1].mean if item[1] else 0.0)
        removed = bisection.bad - bisection.without_culprits() if sections else frozenset()
        explained = frozenset().union(*(section.differences for section, _ in sections))
        without = bisection.without
        ran = {*(c for c, count in bisection.counts.items() if count), *bisection.failures}
        return BisectionResult(
            pair=self.pair,
            machine=machine_name(machine.hardware),
            hardware=machine.hardware,
            program=machine.program.text,
            verdict=bisection.verdict,
            ending=bisection.ending,
            slowdown=None if is_failure else bisection.slowdown(whole),
            failure=bisection.failures.get(bisection.bad, ""),
            culprits=tuple(
                Culprit(differences=self.pair.differences_in(section.differences), slowdown=slowdown)
                for section, slowdown in sections
            ),
            dependents=self.pair.differences_in(removed - explained),
            without=without,
            remaining=None
            if without is None or is_failure
            else bisection.slowdown(PathSection(low=GOOD, high=without)),
            is_recovered=bisection.is_recovered,
            unresolved=tuple(
                (self.pair.arm(combination).label, failure)
                for combination, failure in bisection.failures.items()
                if combination != bisection.bad and not (is_failure and failure == bisection.failures[bisection.bad])
            ),
            control=bisection.control_ratio(),
            rounds=bisection.rounds,
            combinations=len(ran),
            minutes=minutes,
            minutes_left=0.0 if bisection.ending == "complete" else bisection.seconds_left() / 60,
            tolerance=bisection.tolerance,
            block=machine.block.name,
            disturbance=machine.disturbance.reason if machine.disturbance else "",
        )


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
    if limits.tolerance <= 0:
        raise InputError("a tolerance of 0 % is never certain", hint="write it as `--tolerance 1%`")
    python = interpreter_here(options, "advisor bisect")
    environments = cache_directory(options.indexes.cache_directory) / "environments"
    budget = limits.budget_seconds or 0.0
    with (
        only_experiment(environments),
        open_machine(options, python) as setup,
        measured_program(setup) as program,
        open_writable_store(options.resolution.knowledge) as store,
    ):
        ends = StackEnds(options=options, setup=setup)
        with activity("reading the stacks"):
            good_end = ends.read(good, "--good")
            bad_end = ends.current() if bad is None else ends.read(bad, "--bad")
            pair = ends.pair(good_end, bad_end)
        arms = [pair.arm(GOOD)]
        machine = MachineLaboratory(
            setup=setup,
            program=program,
            options=limits,
            store=store,
            environments=environments,
            arms=arms,
            block=experiment_block(setup, program, [pair.arm(frozenset(range(len(pair.groups))))], budget),
            # Observations name versions, not files: those of stacks that differ in files alone cannot be matched.
            earlier=[] if pair.has_equal_versions else earlier_rounds(program, store),
            kills_slow_arms=False,
        )
        laboratory = PairLaboratory(pair=pair, machine=machine)
        bisection = Bisection(
            needs=pair.needs, laboratory=laboratory, budget_seconds=budget, tolerance=limits.tolerance
        )
        yield ProjectBisection(pair=pair, laboratory=laboratory, bisection=bisection)
