"""Measure the program of a project until it is certain which stack and which settings to lock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from packaging.requirements import Requirement

from advisor.api.context import AdviceInputs, open_predictor, read_current_lock
from advisor.api.measurements.benchmark import MachineSetup, open_machine
from advisor.api.measurements.cluster_laboratory import ClusterLaboratory, packed_program
from advisor.api.measurements.laboratory import (
    ProjectLaboratory,
    earlier_rounds,
    experiment_block,
    interpreter_here,
    machine_name,
    only_experiment,
    stack_content,
)
from advisor.api.measurements.measured_program import MeasuredProgram, measured_program
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import REDUCED_PRECISION, ProjectOptions
from advisor.api.session import AdviceSession
from advisor.api.stores import log_warning, open_writable_store
from advisor.domain.progress import activity, progress
from advisor.domain.requirement import RootRequirement
from advisor.experiment.arms import ExperimentArm, release_changes, setting_changes, with_changes
from advisor.experiment.experiment import CONTROL, REFERENCE, Experiment, Plan
from advisor.experiment.result import ExperimentResult, arm_results
from advisor.locks.certificate import Certificate, stack_digest
from advisor.project.benchmark import read_benchmark
from advisor.resolve.optimum.request import ResolutionRequest, solve_newest
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.ratio import NO_GAIN

MOST_ARMS = 48
"""Single changes that are considered, those with the largest plausible gain first."""
_FEWEST_RUNS = 10
"""Runs in which two arms can differ clearly: a first run of each, and four rounds."""

_NO_NETWORK = ("name resolution", "Name or service not known", "Network is unreachable", "No route to host")
"""Messages of the operating system for an address that a program cannot reach."""


@dataclass
class ProjectExperiment:
    """An experiment on the program of a project.

    Attributes:
        session: The advice for the project on this machine.
        laboratory: Where arms run.
        experiment: The arms with what was measured so far.
    """

    session: AdviceSession
    laboratory: ProjectLaboratory
    experiment: Experiment

    def run(self, notify: Callable[[ProjectExperiment, int, int], None]) -> ExperimentResult:
        """Measure until the choice is certain or the time is over, and make the choice that of the session.

        Args:
            notify: Called before each run with the experiment, the round and the arm.

        Raises:
            InputError: If the program fails in the reference, or its environment exceeds a limit.
            UnavailableError: If the machine is disturbed all the time.
        """
        started = time.monotonic()
        self.laboratory.check_limits(REFERENCE, "the newest stack")
        self.experiment.notify = lambda number, arm: notify(self, number, arm)
        self.experiment.run()
        self._check_budget()
        if self.experiment.ending == "failed":
            failure = self.experiment.failures[REFERENCE]
            hint = "try the command in a copy of the project; it contains only files that git does not ignore"
            if any(words in failure for words in _NO_NETWORK):
                hint = "the program needs the network, and cannot reach it: let it read local files"
            raise InputError(f"the program fails with the newest stack: {failure}", hint=hint)
        disturbance = self.laboratory.disturbance
        if self.experiment.ending == "disturbed" and self.experiment.counts[REFERENCE] < 2 and disturbance:
            raise UnavailableError(f"the machine is not quiet: {disturbance.reason}", hint=disturbance.remedy)
        result = self._result((time.monotonic() - started) / 60)
        self._choose(result)
        self._check_program()
        return result

    def _check_program(self) -> None:
        """Warn if the project's benchmark is no longer the one that was measured."""
        program = self.laboratory.program
        try:
            is_equal = (
                program.benchmark is None
                or read_benchmark(self.session.context.files.directory).identity == program.identity
            )
        except InputError:
            is_equal = False
        if not is_equal:
            log_warning(
                "the benchmark's files have changed since the experiment began, so its certificate is void",
                "let the program write to other files, and measure again",
            )

    def _check_budget(self) -> None:
        """Refuse a budget in which not even two rounds of two arms fit."""
        experiment = self.experiment
        is_killed = self.laboratory.is_over_time
        if experiment.counts[REFERENCE] > 1 or not (is_killed or experiment.ending == "time"):
            return
        run = self.laboratory.seconds_of(REFERENCE)
        first_run = min(map(self.laboratory.seconds_of, experiment.decision.open), default=run)
        budget = experiment.plan.budget_seconds
        takes = (
            "takes longer" if is_killed else f"takes about {run:.1f} s, and the first run of an arm {first_run:.1f} s"
        )
        least = math.ceil(((budget if is_killed else run) * _FEWEST_RUNS + max(0.0, first_run - run)) / 60)
        raise InputError(
            f"the budget of {budget:g} s is too small: one run {takes}",
            hint=f"two arms need about `--measure {least}m`; a smaller benchmark needs less",
        )

    def label(self, arm: int) -> str:
        """Return what an arm is, in a few words."""
        if arm == CONTROL:
            return "the newest stack again (A/A)"
        return self.laboratory.arms[arm].label or "the newest stack"

    def _result(self, minutes: float) -> ExperimentResult:
        experiment, laboratory = self.experiment, self.laboratory
        choice, others = arm_results(experiment, laboratory.arms)
        decision = experiment.decision
        ratio = choice.ratio or NO_GAIN
        certificate = Certificate(
            machine=laboratory.hardware.identity,
            machine_name=machine_name(laboratory.hardware),
            program=laboratory.program.identity,
            stack=stack_digest(choice.arm.stack.versions, {}),
            measured_on=laboratory.last_start[:10] or str(datetime.now(UTC).date()),
            arms=len(laboratory.arms) - len(experiment.untried),
            measured_arms=sum(1 for arm, count in experiment.counts.items() if count and arm not in experiment.untried),
            rounds=experiment.race.runs.rounds,
            minutes=round(minutes + laboratory.recalled_seconds / 60, 1),
            speedup=round(ratio.speedup, 4),
            low=round(ratio.low, 4),
            high=round(ratio.high, 4),
            tolerance=experiment.plan.tolerance,
            confidence=experiment.plan.confidence,
            is_certain=decision.is_certain and experiment.counts[REFERENCE] > 1,
            open=tuple(laboratory.arms[arm].label or "the newest stack" for arm in sorted(decision.open)),
            minutes_left=0.0 if decision.is_certain else round(experiment.seconds_left() / 60, 1),
            untried=tuple(laboratory.arms[arm].label for arm in sorted(experiment.untried)),
        )
        return ExperimentResult(
            choice=choice,
            arms=others,
            certificate=certificate,
            control=experiment.control_ratio(),
            noise=experiment.noise,
            ending=experiment.ending,
            block=laboratory.block.name,
            disturbance=experiment.disturbance,
        )

    def _choose(self, result: ExperimentResult) -> None:
        """Make the stack of the choice the advice of the session."""
        stack = result.choice.arm.stack
        roots = [
            RootRequirement(
                requirement=Requirement(f"{c.name}==={c.version}"), origin="measured", constraint=True, is_added=True
            )
            for c in stack
        ]
        # The measurements took longer than the search may.
        request = self.session.select().request.begun_now(keeps_result=True)
        self.session.replace_request(request.with_problem(request.problem.with_roots(roots)))
        self.session.experiment = result


@contextmanager
def open_experiment(options: ProjectOptions, limits: ExperimentOptions) -> Iterator[ProjectExperiment]:
    """Prepare an experiment on the program of a project; its copy and its indexes exist until the end of the block.

    Raises:
        InputError: If nothing of the project can be measured, or the target is another machine.
        NoStackError: If the project has no stack of wheels.
        UnavailableError: If another experiment runs on this machine, or an index cannot be read.
    """
    python, is_local = interpreter_here(options, "--measure", limits.executor), limits.executor == "local"
    knowledge = options.resolution.knowledge
    environments = cache_directory(options.indexes.cache_directory) / "environments"
    with (
        only_experiment(environments),
        open_machine(options, python, is_remote=not is_local) as setup,
        measured_program(setup) as measured,
        nullcontext(measured) if is_local else packed_program(measured, limits, knowledge) as program,
        open_predictor(setup.context, setup.client) as estimator,
        open_writable_store(knowledge) as store,
    ):
        inputs = AdviceInputs(
            context=setup.context, client=setup.client, estimator=estimator, current=read_current_lock(setup.context)
        )
        session = AdviceSession(inputs, keeps_result=True, reads_sizes=True)
        request = session.select().request
        with activity("preparing the arms"):
            arms = [*_arms(request, setup, program)]
        laboratory = partial(
            ProjectLaboratory if is_local else ClusterLaboratory,
            setup=setup,
            program=program,
            request=request,
            options=limits,
            store=store,
            environments=environments,
            arms=arms,
            block=experiment_block(setup, program, arms, limits.budget_seconds or 0.0),
            earlier=earlier_rounds(program, store),
            knowledge=knowledge,
        )()
        plan = Plan(budget_seconds=limits.budget_seconds or 0.0, tolerance=limits.tolerance)
        experiment = Experiment(plan=plan, arms=[arm.changes for arm in arms], laboratory=laboratory)
        yield ProjectExperiment(session=session, laboratory=laboratory, experiment=experiment)


def _arms(request: ResolutionRequest, setup: MachineSetup, program: MeasuredProgram) -> Iterator[ExperimentArm]:
    """Yield the reference, which is the newest stack without settings, and the arms with one change of it each."""
    reference = ExperimentArm(changes=(), stack=solve_newest(request).stack)
    yield reference
    stack, direct = reference.stack, request.problem.direct_names
    candidates = {*FRAMEWORKS, *direct, *(package for _, package in request.score.rules.slowdowns_of(stack.versions))}
    names = [str(c.name) for c in stack if c.direct is None and c.name in candidates]
    allows_reduced = REDUCED_PRECISION in setup.context.options.allow
    can_apply = partial(program.can_apply, allows_reduced=allows_reduced)
    has_settings = request.score.settings is not None
    changes = [
        *release_changes(request, stack, names),
        *(setting_changes(request, stack, setup.hardware, can_apply) if has_settings else ()),
    ]
    # The larger the gain may be, the more a change is worth a run.
    changes.sort(key=lambda change: -change.gain.mean - 2 * change.gain.deviation)
    contents = {stack_content(stack.versions.items(), (), "")}
    for change in changes[:MOST_ARMS]:
        progress("preparing the arm %s", change.text)
        arm = with_changes(reference, [change], request)
        if arm is None:
            continue
        key = stack_content(arm.stack.versions.items(), arm.settings.items(), "")
        if key not in contents:
            contents.add(key)
            yield arm
