"""Jobs become observations: stacks interleaved in rounds, each in a fresh process."""

from __future__ import annotations

import importlib.resources
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation, Scalar, Status
from knowledge.domain.stack import Stack
from pi_runners.environment import BuiltEnvironment, EnvironmentBuildError, build_environment, locked_stack
from pi_runners.executors.base import Executor, Job, JobEnd
from pi_runners.indicators import INDICATORS
from pi_runners.matrix import Slot

_SHIPPED = ("harness", "indicators", "backends")


class ObservationSink(Protocol):
    """Where observations go, at once: what was accepted is safe from then on."""

    def add(self, observations: Iterable[Observation]) -> object:
        """Accept observations; one that is known already is not counted twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Observations to take together on one machine.

    Attributes:
        name: Name of the block, unique to it.
        slots: The stacks, in order.
        rounds: Passes over all slots.
        samples: Samples an indicator in each process.
        min_seconds: Least duration of one sample.
        timeout_seconds: Longest time of one process.
        hardware: The machine.
        settings: Run-time switches, set as environment variables of the same name.
    """

    name: str
    slots: tuple[Slot, ...]
    rounds: int
    hardware: HardwareProfile
    samples: int = 20
    min_seconds: float = 0.05
    max_warmup_seconds: float = 5.0
    timeout_seconds: float = 600.0
    settings: dict[str, Scalar]


def run_block(
    block: Block,
    *,
    sink: ObservationSink,
    executor: Executor,
    environments: Path,
    done: frozenset[tuple[int, int]] = frozenset(),
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Take the observations of a block.

    Args:
        block: What to measure.
        sink: Receives the observations of each process as soon as it ends.
        executor: Runs the processes.
        environments: Directory in which environments are kept.
        done: ``(round, slot)`` pairs already observed, which are not run again.
        progress: Called with a short text before each step.

    Returns:
        How many observations were taken.
    """
    program = write_program(environments)
    built: dict[int, BuiltEnvironment | EnvironmentBuildError] = {}
    for slot in block.slots:
        progress(f"environment {slot.lock.label}")
        try:
            built[slot.number] = build_environment(slot.lock, environments)
        except EnvironmentBuildError as error:
            built[slot.number] = error
    taken = 0
    for number in range(block.rounds):
        # Each round starts one place further, so that no stack always runs behind the same one.
        shift = number % len(block.slots)
        for slot in block.slots[shift:] + block.slots[:shift]:
            progress(f"round {number + 1}/{block.rounds} {slot.lock.label}")
            if (number, slot.number) in done or not slot.indicators:
                continue
            observations = _observe(block, slot, number, built[slot.number], program, executor)
            sink.add(observations)
            taken += len(observations)
    return taken


def _observe(
    block: Block,
    slot: Slot,
    number: int,
    environment: BuiltEnvironment | EnvironmentBuildError,
    program: Path,
    executor: Executor,
) -> list[Observation]:
    if isinstance(environment, EnvironmentBuildError):
        stack = locked_stack(slot.lock, str(slot.lock.python))
        document = {"status": "not-installed", "failure": environment.message[-2000:]}
        return [_observation(block, slot, number, run, stack, document) for run in slot.indicators]
    request = {
        "backend": slot.backend,
        "device": slot.indicators[0].device,
        "dtype": slot.indicators[0].dtype,
        "samples": block.samples,
        "min_seconds": block.min_seconds,
        "max_warmup_seconds": block.max_warmup_seconds,
        "indicators": [{"name": run.name, "parameters": dict(run.parameters)} for run in slot.indicators],
    }
    end = executor.run(
        Job(
            python=environment.python,
            program=program,
            request=request,
            timeout_seconds=block.timeout_seconds,
            variables={name: str(value) for name, value in block.settings.items()},
        )
    )
    documents = {result["indicator"]: result for result in end.results}
    lost = _lost(end)
    return [
        _observation(block, slot, number, run, environment.stack, documents.get(run.name, lost))
        for run in slot.indicators
    ]


def _lost(end: JobEnd) -> dict[str, Any]:
    """Describe an indicator whose process ended before it reported."""
    status: Status = "timed-out" if end.exit_status is None else "crashed"
    ended = "killed for its time" if end.exit_status is None else f"exit status {end.exit_status}"
    return {"status": status, "failure": f"{ended}: {end.error_tail}".strip()}


def _observation(
    block: Block, slot: Slot, number: int, run: IndicatorRun, stack: Stack, document: dict[str, Any]
) -> Observation:
    indicator = INDICATORS[run.name]
    parameters = dict(run.parameters)
    return Observation(
        indicator=run,
        framework=slot.framework,
        stack=stack,
        hardware=block.hardware,
        block=block.name,
        round=number,
        slot=slot.number,
        reference=slot.reference,
        started_at=document.get("started_at") or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        status=document["status"],
        samples=tuple(document.get("samples", ())),
        loops=document.get("loops", 0),
        warmup_seconds=document.get("warmup_seconds", 0.0),
        steady=document.get("steady", False),
        flops=indicator.flops(parameters),
        bytes=indicator.bytes_moved(parameters, run.dtype),
        error=document.get("error"),
        tolerance=document.get("tolerance"),
        settings=dict(block.settings),
        environment=document.get("environment", {}),
        failure=document.get("failure", ""),
    )


def write_program(directory: Path) -> Path:
    """Write what runs inside measured environments as one archive, and return its path.

    The measured environment sees the harness, the indicators and the backends, and nothing else of this one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "harness.pyz"
    root = importlib.resources.files("pi_runners")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "import sys\nfrom pi_runners.harness.worker import main\nsys.exit(main())\n")
        archive.writestr("pi_runners/__init__.py", "")
        for folder in _SHIPPED:
            for file in sorted(root.joinpath(folder).iterdir(), key=lambda f: f.name):
                if file.name.endswith(".py"):
                    archive.writestr(f"pi_runners/{folder}/{file.name}", file.read_bytes())
    return path
