"""The contract of an executor: a command runs somewhere, its lines and its end come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One process in one environment.

    Attributes:
        python: Interpreter of the environment.
        program: Archive that the interpreter runs.
        request: What the program is asked for; JSON-ready.
        timeout_seconds: The process is killed after this time.
        variables: Environment variables set for the process.
    """

    python: Path
    program: Path
    request: dict[str, Any]
    timeout_seconds: float
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended.

    Attributes:
        results: Documents that the program wrote, in order; those before a crash are kept.
        exit_status: Of the process; negative for a signal, none where it was killed for its time.
        error_tail: End of the error output.
    """

    results: tuple[dict[str, Any], ...]
    exit_status: int | None
    error_tail: str


class Executor(Protocol):
    """Runs jobs. A job that fails is an answer, not an exception."""

    def run(self, job: Job) -> JobEnd:
        """Run one job to its end."""
