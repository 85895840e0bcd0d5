"""Runs batches on this machine, one task at a time, under a supervisor of their own.

The supervisor goes on when whoever submitted ends. It holds a lock on a file of the batch's folder, and so does the
task that it runs: as long as the lock is held somebody is alive, whatever process numbers say.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from pi_runners.executors.base import Batch, ExecutorError, RefusedError, TaskStatus, tail_of
from pi_runners.executors.supervisor import OUTPUT, STATUS, write_document

_MOST_OUTPUT = 64 * 1024 * 1024
_GRACE_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0


class LocalExecutor:
    """This machine; see :mod:`pi_runners.executors.base` for the contract."""

    sees_files = True

    def check(self) -> None:
        """Do nothing: this machine is always there; see :meth:`Executor.check`."""

    def submit(self, batch: Batch) -> str:
        """Start a supervisor, unless the batch was submitted before."""
        folder = batch.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(folder) as lock:
                if lock is None or (folder / "batch.json").exists():
                    return batch.name
                document = {
                    "tasks": [[task, batch.command_of(task)] for task in batch.tasks],
                    "seconds": batch.seconds,
                    "memory_bytes": batch.memory_bytes,
                }
                write_document(folder / "batch.json", document)
                with (folder / "supervisor.log").open("ab") as log:
                    subprocess.Popen(
                        [sys.executable, "-m", "pi_runners.executors.supervisor", str(folder), str(lock.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        # The supervisor takes the lock over: there is no moment at which nobody holds it.
                        pass_fds=(lock.fileno(),),
                        start_new_session=True,
                    )
        except OSError as error:
            raise RefusedError(
                f"no process can be started on this machine: {error}", hint="the same command goes on when it can"
            ) from None
        return batch.name

    def find(self, batch: Batch) -> str | None:
        """Return the batch's handle, if it was submitted."""
        return batch.name if (batch.folder / "batch.json").exists() else None

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        """Return the status of every task."""
        with _lock(batch.folder) as lock:
            alive = lock is None
            # Read while nobody can begin or end: who holds the lock is the only one who writes.
            told = {task: _read(batch.folder / STATUS.format(task=task)) for task in batch.tasks}
        return tuple(_status(task, told[task], alive=alive) for task in batch.tasks)

    def cancel(self, batch: Batch, handle: str) -> None:
        """End every task that has not ended."""
        folder = batch.folder
        (folder / "cancelled").touch()
        tasks = [STATUS.format(task=task) for task in batch.tasks]
        # SIGTERM first: a process that SIGKILL ended cannot report that it was cancelled.
        for name in tasks:
            _end(_read(folder / name), signal.SIGTERM)
        begun = time.monotonic()
        while True:
            with _lock(folder) as lock:
                if lock is not None:
                    self._mark_cancelled(batch)
                    return
            if time.monotonic() > begun + _GRACE_SECONDS:
                for name in ("supervisor.json", *tasks):
                    _end(_read(folder / name), signal.SIGKILL)
            if time.monotonic() > begun + _GRACE_SECONDS + _PATIENCE_SECONDS:
                raise ExecutorError(
                    f"batch `{batch.name}` does not end: a process of it ignores SIGKILL",
                    hint="see `ps` for processes in state D; the same command tries again",
                )
            time.sleep(0.05)

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return what a task has written so far."""
        return tail_of(batch.folder / OUTPUT.format(task=task), _MOST_OUTPUT)

    def _mark_cancelled(self, batch: Batch) -> None:
        for task in batch.tasks:
            path = batch.folder / STATUS.format(task=task)
            if not _read(path).get("final"):
                write_document(path, {"state": "cancelled", "final": True})


@contextlib.contextmanager
def _lock(folder: Path) -> Any:
    """Yield the batch's lock, held, or none where it is another's."""
    try:
        file: IO[str] = (folder / "lock").open("a")
    except OSError as error:
        raise ExecutorError(f"`{folder}` cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        # Closing the file gives the lock back, unless another process holds the same opened file.
        yield file


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _status(task: int, told: dict[str, Any], *, alive: bool) -> TaskStatus:
    node = os.uname().nodename
    if told.get("final"):
        return TaskStatus(task=task, state=told["state"], node=node, reason=told.get("reason", ""))
    if not alive:
        return TaskStatus(task=task, state="lost", node=node, reason="the process that watched it is gone")
    return TaskStatus(task=task, state="running" if told else "queued", node=node if told else "")


def _end(process: dict[str, Any], how: signal.Signals) -> None:
    """Signal a process group, if it is still the one that was noted: process numbers are given again."""
    import psutil

    if process.get("final") or "pid" not in process:
        return
    with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
        if abs(psutil.Process(process["pid"]).create_time() - process["started"]) < 1.0:
            os.killpg(process["pid"], how)
