"""Measures blocks: interleaves the arms in rounds, runs each in a fresh process and returns observations."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation, Status
from knowledge.domain.stack import Stack
from pi_runners.catalogue import parameters_of
from pi_runners.execution.benchmark import Benchmark, last_line
from pi_runners.execution.energy import energy_figures
from pi_runners.execution.environment import (
    BuiltEnvironment,
    EnvironmentBuildError,
    FullDiskError,
    StackLock,
    build_environment,
    build_instruments,
    is_full_disk,
    locked_stack,
    remove_environment,
)
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import ProcessEnd, ProcessRequest, Runner
from pi_runners.execution.telemetry import summarise
from pi_runners.harness.timing import SampleWindow
from pi_runners.indicators import INDICATORS
from pi_runners.plan.arm_settings import import_request, obstacle, processors_of, unknown_flag, variables_of
from pi_runners.plan.matrix import Arm

_CLOCK_JUMP_SECONDS = 1.0
_MOST_FAILURES = 2
_SILENT_PROCESSES = 2
"""Consecutive processes without any result after which the remaining indicators of an arm are given up."""
_RESULTS = ("status", "loops", "warmup_seconds", "steady", "error", "tolerance", "failure", "telemetry")
"""Fields of an observation that a worker's result may have as they are."""


ObservationSink = Callable[[Iterable[Observation]], object]
"""Receives observations, and stores them before it returns; one that is stored already is ignored."""


class FailureLimit:
    """Counts failures, to give up an arm after several: a program that waits forever would do so in every round."""

    def __init__(self, sink: ObservationSink) -> None:
        self._sink = sink
        self._failures: dict[int, list[str]] = defaultdict(list)

    def add(self, observations: Iterable[Observation]) -> None:
        """Hand observations on, and count failures."""
        observations = tuple(observations)
        self._sink(observations)
        for o in observations:
            if o.status == "ok":
                self._failures[o.arm].clear()
            elif o.status != "not-installed":
                # A stack that cannot be installed takes no time.
                self._failures[o.arm].append(o.failure)

    def reason(self, arm: int) -> str:
        """Return why an arm is given up, by its number; empty if it is not."""
        failures = self._failures[arm]
        if len(failures) < _MOST_FAILURES:
            return ""
        return f"not run again after {_MOST_FAILURES} failures: {last_line(failures[0])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Arms to measure together on one machine.

    Attributes:
        name: Unique name of the block.
        arms: The stacks with their settings, in order.
        rounds: Passes over all arms.
        hardware: The machine.
        samples: Samples of an indicator in each process; up to three times as many if they vary.
        min_seconds: Minimum duration of one sample.
        max_warmup_seconds: Maximum duration of the warm-up.
        timeout_seconds: Maximum run time of one process.
        memory_limit_bytes: Maximum memory of one process and its children; ``None`` for no limit.
        instruments: Lock of measuring libraries that are not part of the measured stacks, such as LoadGen;
            ``None`` if the indicators need none.
        environment: Existing interpreter, which is measured as it is in every arm; by default each arm's environment
            is built from its lock.
        benchmark: Command of a project that is run in every arm instead of indicators; ``None`` for indicators.
    """

    name: str
    arms: tuple[Arm, ...]
    rounds: int
    hardware: HardwareProfile
    samples: int = 7
    min_seconds: float = 0.05
    max_warmup_seconds: float = 5.0
    timeout_seconds: float = 600.0
    memory_limit_bytes: float | None = None
    instruments: StackLock | None = None
    environment: BuiltEnvironment | None = None
    benchmark: Benchmark | None = None


def measured_cells(block: Block, observations: Iterable[Observation]) -> frozenset[tuple[int, int]]:
    """Return the ``(round, arm)`` pairs of a block that its stored observations have.

    Raises:
        InputError: If they come from another machine, or from other stacks or settings than the block has now.
    """
    arms = {arm.number: arm for arm in block.arms}
    cells: set[tuple[int, int]] = set()
    for o in observations:
        arm = arms.get(o.arm)
        if o.hardware.identity != block.hardware.identity:
            raise InputError(
                f"block `{block.name}` was started on another machine",
                hint="continue it on that machine, or start a new block here",
            )
        packages = _planned_stack(block, arm).packages if arm else ()
        if arm is None or o.stack.packages != packages or dict(o.settings) != dict(arm.settings):
            packages_text = " ".join(f"{p.name}=={p.version}" for p in o.stack.packages[:3])
            raise InputError(
                f"block `{block.name}` was started with other stacks: arm {o.arm} was `{packages_text} ...`",
                hint="the package index or the command has changed since then; start a new block",
            )
        if block.benchmark is not None and o.indicator not in arm.indicators:
            raise InputError(
                f"block `{block.name}` was started with another benchmark",
                hint="its command, its metric or one of its `files` has changed since then; start a new block",
            )
        cells.add((o.round, o.arm))
    return frozenset(cells)


def run_block(
    block: Block,
    *,
    sink: ObservationSink,
    runner: Runner,
    environments: Path,
    is_missing: Callable[[int, int], bool] = lambda *_: True,
    keep_environments: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    begin: Callable[[int, Arm], str] = lambda *_: "",
) -> int:
    """Measure a block.

    Args:
        block: What to measure.
        sink: Receives the observations of each process as soon as it ends.
        runner: Runs the processes.
        environments: Directory of the environments.
        is_missing: Predicate on the numbers of a round and an arm: whether to measure it; by default all are measured.
        keep_environments: Whether to leave the environments for a later block; uv's cache keeps their files either way.
        progress: Called with a short text before each step.
        begin: Called before an arm is measured in a round; returns the reason for giving it up, or an empty text.

    Returns:
        Number of new observations; fewer than planned if the runner was stopped.
    """
    missing = [
        (number, arm)
        for number in range(block.rounds)
        for arm in _rotated(block.arms, number)
        if arm.indicators and is_missing(number, arm.number)
    ]
    measurement = BlockMeasurement(block, runner, environments)
    count = 0
    try:
        arms = {arm.number: arm for _, arm in missing}
        for _, arm in () if block.environment else sorted(arms.items()):
            progress(f"environment {arm.lock.label}")
            measurement.build(arm)
        for number, arm in missing:
            progress(f"round {number + 1}/{block.rounds} {arm.label}")
            if reason := begin(number, arm):
                observations = measurement.give_up(number, arm, reason)
            else:
                observations = measurement.run(number, arm)
            sink(observations)
            count += len(observations)
            if len(observations) < len(arm.indicators):
                # The runner was stopped: the remaining arms stay missing and are measured when the block is continued.
                break
    finally:
        if not keep_environments:
            for arm in block.arms:
                measurement.remove(arm)
    return count


class BlockMeasurement:
    """Measures single arms of a block, in the order that the caller decides; environments are built once."""

    def __init__(self, block: Block, runner: Runner, environments: Path) -> None:
        """Begin to measure a block with environments in a directory; nothing is built before it is needed."""
        self._block = block
        self._runner = runner
        self._directory = environments
        self._program = write_program(environments)
        self._built: dict[str, BuiltEnvironment | EnvironmentBuildError] = {}
        self._instruments: Path | None = None

    def build(self, arm: Arm) -> str:
        """Build the environment of an arm unless it exists, and return why that failed; empty if it did not.

        Raises:
            UnavailableError: If the disk is full, a wheel cannot be downloaded, or the interpreter is missing.
        """
        if self._block.instruments and self._instruments is None:
            self._instruments = build_instruments(self._block.instruments, self._directory)
        if arm.lock.key not in self._built:
            self._built[arm.lock.key] = self._block.environment or _build(arm, self._directory)
        built = self._built[arm.lock.key]
        return built.message if isinstance(built, EnvironmentBuildError) else ""

    def run(self, number: int, arm: Arm) -> list[Observation]:
        """Measure an arm in a round, and return its observations: fewer than indicators if the runner was stopped."""
        self.build(arm)
        return _observe(
            self._block, arm, number, self._built[arm.lock.key], self._instruments, self._program, self._runner
        )

    def limit_runs(self, seconds: float) -> None:
        """Kill runs that take longer from now on."""
        self._block = replace(self._block, timeout_seconds=seconds)

    def give_up(self, number: int, arm: Arm, reason: str) -> list[Observation]:
        """Return the observations of an arm that is not run in a round."""
        return _failures(self._block, arm, number, {"status": "crashed", "failure": reason})

    def remove(self, arm: Arm) -> None:
        """Remove the environment of an arm; uv's cache keeps its files."""
        if self._block.environment is None:
            remove_environment(arm.lock, self._directory)


def _rotated(arms: tuple[Arm, ...], number: int) -> tuple[Arm, ...]:
    """Return the arms of a round: each round starts with the next arm, so that no arm always starts or ends a round."""
    shift = number % max(1, len(arms))
    return arms[shift:] + arms[:shift]


def _build(arm: Arm, environments: Path) -> BuiltEnvironment | EnvironmentBuildError:
    try:
        return build_environment(arm.lock, environments)
    except EnvironmentBuildError as error:
        return error


def _observe(
    block: Block,
    arm: Arm,
    number: int,
    environment: BuiltEnvironment | EnvironmentBuildError,
    instruments: Path | None,
    program: Path,
    runner: Runner,
) -> list[Observation]:
    """Run an arm's indicators in one process; after a crash, run the remaining ones in a new process.

    Fewer observations than indicators are returned if the runner was stopped.
    """
    if isinstance(environment, EnvironmentBuildError):
        return _failures(block, arm, number, {"status": "not-installed", "failure": environment.message[-2000:]})
    backends = _backends(block, arm)
    if reason := obstacle(arm.settings, backends, environment.stack):
        return _failures(block, arm, number, {"status": "unsupported", "failure": reason})
    variables = variables_of(arm.settings, backends)
    results: dict[int, dict[str, Any]] = {}
    silent = 0
    while missing := [i for i in range(len(arm.indicators)) if i not in results]:
        request = ProcessRequest(
            python=environment.python,
            program=program,
            content=_content(block, arm, missing, instruments),
            timeout_seconds=block.timeout_seconds,
            memory_limit_bytes=block.memory_limit_bytes,
            environment=variables,
        )
        if block.benchmark is not None:
            limit = block.benchmark.process_seconds(runs=block.samples, timeout_seconds=block.timeout_seconds)
            request = replace(request, part="benchmark", timeout_seconds=limit)
        end = runner.run(request)
        _check_disk(end, arm)
        for result in end.results:
            # The worker numbers its results in the order of the request.
            results[missing[result["number"]]] = _with_telemetry(result, end)
        if end.ending == "stopped":
            break
        if end.ending == "time" and end.results:
            # Earlier indicators used up the time: the interrupted one gets the full time of a new process.
            silent = 0
            continue
        if without_result := [i for i in missing if i not in results]:
            # The first indicator without a result ended the process; the later ones were not started.
            results[without_result[0]] = _unreported(end, block)
            silent = 0 if end.results else silent + 1
            if silent == _SILENT_PROCESSES:
                # The cause is not one indicator: nothing runs in this environment.
                results.update((i, _unreported(end, block)) for i in without_result)
    stack = _with_system_cuda(environment.stack, arm)
    return [_observation(block, arm, number, arm.indicators[i], stack, results[i]) for i in sorted(results)]


def _check_disk(end: ProcessEnd, arm: Arm) -> None:
    """Check that a process did not fail because the disk was full: this says nothing about the stack.

    Raises:
        FullDiskError: If it did.
    """
    outputs = [result.get("failure", "") for result in end.results] + [end.error_tail]
    if message := next(filter(is_full_disk, map(last_line, outputs)), ""):
        message = f": {message}"
    elif end.ending != "disk":
        return
    raise FullDiskError(
        f"the disk was full while the program ran on `{arm.lock.label}`{message}",
        hint="free disk space or set TMPDIR to a directory with more, then repeat the command to continue",
    )


def _backends(block: Block, arm: Arm) -> tuple[str, ...]:
    return arm.program_backends if block.benchmark else (arm.backend,)


def _content(block: Block, arm: Arm, missing: Iterable[int], instruments: Path | None) -> dict[str, Any]:
    """Return the request for some of an arm's indicators, or for the benchmark; JSON-ready."""
    backends = _backends(block, arm)
    settings = {"settings": dict(arm.settings), "processors": processors_of(arm.settings, backends)}
    if block.benchmark is not None:
        options = block.benchmark.options_of(arm.settings)
        after_import = {name: value for name, value in arm.settings.items() if name not in options}
        request = block.benchmark.request(
            runs=block.samples, timeout_seconds=block.timeout_seconds, options=sum(options.values(), ())
        )
        return settings | import_request(after_import, backends) | request
    return settings | {
        "backend": arm.backend,
        "samples": block.samples,
        "min_seconds": block.min_seconds,
        "max_warmup_seconds": block.max_warmup_seconds,
        "instruments": str(instruments) if instruments else None,
        "indicators": [
            {"name": run.name, "device": run.device, "dtype": run.dtype, "parameters": parameters_of(run)}
            for run in (arm.indicators[i] for i in missing)
        ],
    }


def _with_system_cuda(stack: Stack, arm: Arm) -> Stack:
    """Return a stack with the system's CUDA and cuDNN, if the arm computes on a GPU and the stack contains none.

    NVIDIA's container images set these variables (https://gitlab.com/nvidia/container-images/cuda).
    """
    cuda, cudnn = os.environ.get("CUDA_VERSION"), os.environ.get("NV_CUDNN_VERSION")
    if stack.cuda is not None or not cuda or not any(run.device == "cuda" for run in arm.indicators):
        return stack
    release = ".".join(cuda.split(".")[:2])
    return replace(stack, cuda=release, cudnn=stack.cudnn or (cudnn.partition("-")[0] if cudnn else None))


def _failures(block: Block, arm: Arm, number: int, document: dict[str, Any]) -> list[Observation]:
    """Return the same failure for every indicator of an arm that was not run."""
    stack = _planned_stack(block, arm)
    return [_observation(block, arm, number, run, stack, document) for run in arm.indicators]


def _planned_stack(block: Block, arm: Arm) -> Stack:
    """Return the stack of an arm as the lock describes it, before its environment is built."""
    return block.environment.stack if block.environment else locked_stack(arm.lock, str(arm.lock.python))


def _with_telemetry(result: dict[str, Any], end: ProcessEnd) -> dict[str, Any]:
    telemetry = summarise(end.readings, result["started"], result["started"] + result["seconds"])
    environment = dict(result.get("environment", {}))
    if abs(result["clock_jump"]) > _CLOCK_JUMP_SECONDS:
        environment["clock_jump_seconds"] = result["clock_jump"]
    elif "window" in result:
        readings = [(reading.time, reading.joules) for reading in end.readings]
        telemetry |= energy_figures(readings, SampleWindow(**result["window"]), result["loops"])
    return {**result, "telemetry": telemetry, "environment": environment}


def _unreported(end: ProcessEnd, block: Block) -> dict[str, Any]:
    """Return the result of an indicator whose process ended before the indicator reported."""
    status: Status
    if end.ending == "time":
        status, ended = "timed-out", f"killed after {block.timeout_seconds:g} seconds"
    elif end.ending == "memory":
        status, ended = "out-of-memory", f"killed above {block.memory_limit_bytes or 0:.3g} bytes"
    elif message := unknown_flag(end.error_tail):
        # XLA ends the process.
        return {"status": "unsupported", "failure": message}
    else:
        status, ended = "crashed", f"exit status {end.exit_status}"
    return {"status": status, "failure": f"{ended}: {end.error_tail}".strip()}


def _observation(
    block: Block, arm: Arm, number: int, run: IndicatorRun, stack: Stack, document: dict[str, Any]
) -> Observation:
    started = datetime.fromtimestamp(document["started"], UTC) if "started" in document else datetime.now(UTC)
    results = {name: document[name] for name in _RESULTS if name in document}
    metrics = dict(document.get("metrics", {}))
    flops = moved_bytes = 0.0
    environment = dict(document.get("environment", {}))
    if block.benchmark is not None:
        environment["stack"] = arm.label
        if options := block.benchmark.option_text(arm.settings):
            environment["options"] = options
    else:
        indicator = INDICATORS[run.name]
        parameters = indicator.complete(dict(run.parameters))
        flops, moved_bytes = indicator.flops(parameters), indicator.bytes_moved(parameters, run.dtype)
        if items := indicator.items(parameters):
            metrics["items"] = items
    return Observation(
        indicator=run,
        framework=arm.framework,
        stack=stack,
        hardware=block.hardware,
        block=block.name,
        round=number,
        arm=arm.number,
        reference=arm.reference,
        started_at=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        samples=tuple(document.get("samples", ())),
        flops=flops,
        bytes=moved_bytes,
        settings=dict(arm.settings),
        environment=environment,
        metrics=metrics,
        schema=2,
        **results,
    )
