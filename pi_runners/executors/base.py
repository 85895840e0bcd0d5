"""The contract of an executor: it brings the tasks of a batch to machines, and tells how each of them ended.

An executor runs commands, and knows nothing of what they measure: results travel in files that a task writes, or in its
output.

A batch is submitted under a name of its own. Submitting a name again gives the handle of the batch that is there
already: whoever submits may be killed between asking and noting the answer, and asks again.

An executor keeps nothing in memory that it needs later. Any process that knows a batch and its handle may poll, cancel
and collect it.

A task ends in exactly one of the final states, and stays there. What an engine runs again by itself (a requeue after a
lost node) is one task all the while. ``lost`` is what ended without anybody having seen how: nothing is known of it,
and it may be run again.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from knowledge.domain.errors import InputError, UnavailableError

State = Literal["queued", "running", "done", "failed", "timed-out", "out-of-memory", "cancelled", "lost"]
"""What a task is doing, or how it ended; all but the first two are final."""

PLACE = "{task}"
"""A word of a batch's command that stands for the task's number."""


class ExecutorError(UnavailableError):
    """Raised when an engine cannot be asked, or refuses what it is asked for."""

    code = "executor"


class RefusedError(ExecutorError):
    """Raised when an engine refuses a batch, or is not there at all: nothing of it runs."""

    code = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tasks that are submitted together.

    Attributes:
        name: Unique to it: lower-case letters, digits and hyphens, at most 50.
        command: What each task runs: a program and its arguments. The word :data:`PLACE` stands for the task's number;
            every other word reaches the program as it is, whatever it holds.
        tasks: Numbers of the tasks.
        folder: Where the executor keeps what it needs, and the output of the tasks. It is the batch's own.
        home: What the tasks read and write, where they see the same files as whoever submits.
        inputs: What tasks read; an executor whose tasks do not see ``home`` brings these files to them.
        seconds: Longest time of one task; none leaves it to the engine.
        memory_bytes: Most memory of one task; none leaves it to the engine.
    """

    name: str
    command: tuple[str, ...]
    tasks: tuple[int, ...]
    folder: Path
    home: Path
    inputs: tuple[Path, ...] = ()
    seconds: float | None = None
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        # Engines take more, and each reads something into it: Slurm commas, Kubernetes nothing but this.
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?", self.name):
            raise InputError(
                f"`{ascii(self.name)[1:-1]}` is not a name of a batch",
                hint="take lower-case letters, digits and hyphens between them, at most 50",
            )
        if not self.command or not self.command[0] or self.command[0].startswith("-") or "\0" in "".join(self.command):
            raise InputError(
                f"`{ascii(' '.join(self.command))[1:-1]}` is not a command",
                hint="begin with a program, and use no zero bytes",
            )

    def command_of(self, task: int) -> list[str]:
        """Return what one task runs."""
        return [str(task) if word == PLACE else word for word in self.command]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """What a task is doing.

    Attributes:
        task: Its number.
        state: What it is doing.
        node: Where, or empty where that is not known.
        reason: Why it is in this state, in the engine's words.
    """

    task: int
    state: State
    node: str = ""
    reason: str = ""

    @property
    def final(self) -> bool:
        """Whether it stays so."""
        return self.state not in ("queued", "running")


class Executor(Protocol):
    """Where batches run."""

    @property
    def sees_files(self) -> bool:
        """Whether files that tasks write are seen here; else results come back in their output."""

    def check(self) -> None:
        """Check, without submitting anything, that the engine can be used from here.

        Raises:
            RefusedError: If its programs or its configuration are missing.
        """

    def submit(self, batch: Batch) -> str:
        """Submit a batch, unless one of its name is there already, and return its handle.

        Raises:
            RefusedError: If the engine refuses it, or is not there; then no task of it runs.
            ExecutorError: If the engine does not answer; then it may have it all the same.
        """

    def find(self, batch: Batch) -> str | None:
        """Return the handle of the batch of this name, or none where the engine knows none.

        Raises:
            ExecutorError: If the engine cannot be reached.
        """

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        """Return the status of every task, in order of the batch's tasks.

        Raises:
            ExecutorError: If the engine cannot be reached.
        """

    def cancel(self, batch: Batch, handle: str) -> None:
        """End every task that has not ended; those become ``cancelled``. What has ended stays as it is.

        Raises:
            ExecutorError: If the engine cannot be reached.
        """

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return what a task has written so far, as far as the engine kept it.

        Raises:
            ExecutorError: If the engine cannot be reached.
        """


def shell_command(batch: Batch, variable: str) -> str:
    """Return a batch's command as words of a POSIX shell, in which a variable such as ``$task`` holds the number."""
    return " ".join(f'"{variable}"' if word == PLACE else shlex.quote(word) for word in batch.command)


def tail_of(path: Path, most: int) -> str:
    """Return the end of a text file; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - most))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
