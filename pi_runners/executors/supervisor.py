"""Runs the tasks of a local batch, one after another: ``python -m pi_runners.executors.supervisor FOLDER LOCK``."""

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

from knowledge.domain.atomic_file import write_atomically
from pi_runners.telemetry import Sampler

STATUS = "task-{task}.json"
OUTPUT = "task-{task}.log"


def supervise(folder: Path, lock: int) -> None:
    """Run what a batch asks for; what a former supervisor ended is not run again.

    Args:
        folder: The batch's folder.
        lock: Descriptor of its lock file, which is held.
    """
    asked = json.loads((folder / "batch.json").read_text(encoding="utf-8"))
    write_document(folder / "supervisor.json", _identity(os.getpid()))
    for task, command in asked["tasks"]:
        if (folder / "cancelled").exists():
            return
        _run(folder, task, command, asked, lock)


def _run(folder: Path, task: int, command: list[str], asked: dict[str, Any], lock: int) -> None:
    status = folder / STATUS.format(task=task)
    with (folder / OUTPUT.format(task=task)).open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # Should this process die, the task still holds the lock: nobody takes it for lost while it runs.
                pass_fds=(lock,),
            )
        except OSError as error:
            write_document(status, {"state": "failed", "reason": f"{command[0]}: {error.strerror}", "final": True})
            return
        write_document(status, {"state": "running", **_identity(process.pid)})
        late = False
        with Sampler(process.pid, memory_limit_bytes=asked["memory_bytes"], stop=lambda: _kill(process.pid)) as sampler:
            try:
                process.wait(timeout=asked["seconds"])
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _kill(process.pid)
                process.wait()
    if sampler.exceeded:
        state, reason = "out-of-memory", f"killed above {asked['memory_bytes']:.3g} bytes"
    elif late:
        state, reason = "timed-out", f"killed after {asked['seconds']:g} seconds"
    elif process.returncode == 0:
        state, reason = "done", ""
    elif (folder / "cancelled").exists():
        state, reason = "cancelled", ""
    else:
        state, reason = "failed", _ended(process.returncode)
    write_document(status, {"state": state, "reason": reason, "final": True})


def _ended(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _identity(pid: int) -> dict[str, Any]:
    with contextlib.suppress(psutil.Error):
        return {"pid": pid, "started": psutil.Process(pid).create_time()}
    return {}


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file completely or not at all."""
    write_atomically(path, json.dumps(document))


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), int(sys.argv[2]))
