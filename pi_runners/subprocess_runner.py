"""Runs one process in a measured environment on this machine, and says how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from knowledge.domain.lines import lines_of
from pi_runners.telemetry import INTERVAL_SECONDS, Reading, Sampler

_TAIL = 2000

Ending = Literal["exit", "time", "memory", "stopped"]
"""Why a process ended: by itself, killed for its time, killed for its memory, or because its runner was stopped, which
says nothing about the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRequest:
    """What to run in one environment.

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
class ProcessEnd:
    """How a process ended.

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


class Runner(Protocol):
    """Runs processes. One that fails is an answer, not an exception."""

    def run(self, asked: ProcessRequest) -> ProcessEnd:
        """Run one process to its end."""


class FreshProcesses:
    """One fresh process at a time, in a process group of its own so that nothing outlives its time.

    Attributes:
        stopped: Whether :meth:`stop` was called; nothing is run from then on.
    """

    def __init__(self, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """Set how often the machine is read while a process runs."""
        self.stopped = False
        self._interval = interval_seconds
        self._running: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the running process now, from a signal handler or another thread; its results so far are kept."""
        self.stopped = True
        if (running := self._running) is not None:
            _kill(running)

    def run(self, asked: ProcessRequest) -> ProcessEnd:
        """Run one process to its end."""
        if self.stopped:
            return ProcessEnd(results=(), exit_status=-signal.SIGKILL, ending="stopped")
        with tempfile.TemporaryDirectory(prefix="advisor-process-") as scratch:
            folder = Path(scratch)
            (folder / "request.json").write_text(json.dumps(asked.request), encoding="utf-8")
            output = folder / "results.jsonl"
            output.touch()
            with (folder / "stderr").open("w+b") as errors:
                process = self._running = self._start(asked, folder, output, errors.fileno())
                if self.stopped:
                    # Stopped while it was started, when there was nothing to end yet.
                    _kill(process)
                ending: Ending = "exit"
                with Sampler(
                    process.pid,
                    memory_limit_bytes=asked.memory_limit_bytes,
                    stop=lambda: _kill(process),
                    interval_seconds=self._interval,
                ) as sampler:
                    try:
                        process.wait(timeout=asked.timeout_seconds)
                    except subprocess.TimeoutExpired:
                        ending = "time"
                    finally:
                        # Also after its own end: what it started must not run beside the next asked.
                        self._running = None
                        _kill(process)
                        process.wait()
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
                tail = errors.read().decode("utf-8", "replace")
            return ProcessEnd(
                results=tuple(json.loads(line) for line in _whole_lines(output)),
                exit_status=process.returncode,
                ending="memory" if sampler.exceeded else "stopped" if self.stopped else ending,
                error_tail=tail,
                readings=tuple(sampler.readings),
            )

    def _start(self, asked: ProcessRequest, folder: Path, output: Path, errors: int) -> subprocess.Popen[bytes]:
        # `-I` keeps the user's site-packages, PYTHONPATH and the working directory out of the measured environment.
        command = [str(asked.python), "-I", str(asked.program), "measure", str(folder / "request.json"), str(output)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=folder,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _whole_lines(path: Path) -> list[str]:
    """Return complete lines: a process killed while writing leaves half a line, which was not reported."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line for line in lines_of(text[: text.rfind("\n") + 1]) if line]
