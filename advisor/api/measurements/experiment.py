"""Measure the benchmark of a project until it is certain which stack and which settings to lock."""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement

from advisor.api.context import BEST_PYTHON, AdviceInputs, open_predictor, read_current_lock
from advisor.api.measurements.benchmark import BenchmarkSetup, open_benchmark
from advisor.api.measurements.options import ExperimentOptions, SamplingOptions
from advisor.api.options import REDUCED_PRECISION, ProjectOptions
from advisor.api.session import AdviceSession
from advisor.api.stores import open_writable_store
from advisor.domain.progress import activity, progress
from advisor.domain.requirement import RootRequirement
from advisor.domain.words import size_text
from advisor.experiment.arms import ExperimentArm, release_changes, setting_changes, with_changes
from advisor.experiment.change import Change
from advisor.experiment.experiment import CONTROL, REFERENCE, ArmRun, Experiment, Laboratory, Plan
from advisor.experiment.result import ExperimentResult, arm_results
from advisor.locks.certificate import Certificate, stack_digest
from advisor.resolve.optimum.request import ResolutionRequest, solve_newest
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS, able_frameworks
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import BENCHMARK, Observation
from knowledge.domain.ratio import NO_GAIN
from knowledge.domain.shared_files import lock_file
from knowledge.evidence.conditions import Instability, instabilities
from knowledge.store.base import KnowledgeBase
from pi_runners.execution.benchmark import last_line
from pi_runners.execution.campaign import Block, BlockMeasurement
from pi_runners.execution.subprocess_runner import FreshProcesses
from pi_runners.plan.matrix import Arm

MOST_ARMS = 48
"""Single changes that are considered, those with the largest uncertainty first."""
_CONTROL_NUMBER = 1
"""Number of the control among the arms of the block."""
_DISTURBANCES = ("throttled", "clock-jump")
"""Codes of conditions under which a run says nothing about its arm, besides other load."""
_LONGEST_PAUSE_SECONDS = 30.0
_FEWEST_RUNS = 10
"""Runs in which two arms can differ clearly: a first run of each, and four rounds."""
_FIRST_RUN_SECONDS = 10.0
_BUILD_SECONDS = 10.0
_DOWNLOAD_BYTES_PER_SECOND = 20e6
_UNPACKED_FACTOR = 4.0
"""Size of an environment over that of its wheels, about."""
_SLOWEST = 5.0
"""Duration of a run over that of the reference, from which on it is killed: such an arm is not the fastest."""
_LEAST_TIMEOUT_SECONDS = 30.0


@dataclass
class ProjectLaboratory(Laboratory):
    """Runs the benchmark of a project in the environments of arms on this machine.

    Attributes:
        setup: The project, prepared for this machine.
        request: What the stacks must satisfy.
        options: Limits.
        store: Where observations go.
        environments: Directory of the environments.
        arms: The arms; the first one is the reference.
        block: The block of the observations.
        earlier: Rounds of earlier experiments.
        disturbance: What disturbed the last disturbed run.
        is_over_time: Whether a run of the reference was killed at the end of the budget.
    """

    setup: BenchmarkSetup
    request: ResolutionRequest
    options: ExperimentOptions
    store: KnowledgeBase
    environments: Path
    arms: list[ExperimentArm]
    block: Block
    earlier: Sequence[Sequence[Observation]] = ()
    disturbance: Instability | None = None
    is_over_time: bool = False
    _measurement: BlockMeasurement = field(init=False)
    _seconds: dict[int, float] = field(default_factory=dict, init=False)
    _disturbed: int = field(default=0, init=False)
    _locked: dict[int, Arm] = field(default_factory=dict, init=False)
    _fetched: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Begin; nothing is built before it is needed."""
        self._measurement = BlockMeasurement(self.block, FreshProcesses(), self.environments)

    def run(self, round_number: int, arm: int) -> ArmRun:
        """ArmRun an arm once; before its first result, once more to fill the caches."""
        number = max(arm, REFERENCE)
        measured = self.locked_arm(number)
        if reason := self._excess(measured):
            return ArmRun(seconds=None, failure=reason)
        runs = 1 if number in self._seconds else 2
        for _ in range(runs):
            started = time.monotonic()
            control = replace(measured, number=_CONTROL_NUMBER, reference=False)
            (observation,) = self._measurement.run(round_number, control if arm == CONTROL else measured)
            if observation.status != "ok":
                self.is_over_time = observation.status == "timed-out" and number == REFERENCE
                self.store.add([observation])
                return ArmRun(seconds=None, failure=last_line(observation.failure))
            self._seconds[number] = time.monotonic() - started
        if number == REFERENCE:
            limit = max(_LEAST_TIMEOUT_SECONDS, _SLOWEST * self._seconds[REFERENCE])
            self._measurement.limit_runs(min(limit, self.block.timeout_seconds))
        return self._result(observation)

    def _result(self, observation: Observation) -> ArmRun:
        disturbance = self._disturbance(observation)
        if disturbance is not None:
            self.disturbance = disturbance
            # The next run waits for the end of what disturbed this one.
            time.sleep(min(2.0**self._disturbed, _LONGEST_PAUSE_SECONDS))
            self._disturbed += 1
            return ArmRun(seconds=None, disturbance=disturbance.reason)
        self._disturbed = 0
        self.store.add([observation])
        return ArmRun(seconds=statistics.median(observation.samples))

    def _disturbance(self, observation: Observation) -> Instability | None:
        """Return why a run says nothing about its arm: throttling, a changed clock, or load by other programs."""
        names = ("other_cpu_percent_mean", "stolen_cpu_percent_mean")
        load = sum(observation.telemetry.get(name, 0.0) for name in names)
        if load > self.options.max_load:
            return Instability(
                code="busy",
                reason=f"other programs used {load:.0f} % of the processor time",
                remedy=f"stop them, or accept them with `--max-load {math.ceil(load)}`",
            )
        return next((reason for reason in instabilities([observation]) if reason.code in _DISTURBANCES), None)

    def locked_arm(self, number: int) -> Arm:
        """Return an arm with its exact lock."""
        if number not in self._locked:
            arm = self.arms[number]
            label = arm.label or "reference"
            self._locked[number] = Arm(
                number=number if number == REFERENCE else number + 1,
                lock=self.setup.locker.lock_of(arm.stack, [label], self.setup.python),
                framework=_compared_package(self.arms[REFERENCE]),
                reference=number == REFERENCE,
                indicators=(self.setup.benchmark.indicator_run(self.setup.hardware),),
                settings=arm.settings,
            )
        return self._locked[number]

    def _excess(self, arm: Arm) -> str:
        """Return why the environment of an arm may not be built; empty if it exists or is within the limits."""
        new = {p.sha256: p.size or 0 for p in arm.lock.packages if p.sha256 not in self._fetched}
        if (self.environments / arm.lock.key / "pyvenv.cfg").exists():
            new = {}
        limits = (
            (self.options.max_download_bytes, 1.0, "--max-download"),
            (self.options.max_disk_bytes, _UNPACKED_FACTOR, "--max-disk"),
        )
        free = shutil.disk_usage(self.environments).free
        if (unpacked := round(_UNPACKED_FACTOR * sum(new.values()))) > free:
            return f"its environment needs {size_text(unpacked)}, and the disk has {size_text(free)} left"
        for limit, factor, option in limits:
            total = factor * (sum(self._fetched.values()) + sum(new.values()))
            if new and limit is not None and total > limit:
                needed = size_text(round(factor * sum(new.values())))
                return f"its environment needs {needed}, which exceeds `{option} {size_text(limit)}`"
        self._fetched |= new
        return ""

    def seconds_of(self, arm: int) -> float:
        """Return the expected duration of the next run of an arm, with the building of its environment."""
        if arm in self._seconds:
            return self._seconds[arm]
        run = self._seconds.get(REFERENCE, _FIRST_RUN_SECONDS)
        own = {(c.name, c.version) for c in self.arms[arm].stack}
        built = [{(c.name, c.version) for c in self.arms[other].stack} for other in self._seconds]
        if own in built:
            return run if self.arms[arm].settings else 2 * run
        missing = [c for c in self.arms[arm].stack if not any((c.name, c.version) in other for other in built)]
        size = sum(c.file.size or 0 for c in missing)
        return 2 * run + _BUILD_SECONDS + size / _DOWNLOAD_BYTES_PER_SECOND

    def combine(self, changes: Sequence[Change]) -> bool:
        """Add an arm with several changes, and return whether there is such an arm."""
        arm = with_changes(self.arms[REFERENCE], changes, self.request)
        if arm is not None:
            self.arms.append(arm)
        return arm is not None

    def earlier_runs(self, arm: int) -> Iterator[tuple[int, float]]:
        """Yield the runs of an arm in earlier experiments; arms with equal stacks and settings are the same."""
        own = self.arms[max(arm, REFERENCE)]
        content = _content(own.stack.versions.items(), own.settings.items())
        for number, observations in enumerate(self.earlier):
            runs = [o for o in observations if _content_of(o) == content]
            # The reference ran once more as its own control.
            runs.sort(key=lambda o: not o.reference)
            place = 1 if arm == CONTROL else 0
            if len(runs) > place:
                yield number, statistics.median(runs[place].samples)


@dataclass
class ProjectExperiment:
    """An experiment on the benchmark of a project.

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
            InputError: If the benchmark fails in the reference.
            UnavailableError: If the machine is disturbed all the time.
        """
        started = time.monotonic()
        self.experiment.notify = lambda number, arm: notify(self, number, arm)
        self.experiment.run()
        self._check_budget()
        if self.experiment.ending == "failed":
            raise InputError(
                f"the benchmark fails with the newest stack: {self.experiment.failures[REFERENCE]}",
                hint="try the command in a copy of the project; it contains only files that git does not ignore",
            )
        disturbance = self.laboratory.disturbance
        if self.experiment.ending == "disturbed" and self.experiment.counts[REFERENCE] < 2 and disturbance:
            raise UnavailableError(f"the machine is not quiet: {disturbance.reason}", hint=disturbance.remedy)
        result = self._result((time.monotonic() - started) / 60)
        self._choose(result)
        return result

    def _check_budget(self) -> None:
        """Refuse a budget in which not even two rounds of two arms fit."""
        experiment = self.experiment
        is_killed = self.laboratory.is_over_time
        if not is_killed and (experiment.ending != "time" or experiment.counts[REFERENCE] > 1):
            return
        run = self.laboratory.seconds_of(REFERENCE)
        budget = experiment.plan.budget_seconds
        takes = "takes longer" if is_killed else f"takes about {run:.1f} s"
        least = math.ceil((budget if is_killed else run) * _FEWEST_RUNS / 60)
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
            machine=laboratory.setup.hardware.identity,
            machine_name=_machine_name(laboratory.setup),
            program=laboratory.setup.benchmark.identity,
            stack=stack_digest(choice.arm.stack.versions, {}),
            measured_on=str(datetime.now(UTC).date()),
            arms=len(laboratory.arms),
            measured_arms=sum(1 for count in experiment.counts.values() if count),
            rounds=experiment.counts[REFERENCE],
            minutes=round(minutes, 1),
            speedup=round(ratio.speedup, 4),
            low=round(ratio.low, 4),
            high=round(ratio.high, 4),
            tolerance=experiment.plan.tolerance,
            confidence=experiment.plan.confidence,
            is_certain=decision.is_certain and experiment.counts[REFERENCE] > 1,
            open=tuple(laboratory.arms[arm].label or "the newest stack" for arm in sorted(decision.open)),
            minutes_left=0.0 if decision.is_certain else round(experiment.seconds_left() / 60, 1),
        )
        return ExperimentResult(
            choice=choice,
            arms=others,
            certificate=certificate,
            control=experiment.control_ratio(),
            ending=experiment.ending,
            block=laboratory.block.name,
            disturbance=laboratory.disturbance.reason if laboratory.disturbance else "",
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
        request = self.session.select().request
        self.session.replace_request(request.with_problem(request.problem.with_roots(roots)))
        self.session.experiment = result


@contextmanager
def open_experiment(options: ProjectOptions, limits: ExperimentOptions) -> Iterator[ProjectExperiment]:
    """Prepare an experiment on the benchmark of a project; its copy and its indexes exist until the end of the block.

    Raises:
        InputError: If the project has no benchmark, the target is another machine, or the budget is too small.
        NoStackError: If the project has no stack of wheels.
        UnavailableError: If another experiment runs on this machine, or an index cannot be read.
    """
    python = _interpreter(options)
    environments = cache_directory(options.indexes.cache_directory) / "environments"
    with (
        _only_experiment(environments),
        open_benchmark(options, python) as setup,
        open_predictor(setup.context, setup.client) as estimator,
        open_writable_store(options.resolution.knowledge) as store,
    ):
        inputs = AdviceInputs(
            context=setup.context, client=setup.client, estimator=estimator, current=read_current_lock(setup.context)
        )
        session = AdviceSession(inputs, keeps_result=True, reads_sizes=True)
        request = session.select().request
        with activity("preparing the arms"):
            arms = [*_arms(request, setup)]
        benchmark = replace(setup.benchmark, warmup_runs=_stated_warmup(setup))
        block = Block(
            name=_block_name(arms, setup),
            arms=(),
            rounds=1,
            hardware=setup.hardware,
            samples=1,
            timeout_seconds=min(SamplingOptions().timeout_seconds, limits.budget_seconds or 0.0),
            benchmark=benchmark,
        )
        laboratory = ProjectLaboratory(
            setup=setup,
            request=request,
            options=limits,
            store=store,
            environments=environments,
            arms=arms,
            block=block,
            earlier=_earlier_rounds(setup, store.observations(indicator=BENCHMARK)),
        )
        plan = Plan(budget_seconds=limits.budget_seconds or 0.0, tolerance=limits.tolerance)
        experiment = Experiment(plan=plan, arms=[arm.changes for arm in arms], laboratory=laboratory)
        yield ProjectExperiment(session=session, laboratory=laboratory, experiment=experiment)


@contextmanager
def _only_experiment(environments: Path) -> Iterator[None]:
    """Refuse a second experiment on this machine: each would disturb the other."""
    environments.mkdir(parents=True, exist_ok=True)
    file = lock_file(environments / "experiment.lock")
    if file is None:
        raise UnavailableError(
            "another experiment runs on this machine, and each would disturb the other",
            hint="wait for its end; it stores what it measures",
        )
    with file:
        yield


def _interpreter(options: ProjectOptions) -> str:
    """Return the interpreter of the arms: a path, or a version of which this machine must have an interpreter."""
    target = options.target
    if target.hardware not in (None, "detect") or target.platform or target.names:
        raise InputError(
            "`--measure` measures on this machine, so its target cannot be another one",
            hint="leave out `--hardware`, `--platform` and `--target`, or run the command on that machine",
        )
    if target.python == BEST_PYTHON:
        raise InputError("`--measure` measures with one interpreter", hint="name it, such as `--python 3.12`")
    return target.python or sys.executable


def _stated_warmup(setup: BenchmarkSetup) -> int:
    """Return the warm-up runs that the project states; without a statement none, because the first process is one."""
    table = setup.context.project.settings.get("benchmark", {})
    return setup.benchmark.warmup_runs if "warmup" in table else 0


def _arms(request: ResolutionRequest, setup: BenchmarkSetup) -> Iterator[ExperimentArm]:
    """Yield the reference, which is the newest stack without settings, and the arms with one change of it each."""
    reference = ExperimentArm(changes=(), stack=solve_newest(request).stack)
    yield reference
    stack, direct = reference.stack, request.problem.direct_names
    names = [str(c.name) for c in stack if c.direct is None and (c.name in FRAMEWORKS or c.name in direct)]
    allows_reduced = REDUCED_PRECISION in setup.context.options.allow
    has_settings = request.score.settings is not None
    changes = [
        *release_changes(request, stack, names),
        *(setting_changes(request, stack, setup.hardware, allows_reduced=allows_reduced) if has_settings else ()),
    ]
    # The larger the gain may be, the more a change is worth a run.
    changes.sort(key=lambda change: -change.gain.mean - 2 * change.gain.deviation)
    contents = {_content(stack.versions.items(), ())}
    for change in changes[:MOST_ARMS]:
        progress("preparing the arm %s", change.text)
        arm = with_changes(reference, [change], request)
        if arm is None:
            continue
        key = _content(arm.stack.versions.items(), arm.settings.items())
        if key not in contents:
            contents.add(key)
            yield arm


def _earlier_rounds(setup: BenchmarkSetup, observations: Iterable[Observation]) -> list[list[Observation]]:
    """Return the rounds in which the same program ran on this machine with this interpreter, oldest first."""
    rounds: dict[tuple[str, int], list[Observation]] = {}
    for o in observations:
        is_same = (
            o.status == "ok"
            and o.indicator.parameters.get("identity") == setup.benchmark.identity
            and o.hardware.identity == setup.hardware.identity
            and o.stack.python.startswith(f"{setup.context.target.python_minor}.")
        )
        if is_same:
            rounds.setdefault((o.block, o.round), []).append(o)
    return [rounds[key] for key in sorted(rounds)]


def _content_of(o: Observation) -> tuple[object, ...]:
    return _content(((p.name, p.version) for p in o.stack.packages), o.settings.items())


def _content(packages: Iterable[tuple[str, object]], settings: Iterable[tuple[str, object]]) -> tuple[object, ...]:
    return (
        tuple(sorted((name, str(version)) for name, version in packages)),
        tuple(sorted((name, str(value)) for name, value in settings)),
    )


def _block_name(arms: Sequence[ExperimentArm], setup: BenchmarkSetup) -> str:
    content = content_hash([setup.benchmark.identity, [arm.label for arm in arms]])
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}"


def _compared_package(reference: ExperimentArm) -> str:
    """Return the package that the ratios are evidence for: a framework, if the stack has one, NumPy last."""
    arrays = able_frameworks("arrays")
    names = sorted(reference.stack.versions, key=lambda n: (n not in FRAMEWORKS, FRAMEWORKS.get(n) in arrays, n))
    return names[0]


def _machine_name(setup: BenchmarkSetup) -> str:
    gpu = setup.hardware.gpu
    return gpu.model if gpu else setup.hardware.cpu.model or setup.hardware.cpu.microarchitecture
