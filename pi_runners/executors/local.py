"""Runs jobs on this machine, one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from pi_runners.executors.base import Ending, Job, JobEnd
from pi_runners.telemetry import Sampler

_TAIL = 2000


class LocalExecutor:
    """One fresh process a job, in a process group of its own so that nothing outlives its time."""

    def run(self, job: Job) -> JobEnd:
        """Run one job to its end."""
        with tempfile.TemporaryDirectory(prefix="advisor-job-") as scratch:
            folder = Path(scratch)
            (folder / "request.json").write_text(json.dumps(job.request), encoding="utf-8")
            output = folder / "results.jsonl"
            output.touch()
            with (folder / "stderr").open("w+b") as errors:
                process = self._start(job, folder, output, errors.fileno())
                ending: Ending = "exit"
                with Sampler(
                    process.pid, memory_limit_bytes=job.memory_limit_bytes, stop=lambda: _kill(process)
                ) as sampler:
                    try:
                        process.wait(timeout=job.timeout_seconds)
                    except subprocess.TimeoutExpired:
                        ending = "time"
                    finally:
                        # Also after its own end: what it started must not run beside the next job.
                        _kill(process)
                        process.wait()
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
                tail = errors.read().decode("utf-8", "replace")
            return JobEnd(
                results=tuple(json.loads(line) for line in _whole_lines(output)),
                exit_status=process.returncode,
                ending="memory" if sampler.exceeded else ending,
                error_tail=tail,
                readings=tuple(sampler.readings),
            )

    def _start(self, job: Job, folder: Path, output: Path, errors: int) -> subprocess.Popen[bytes]:
        # `-I` keeps the user's site-packages, PYTHONPATH and the working directory out of the measured environment.
        command = [str(job.python), "-I", str(job.program), "measure", str(folder / "request.json"), str(output)]
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
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]
