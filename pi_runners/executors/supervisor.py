"""Supervisor of a local batch: ``python -m pi_runners.executors.supervisor FOLDER LOCK`` runs its tasks in order."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from knowledge.domain.shared_files import write_atomically
from pi_runners.execution.subprocess_runner import kill_group
from pi_runners.executors.base import LOG

STATUS = "task-{task}.json"


def supervise(folder: Path, lock: int) -> None:
    """Run the tasks of a batch, until all have ended or the batch is cancelled.

    Args:
        folder: Directory of the batch.
        lock: File descriptor of the batch's lock file, with the lock held.
    """
    batch = json.loads((folder / "batch.json").read_text(encoding="utf-8"))
    write_document(folder / "supervisor.json", _identity(os.getpid()))
    for task, command in batch["tasks"]:
        if (folder / "cancelled").exists():
            return
        _run(folder, task, command, lock)


def _run(folder: Path, task: int, command: list[str], lock: int) -> None:
    status = folder / STATUS.format(task=task)
    with (folder / LOG.format(task=task)).open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # If the supervisor dies, the task still holds the lock and is not reported as lost while it runs.
                pass_fds=(lock,),
            )
        except OSError as error:
            write_document(status, {"state": "failed", "reason": f"{command[0]}: {error.strerror}", "final": True})
            return
        write_document(status, {"state": "running", **_identity(process.pid)})
        process.wait()
        # Its children must not run during the next task.
        kill_group(process)
    if process.returncode == 0:
        state, reason = "done", ""
    elif (folder / "cancelled").exists():
        state, reason = "cancelled", ""
    elif process.returncode > 0:
        state, reason = "failed", f"exit status {process.returncode}"
    else:
        state, reason = "failed", f"killed by {signal.Signals(-process.returncode).name}"
    write_document(status, {"state": state, "reason": reason, "final": True})


def _identity(pid: int) -> dict[str, Any]:
    with contextlib.suppress(psutil.Error):
        return {"pid": pid, "started": psutil.Process(pid).create_time()}
    return {}


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json.dumps(document))


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), int(sys.argv[2]))
