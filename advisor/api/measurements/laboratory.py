"""Where experiments on a project run: its program in the environments of stacks, on this machine."""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from advisor.api.context import BEST_PYTHON
from advisor.api.measurements.benchmark import MachineSetup
from advisor.api.measurements.measured_program import MeasuredProgram
from advisor.api.measurements.options import ExperimentOptions, SamplingOptions
from advisor.api.options import ProjectOptions
from advisor.campaign.engines import own_interpreter
from advisor.domain.words import size_text
from advisor.experiment.arms import ExperimentArm, with_changes
from advisor.experiment.change import Change
from advisor.experiment.experiment import CONTROL, REFERENCE, ArmRun, Laboratory
from advisor.resolve.optimum.request import ResolutionRequest
from knowledge.catalogue.settings import choices_of
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import BENCHMARK, Observation, Status
from knowledge.domain.shared_files import lock_file
from knowledge.evidence.conditions import Instability, instabilities
from knowledge.store.base import KnowledgeBase
from pi_runners.execution.benchmark import Benchmark, last_line
from pi_runners.execution.campaign import Block, BlockMeasurement
from pi_runners.execution.environment import DownloadError, FullDiskError
from pi_runners.execution.subprocess_runner import FreshProcesses
from pi_runners.plan.matrix import Arm

_CONTROL_NUMBER = 1
"""Number of the control among the arms of the block."""
_DISTURBANCES = ("throttled", "battery", "clock-jump")
"""Codes of conditions under which a run says nothing about its arm, besides other load."""
_LONGEST_PAUSE_SECONDS = 30.0
_SAMPLES = 3
"""Samples of an indicator in a process."""
_FIRST_RUN_SECONDS = 10.0
BUILD_SECONDS = 10.0
DOWNLOAD_BYTES_PER_SECOND = 20e6
_UNPACKED_FACTOR = 4.0
"""Size of an environment over that of its wheels, about."""
_LEAST_TIMEOUT_SECONDS = 30.0
_LEAST_FIRST_TIMEOUT_SECONDS = 120.0
"""Duration of an arm's first run, which may compile, before which it is not killed."""
_UNTRIED: frozenset[Status] = frozenset({"not-installed", "harness-error"})
"""Statuses of runs that say nothing about the arm."""


@dataclass(kw_only=True)
class MachineLaboratory(Laboratory):
    """Runs the program of a project in the environments of arms on this machine.

    Attributes:
        setup: The project, prepared for this machine.
        program: What runs.
        options: Limits.
        store: Where observations go.
        environments: Directory of the environments.
        arms: The arms; the first one is the reference.
        block: The block of the observations.
        earlier: Rounds of earlier experiments.
        recalled: Observations of those runs in them that count here.
        last_start: When the last run that counts was started, ISO 8601 in UTC; empty if there is none.
        slowest: Duration of a run over that of the reference, from which on it is killed: such an arm is not the best.
        disturbance: What disturbed the last disturbed run.
        is_over_time: Whether the first run of the reference was killed at the end of the budget.
        builds_here: Whether this machine builds the environments.
    """

    setup: MachineSetup
    program: MeasuredProgram
    options: ExperimentOptions
    store: KnowledgeBase
    environments: Path
    arms: list[ExperimentArm]
    block: Block
    earlier: Sequence[Sequence[Observation]] = ()
    recalled: list[Observation] = field(default_factory=list)
    last_start: str = ""
    slowest: float = 5.0
    disturbance: Instability | None = None
    is_over_time: bool = False
    builds_here: bool = True
    _measurement: BlockMeasurement = field(init=False)
    _seconds: dict[int, float] = field(default_factory=dict, init=False)
    _recalled_seconds: dict[int, float] = field(default_factory=dict, init=False)
    _disturbed: int = field(default=0, init=False)
    _units: dict[int, float] = field(default_factory=dict, init=False)
    _locked: dict[int, Arm] = field(default_factory=dict, init=False)
    _fetched: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def hardware(self) -> HardwareProfile:
        """The machine that the arms run on."""
        return self.setup.hardware

    def __post_init__(self) -> None:
        """Begin; nothing is built before it is needed."""
        self._measurement = BlockMeasurement(self.block, FreshProcesses(), self.environments)

    def run(self, round_number: int, arm: int) -> ArmRun:
        """Run an arm once; before its first result, once more if that fills caches."""
        number = max(arm, REFERENCE)
        measured = self.locked_arm(number)
        if reason := self.excess(measured):
            return ArmRun(seconds=None, failure=reason, is_untried=True)
        for is_first in (True, False) if self._fills_caches(number) else (False,):
            limit = self.timeout_seconds(number, is_first=is_first)
            self._measurement.limit_runs(min(limit, self.block.timeout_seconds))
            started = time.monotonic()
            control = replace(measured, number=_CONTROL_NUMBER, reference=False)
            observations = self._measurement.run(round_number, control if arm == CONTROL else measured)
            if failed := next((o for o in observations if o.status != "ok"), None):
                is_killed = failed.status == "timed-out"
                self.is_over_time = is_killed and REFERENCE not in self._known_seconds
                self.store.add(observations)
                run = _failed(failed)
                return replace(run, is_untried=run.is_untried or (is_killed and is_first))
            self._seconds[number] = time.monotonic() - started
        return self._result(observations)

    def timeout_seconds(self, arm: int, *, is_first: bool) -> float:
        """Return the seconds after which a run is killed, unless the block has fewer; a first run may take longer."""
        seconds = self._seconds if arm == REFERENCE else self._known_seconds
        if REFERENCE not in seconds:
            return self.block.timeout_seconds
        least = _LEAST_FIRST_TIMEOUT_SECONDS if is_first else _LEAST_TIMEOUT_SECONDS
        return math.ceil(max(least, self.slowest * seconds[REFERENCE]))

    @property
    def _known_seconds(self) -> dict[int, float]:
        """Duration of the last run of each arm, here or in earlier experiments."""
        return self._recalled_seconds | self._seconds

    def _fills_caches(self, arm: int) -> bool:
        """Whether the next run of an arm is slower than later ones: its environment is new, or its settings compile."""
        if arm in self._seconds:
            return False
        own = self.arms[arm]
        if not any(self.arms[other].stack == own.stack for other in self._seconds):
            return True
        backends = {FRAMEWORKS[name] for name in own.stack.versions if name in FRAMEWORKS}
        return any(choice.code for backend in backends for _, choice in choices_of(own.settings, backend))

    def _result(self, observations: Sequence[Observation]) -> ArmRun:
        """Return what a run says, and store it unless something disturbed it."""
        run = self.result_of(observations)
        if run.disturbance:
            # The next run waits for the end of what disturbed this one.
            time.sleep(min(2.0**self._disturbed, _LONGEST_PAUSE_SECONDS))
            self._disturbed += 1
            return run
        self._disturbed = 0
        self.store.add(observations)
        return run

    def result_of(self, observations: Sequence[Observation]) -> ArmRun:
        """Return what the observations of a run say of its arm."""
        if failed := next((o for o in observations if o.status != "ok"), None):
            return _failed(failed)
        disturbance = next(filter(None, map(self._disturbance, observations)), None)
        if disturbance is not None:
            self.disturbance = disturbance
            return ArmRun(seconds=None, disturbance=disturbance.reason)
        return self._counted(observations)

    def _counted(self, observations: Sequence[Observation]) -> ArmRun:
        """Return the result of a run that counts; all of them have the durations of the first one as their units."""
        durations = self.program.durations(observations)
        self._units = self._units or durations
        self.last_start = max(self.last_start, *(o.started_at for o in observations))
        result = observations[0].metrics.get("result")
        return ArmRun(seconds=self.program.seconds(durations, self._units), result=result)

    def _disturbance(self, observation: Observation) -> Instability | None:
        """Return why a run says nothing about its arm: throttling, a battery, a changed clock, or other load."""
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
            self._locked[number] = self.program.arm(
                self.setup.locker.lock_of(arm.stack, [label], arm.python or self.setup.python),
                arm.settings,
                number if number == REFERENCE else number + 1,
                self.setup.hardware,
                reference=number == REFERENCE,
            )
        return self._locked[number]

    def excess(self, arm: Arm) -> str:
        """Return why the environment of an arm may not be built; empty if it exists or is within the limits."""
        new = {p.sha256: p.size or 0 for p in arm.lock.packages if p.sha256 not in self._fetched}
        if self.builds_here and (self.environments / arm.lock.key / "pyvenv.cfg").exists():
            new = {}
        limits = (
            (self.options.max_download_bytes, 1.0, "--max-download"),
            (self.options.max_disk_bytes, _UNPACKED_FACTOR, "--max-disk"),
        )
        free = shutil.disk_usage(self.environments).free
        if (unpacked := round(_UNPACKED_FACTOR * sum(new.values()))) > free and self.builds_here:
            return f"its environment needs {size_text(unpacked)}, and the disk has {size_text(free)} left"
        for limit, factor, option in limits:
            needed, others = round(factor * sum(new.values())), round(factor * sum(self._fetched.values()))
            if new and limit is not None and needed + others > limit:
                both = f"{size_text(needed)}, and the others {size_text(others)}" if others else size_text(needed)
                return f"its environment needs {both}, which exceeds `{option} {size_text(limit)}`"
        self._fetched |= new
        return ""

    def check_limits(self, number: int, name: str) -> None:
        """Refuse an arm whose environment exceeds a limit: this says nothing about its stack.

        Raises:
            InputError: If it does.
        """
        if reason := self.excess(self.locked_arm(number)):
            raise InputError(f"{name} cannot be measured: {reason}", hint="raise the limit, or free the disk")

    def seconds_of(self, arm: int) -> float:
        """Return the expected duration of the next run of an arm, with the building of its environment."""
        if arm in self._seconds:
            return self._seconds[arm]
        durations = self._known_seconds
        run = durations.get(arm, durations.get(REFERENCE, _FIRST_RUN_SECONDS))
        own = {(c.name, c.version) for c in self.arms[arm].stack}
        built = [{(c.name, c.version) for c in self.arms[other].stack} for other in durations]
        if own in built:
            return 2 * run if self._fills_caches(arm) else run
        missing = [c for c in self.arms[arm].stack if not any((c.name, c.version) in other for other in built)]
        size = sum(c.file.size or 0 for c in missing)
        return 2 * run + BUILD_SECONDS + size / DOWNLOAD_BYTES_PER_SECOND

    def earlier_runs(self, arm: int) -> Iterator[tuple[int, ArmRun]]:
        """Yield the runs of an arm in earlier experiments: with an equal stack, and equal settings in the same way.

        The rounds of this experiment have numbers from 0, and earlier ones those before.
        """
        own, benchmark = self.arms[max(arm, REFERENCE)], self.program.benchmark
        labels = {run.label for run in self.program.runs(map(str, own.stack.versions), self.hardware)}
        options = "" if benchmark is None else benchmark.option_text(own.settings)
        python = self.setup.locker.target(own.python or self.setup.python).python_minor
        content = stack_content(own.stack.versions.items(), own.settings.items(), python)
        for number, observations in enumerate(self.earlier, -len(self.earlier)):
            if observations[0].hardware.identity != self.hardware.identity:
                continue
            arms: dict[tuple[bool, int], dict[str, Observation]] = {}
            for o in observations:
                is_equal = (_content_of(o), o.environment.get("options", "")) == (content, options)
                if is_equal and o.indicator.label in labels:
                    arms.setdefault((not o.reference, o.arm), {})[o.indicator.label] = o
            # The reference ran once more as its own control.
            runs = [list(parts.values()) for _, parts in sorted(arms.items()) if len(parts) == len(labels)]
            place = 1 if arm == CONTROL else 0
            if len(runs) > place:
                self.recalled += runs[place]
                self._recalled_seconds[max(arm, REFERENCE)] = sum(map(_process_seconds, runs[place]))
                yield number, self._counted(runs[place])

    @property
    def recalled_seconds(self) -> float:
        """Time that the runs of earlier experiments took that count here, with what ran between them."""
        blocks: dict[str, list[float]] = {}
        for o in self.recalled:
            blocks.setdefault(o.block, []).append(datetime.fromisoformat(o.started_at).timestamp())
        seconds, end = 0.0, -math.inf
        # Blocks of several machines ran at the same time.
        for first, last in sorted((min(times), max(times)) for times in blocks.values()):
            seconds += max(0.0, last - max(first, end))
            end = max(end, last)
        return seconds


def _process_seconds(o: Observation) -> float:
    """Return about how long the process of an observation took; a sample of a benchmark is what the program printed."""
    run = o.metrics.get("seconds_per_run", o.loops * statistics.median(o.samples))
    return o.warmup_seconds + len(o.samples) * (run + o.metrics.get("startup_seconds", 0.0))


def _failed(observation: Observation) -> ArmRun:
    """Return the failure of a run."""
    untried = observation.status in _UNTRIED
    return ArmRun(seconds=None, failure=last_line(observation.failure), is_untried=untried)


@dataclass(kw_only=True)
class ProjectLaboratory(MachineLaboratory):
    """Runs the arms of a project, and adds arms with several changes.

    Attributes:
        request: What the stacks must satisfy.
        knowledge: Address of the knowledge base; ``None`` for the user's own.
    """

    request: ResolutionRequest
    knowledge: str | None = None

    def run(self, round_number: int, arm: int) -> ArmRun:
        """Run an arm once; a full disk or a failed download is the failure of this arm alone.

        Raises:
            UnavailableError: If the reference has neither disk nor network.
        """
        try:
            return super().run(round_number, arm)
        except (FullDiskError, DownloadError) as error:
            if arm in (REFERENCE, CONTROL):
                raise
            return ArmRun(seconds=None, failure=error.message, is_untried=True)

    def combine(self, changes: Sequence[Change]) -> bool:
        """Add an arm with several changes, and return whether there is such an arm."""
        arm = with_changes(self.arms[REFERENCE], changes, self.request)
        if arm is not None:
            self.arms.append(arm)
        return arm is not None


@contextmanager
def only_experiment(environments: Path) -> Iterator[None]:
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


def interpreter_here(options: ProjectOptions, command: str, executor: str = "local") -> str:
    """Return the interpreter of the arms: a path, or a version of which the machines must have an interpreter."""
    target = options.target
    if target.hardware not in (None, "detect") or target.platform or target.names:
        raise InputError(
            f"`{command}` measures on this machine, so its target cannot be another one",
            hint="leave out `--hardware`, `--platform` and `--target`, or run the command on that machine",
        )
    if target.python == BEST_PYTHON:
        raise InputError(f"`{command}` measures with one interpreter", hint="name it, such as `--python 3.12`")
    return target.python or own_interpreter(executor)


def experiment_block(
    setup: MachineSetup, program: MeasuredProgram, arms: Sequence[ExperimentArm], budget_seconds: float
) -> Block:
    """Return the block of the observations of an experiment; the laboratory decides what runs."""
    content, benchmark = content_hash([program.identity, [arm.label for arm in arms]]), program.benchmark
    return Block(
        name=f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}",
        arms=(),
        rounds=1,
        hardware=setup.hardware,
        samples=_SAMPLES if benchmark is None else 1,
        timeout_seconds=min(SamplingOptions().timeout_seconds, budget_seconds),
        benchmark=None if benchmark is None else replace(benchmark, warmup_runs=_stated_warmup(setup, benchmark)),
    )


def _stated_warmup(setup: MachineSetup, benchmark: Benchmark) -> int:
    """Return the warm-up runs that the project states; without a statement none, because the first process is one."""
    table = setup.context.project.settings.get("benchmark", {})
    return benchmark.warmup_runs if "warmup" in table else 0


def earlier_rounds(program: MeasuredProgram, store: KnowledgeBase) -> list[list[Observation]]:
    """Return the rounds in which the same program ran, each on one machine, oldest first."""
    rounds: dict[tuple[str, int], list[Observation]] = {}
    for name in {case.name for case in program.cases} or {BENCHMARK}:
        for o in store.observations(indicator=name):
            if o.status == "ok" and program.part_of(o.indicator) is not None:
                rounds.setdefault((o.block, o.round), []).append(o)
    return [rounds[key] for key in sorted(rounds)]


def _content_of(o: Observation) -> tuple[object, ...]:
    python = ".".join(o.stack.python.split(".")[:2])
    return stack_content(((p.name, p.version) for p in o.stack.packages), o.settings.items(), python)


def stack_content(
    packages: Iterable[tuple[str, object]], settings: Iterable[tuple[str, object]], python: str
) -> tuple[object, ...]:
    """Return a value that is equal for equal packages, settings and minor versions of the interpreter."""
    return (
        python,
        tuple(sorted((name, str(version)) for name, version in packages)),
        tuple(sorted((name, str(value)) for name, value in settings)),
    )


def machine_name(hardware: HardwareProfile) -> str:
    """Return the model of a machine's accelerator, else of its processor."""
    return hardware.gpu.model if hardware.gpu else hardware.cpu.model or hardware.cpu.microarchitecture
