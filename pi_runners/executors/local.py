"""Runs jobs on this machine, one at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from pi_runners.executors.base import Job, JobEnd

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
                status = self._wait(job, folder, output, errors.fileno())
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _TAIL))
                tail = errors.read().decode("utf-8", "replace")
            results = tuple(json.loads(line) for line in _whole_lines(output))
            return JobEnd(results=results, exit_status=status, error_tail=tail)

    def _wait(self, job: Job, folder: Path, output: Path, errors: int) -> int | None:
        # `-I` keeps the user's site-packages, PYTHONPATH and the working directory out of the measured environment.
        command = [str(path) for path in (job.python, "-I", job.program, folder / "request.json", output)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=folder,
            env={**os.environ, **job.variables},
            start_new_session=True,
        )
        try:
            return process.wait(timeout=job.timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _whole_lines(path: Path) -> list[str]:
    """Return complete lines: a process killed while writing leaves half a line, which was not reported."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]
