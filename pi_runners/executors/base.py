"""The contract of an executor: a command runs somewhere, its lines and its end come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pi_runners.telemetry import Reading

Ending = Literal["exit", "time", "memory"]
"""Why a process ended: by itself, killed for its time, or killed for its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One process in one environment.

    Attributes:
        python: Interpreter of the environment.
        program: Archive that the interpreter runs.
        request: What the program is asked for; JSON-ready.
        timeout_seconds: The process is killed after this time.
        memory_limit_bytes: The process is killed when it and its children hold more; none sets no limit.
    """

    python: Path
    program: Path
    request: dict[str, Any]
    timeout_seconds: float
    memory_limit_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended.

    Attributes:
        results: Documents that the program wrote, in order; those before a crash are kept.
        exit_status: Of the process; negative for a signal.
        ending: Why it ended.
        error_tail: End of the error output.
        readings: The machine while it ran.
    """

    results: tuple[dict[str, Any], ...]
    exit_status: int
    ending: Ending = "exit"
    error_tail: str = ""
    readings: tuple[Reading, ...] = field(default=())


class Executor(Protocol):
    """Runs jobs. A job that fails is an answer, not an exception."""

    def run(self, job: Job) -> JobEnd:
        """Run one job to its end."""
