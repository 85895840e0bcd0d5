"""Runs batches on this machine, one task at a time, in a supervisor process for each batch.

The supervisor continues after the submitting process ends. The supervisor and its running task hold a lock on a file in
the batch's directory: while the lock is held, at least one of them is alive. Process numbers alone do not show that,
since the system reuses them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import lock_file, read_document
from pi_runners.executors.base import Batch, Executor, ExecutorError, RefusedError, TaskStatus
from pi_runners.executors.supervisor import STATUS, write_document

_GRACE_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Options of the executor that runs tasks on this machine.

    Attributes:
        environments: Directory in which environments are built; the tasks share it. By default in the user's cache.
    """

    environments: str = ""


class LocalExecutor(Executor):
    """This machine."""

    name = "local"
    options: LocalOptions
    poll_seconds = 0.3
    cancel_on_interrupt = True

    def __init__(self, options: LocalOptions | None = None) -> None:
        self.options = options or LocalOptions()

    def check(self) -> None:
        """Do nothing: this machine is always there."""

    def submit(self, batch: Batch) -> str:
        folder = batch.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(folder) as lock:
                if lock is None or (folder / "batch.json").exists():
                    return batch.name
                tasks = [[task, batch.command_of(task)] for task in batch.tasks]
                write_document(folder / "batch.json", {"tasks": tasks})
                with (folder / "supervisor.log").open("ab") as log:
                    subprocess.Popen(
                        [sys.executable, "-m", "pi_runners.executors.supervisor", str(folder), str(lock.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        # The supervisor inherits the lock, so that the lock is held without interruption.
                        pass_fds=(lock.fileno(),),
                        start_new_session=True,
                    )
        except (OSError, InputError) as error:
            raise RefusedError(
                f"the supervisor process cannot be started: {error}",
                hint="free memory, disk space or processes, then repeat the command to continue",
            ) from None
        return batch.name

    def find(self, batch: Batch) -> str | None:
        return batch.name if (batch.folder / "batch.json").exists() else None

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        with _lock(batch.folder) as lock:
            alive = lock is None
            # If the lock was free, no task starts or ends while the documents are read: only its holder writes them.
            documents = {task: read_document(batch.folder / STATUS.format(task=task)) for task in batch.tasks}
        return tuple(_status(task, documents[task], alive=alive) for task in batch.tasks)

    def cancel(self, batch: Batch, handle: str) -> None:
        folder = batch.folder
        (folder / "cancelled").touch()
        status_files = [STATUS.format(task=task) for task in batch.tasks]
        # SIGTERM first: after SIGKILL, a process cannot report that it was cancelled.
        for name in status_files:
            _signal(read_document(folder / name), signal.SIGTERM)
        start = time.monotonic()
        while True:
            with _lock(folder) as lock:
                if lock is not None:
                    self._mark_cancelled(batch)
                    return
            if time.monotonic() > start + _GRACE_SECONDS:
                for name in ("supervisor.json", *status_files):
                    _signal(read_document(folder / name), signal.SIGKILL)
            if time.monotonic() > start + _GRACE_SECONDS + _PATIENCE_SECONDS:
                raise ExecutorError(
                    f"batch `{batch.name}` cannot be stopped: one of its processes does not react to SIGKILL",
                    hint="look for processes in state D with `ps`, then repeat the command",
                )
            time.sleep(0.05)

    def _mark_cancelled(self, batch: Batch) -> None:
        for task in batch.tasks:
            path = batch.folder / STATUS.format(task=task)
            if not read_document(path).get("final"):
                write_document(path, {"state": "cancelled", "final": True})


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[IO[str] | None]:
    """Yield the lock file of the batch with the lock held, or ``None`` if another process holds the lock."""
    try:
        file = lock_file(folder / "lock")
    except OSError as error:
        raise ExecutorError(f"`{folder}` cannot be written: {error.strerror}") from None
    with file or contextlib.nullcontext() as lock:
        yield lock


def _status(task: int, document: dict[str, Any], *, alive: bool) -> TaskStatus:
    node = os.uname().nodename
    if document.get("final"):
        return TaskStatus(task=task, state=document["state"], node=node, reason=document.get("reason", ""))
    if not alive:
        return TaskStatus(
            task=task, state="lost", node=node, reason="its supervisor has ended without reporting a result"
        )
    return TaskStatus(task=task, state="running" if document else "queued", node=node if document else "")


def _signal(document: dict[str, Any], number: signal.Signals) -> None:
    """Send a signal to the process group in a status document, if its process is still the same.

    The start time is compared, since the system reuses process numbers.
    """
    if document.get("final") or "pid" not in document:
        return
    with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
        if abs(psutil.Process(document["pid"]).create_time() - document["started"]) < 1.0:
            os.killpg(document["pid"], number)
