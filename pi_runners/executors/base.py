"""Contract of an executor, which runs the tasks of a batch on machines and reports how each of them ended.

An executor runs commands and does not interpret their results. A task returns results in files that it writes, or in
its output.

A batch has a unique name. Submitting a name again returns the handle of the existing batch: a client that was killed
before it stored the handle can submit again without starting the tasks twice.

An executor keeps no state in memory. Any process that has a batch and its handle can poll, cancel and collect it.

A task ends in exactly one of the final states and stays in it. If the engine restarts a task itself, such as a requeue
after a lost node, it is still the same task. ``lost`` means that the end of the task was not observed; the task may be
submitted again.
"""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from knowledge.domain.errors import InputError, UnavailableError

EngineState = Literal["queued", "running", "done", "failed", "timed-out", "out-of-memory", "cancelled", "lost"]
"""State of a task in an engine; all but the first two are final."""
State = EngineState | Literal["waiting", "given-up"]
"""State of a task in a campaign: ``waiting`` for a submission, or ``given-up`` after attempts without a new result."""

TASK_NUMBER = "{task}"
"""Placeholder for the number of the task in the command of a batch."""
LOG = "task-{task}.log"
"""Name of the file in the batch's directory with the output of a task."""
_MOST_OUTPUT = 64 * 1024 * 1024


class ExecutorError(UnavailableError):
    """Raised when an engine does not answer or rejects a request."""

    code = "executor"


class RefusedError(ExecutorError):
    """Raised when an engine rejects a batch or is not installed; no task of the batch runs."""

    code = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tasks that are submitted together.

    Attributes:
        name: Unique name: lower-case letters, digits and hyphens, at most 50 characters.
        command: Program and arguments of each task. The word :data:`TASK_NUMBER` is replaced by the number of the task;
            all other words are passed on unchanged.
        tasks: Numbers of the tasks.
        folder: Directory of this batch only, for the executor's files and the output of the tasks.
        home: Directory that the tasks read and write, if they share a file system with the submitting process.
        inputs: Files that the tasks read; an executor without a shared file system copies them to the tasks.
    """

    name: str
    command: tuple[str, ...]
    tasks: tuple[int, ...]
    folder: Path
    home: Path
    inputs: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        # The names that all engines accept: Kubernetes allows nothing else, and Slurm splits names at commas.
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?", self.name):
            raise InputError(
                f"`{ascii(self.name)[1:-1]}` is not a valid name of a batch",
                hint="use at most 50 lower-case letters and digits, with hyphens between them",
            )
        if not self.command or not self.command[0] or self.command[0].startswith("-") or "\0" in "".join(self.command):
            raise InputError(
                f"`{ascii(' '.join(self.command))[1:-1]}` is not a valid command",
                hint="start with a program, and use no zero bytes",
            )

    def command_of(self, task: int) -> list[str]:
        """Return the command of one task."""
        return [str(task) if word == TASK_NUMBER else word for word in self.command]

    def log_file(self, task: int) -> Path:
        """Return the file with the output of a task."""
        return self.folder / LOG.format(task=task)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Status of a task.

    Attributes:
        task: Number of the task.
        state: State of the task; an executor returns those of :data:`EngineState`.
        node: Name of its node, or of the last one; empty if it is not known.
        attempts: Attempts in a row without a new result, which a campaign counts.
        reason: Reason for the state, as the engine or the task reports it.
    """

    task: int
    state: State
    node: str = ""
    attempts: int = 0
    reason: str = ""

    @property
    def final(self) -> bool:
        """Whether the state is final."""
        return self.state not in ("queued", "running")


class Executor(ABC):
    """Runs batches of tasks. Each method raises :class:`ExecutorError` if the engine cannot be reached.

    Attributes:
        name: Name of the executor.
        options: Dataclass of its options.
        sees_files: Whether tasks share a file system with this process; otherwise their output contains the results.
        poll_seconds: Interval between two polls.
        cancel_on_interrupt: Whether the tasks are cancelled when the user interrupts the command.
    """

    name: ClassVar[str]
    options: Any
    sees_files: ClassVar[bool] = True
    poll_seconds: ClassVar[float] = 2.0
    cancel_on_interrupt: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Check, without submitting anything, that the engine can be used from here.

        Raises:
            RefusedError: If its programs or its configuration are missing.
            ExecutorError: If it does not answer.
        """

    @abstractmethod
    def submit(self, batch: Batch) -> str:
        """Submit a batch, unless one of the same name exists, and return its handle.

        Raises:
            RefusedError: If the engine rejects the batch or is not installed; no task of the batch runs.
            ExecutorError: If the engine does not answer; it may nevertheless have accepted the batch.
        """

    @abstractmethod
    def find(self, batch: Batch) -> str | None:
        """Return the handle of the batch of this name, or ``None`` if the engine has no such batch."""

    @abstractmethod
    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        """Return the status of every task, in the order of the batch's tasks."""

    @abstractmethod
    def cancel(self, batch: Batch, handle: str) -> None:
        """Stop every task that is not in a final state; these tasks become ``cancelled``."""

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return the output of a task so far, as far as the engine has stored it."""
        return tail_of(batch.log_file(task), _MOST_OUTPUT)


def shell_command(batch: Batch, variable: str) -> str:
    """Return the command of a batch for a POSIX shell; ``variable`` gives the number of the task, such as ``$task``."""
    return " ".join(f'"{variable}"' if word == TASK_NUMBER else shlex.quote(word) for word in batch.command)


def tail_of(path: Path, most: int) -> str:
    """Return the end of a text file, at most ``most`` bytes; a file that cannot be read counts as empty."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - most))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
