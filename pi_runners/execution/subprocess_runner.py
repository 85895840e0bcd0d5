"""Runs processes in measured environments on this machine, and reports how they ended."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from knowledge.domain.documents import lines_of
from pi_runners.execution.telemetry import INTERVAL_SECONDS, Reading, Sampler

_TAIL = 2000

_LEAST_FREE_BYTES = 1 << 20
"""Free disk below which a process that failed may have lost its message."""

Ending = Literal["exit", "time", "memory", "stopped", "disk"]
"""How a process ended: by itself, killed at its time limit, killed at its memory limit, killed because the runner was
stopped, or it failed while the disk was full. The last two are not failures of the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRequest:
    """A process to run in an environment.

    Attributes:
        python: Interpreter of the environment.
        program: Archive for the interpreter to run.
        content: Request that the program reads; JSON-ready.
        timeout_seconds: Time limit, after which the process is killed.
        memory_limit_bytes: Memory limit of the process and its children; above it they are killed. None for no limit.
        part: Part of the program to run: ``measure`` for indicators, ``benchmark`` for the command of a project,
            ``trial`` to run this command once.
        environment: Environment variables to add to those of this process.
    """

    python: Path
    program: Path
    content: dict[str, Any]
    timeout_seconds: float
    memory_limit_bytes: float | None = None
    part: Literal["measure", "benchmark", "trial"] = "measure"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How a process ended.

    Attributes:
        results: Documents that the program wrote, in order; they include those before a crash.
        exit_status: Exit status; negative for a signal.
        ending: Reason for the end.
        error_tail: End of the error output.
        readings: Telemetry of the machine during the run.
    """

    results: tuple[dict[str, Any], ...]
    exit_status: int
    ending: Ending = "exit"
    error_tail: str = ""
    readings: tuple[Reading, ...] = field(default=())


class Runner(Protocol):
    """Runs processes; a failing process is a result, not an exception."""

    def run(self, request: ProcessRequest) -> ProcessEnd:
        """Run one process to its end."""


class FreshProcesses:
    """Runs one process at a time, each in its own process group, so that all of its children can be killed with it."""

    def __init__(self, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """Create a runner that reads telemetry in these intervals."""
        self.stopped = False
        self._interval = interval_seconds
        self._running: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Kill the running process, from a signal handler or another thread, and start no other one.

        The results of the running process so far are returned.
        """
        self.stopped = True
        if (running := self._running) is not None and running.returncode is None:
            kill_group(running)

    def run(self, request: ProcessRequest) -> ProcessEnd:
        """Run one process to its end."""
        try:
            return self._run(request)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return ProcessEnd(results=(), exit_status=1, ending="disk")

    def _run(self, request: ProcessRequest) -> ProcessEnd:
        if self.stopped:
            return ProcessEnd(results=(), exit_status=-signal.SIGKILL, ending="stopped")
        with tempfile.TemporaryDirectory(prefix="advisor-process-") as scratch:
            folder = Path(scratch)
            (folder / "request.json").write_text(json.dumps(request.content), encoding="utf-8")
            output = folder / "results.jsonl"
            output.touch()
            ending: Ending = "exit"
            with (folder / "stderr").open("w+b") as errors:
                process = self._running = self._start(request, folder, output, errors.fileno())
                try:
                    if self.stopped:
                        # `stop` was called while the process was being started, and had nothing to kill.
                        kill_group(process)
                    with Sampler(
                        process.pid,
                        memory_limit_bytes=request.memory_limit_bytes,
                        stop=lambda: kill_group(process),
                        interval_seconds=self._interval,
                    ) as sampler:
                        process.wait(timeout=request.timeout_seconds)
                except subprocess.TimeoutExpired:
                    ending = "time"
                finally:
                    # Also after a normal end: its children must not run during the next process.
                    kill_group(process)
                    process.wait()
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
                tail = errors.read().decode("utf-8", "replace")
            if ending == "exit" and process.returncode and shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
                ending = "disk"
            return ProcessEnd(
                results=tuple(json.loads(line) for line in _whole_lines(output)),
                exit_status=process.returncode,
                ending="memory" if sampler.exceeded else "stopped" if self.stopped else ending,
                error_tail=tail,
                readings=tuple(sampler.readings),
            )

    def _start(self, request: ProcessRequest, folder: Path, output: Path, errors: int) -> subprocess.Popen[bytes]:
        # `-I` excludes the user's site-packages, PYTHONPATH and the working directory.
        return subprocess.Popen(
            [request.python, "-I", request.program, request.part, folder / "request.json", output],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=folder,
            env={**os.environ, **request.environment},
            start_new_session=True,
        )


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group by its leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _whole_lines(path: Path) -> list[str]:
    """Return the complete lines of a file: a process that is killed while it writes leaves an incomplete last line."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line for line in lines_of(text[: text.rfind("\n") + 1]) if line]
