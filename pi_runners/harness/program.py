"""Runs the benchmark of a project in this environment: copies the project, runs the command, reads its metric."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from typing import IO, Any, Dict, List, NamedTuple, Optional

from pi_runners.harness.timing import rounded

_LINE_BYTES = 65536
_TAIL_BYTES = 1500
_MOST_VALUES = 100
_DRAIN_SECONDS = 5.0
_KILLED_DRAIN_SECONDS = 0.5
_OWN_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__")


class ProgramError(Exception):
    """Raised when a run of the command gives no result.

    Attributes:
        status: Status of the observation.
    """

    def __init__(self, status: str, reason: str, output: str = "") -> None:
        # The reason is the last line, which tables print.
        super().__init__("{}\n{}".format(output.strip(), reason).strip())
        self.status = status


class Run(NamedTuple):
    """One run of the command.

    Attributes:
        seconds: Duration.
        values: Texts that the pattern matched, in order.
        output: End of what the command printed.
    """

    seconds: float
    values: List[str]
    output: str


def measure_program(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run the command of a request, first to warm up, then once for each sample.

    All runs share one copy of the project, which is made in the working directory.

    Args:
        request: The request of :class:`pi_runners.benchmark.Benchmark`.

    Returns:
        The result, as JSON-ready values.
    """
    folder = os.path.join(os.getcwd(), "project")
    shutil.copytree(request["directory"], folder, symlinks=True)
    runs, values = [], []
    try:
        for number in range(request["warmup_runs"] + request["runs"]):
            run = run_command(request["command"], folder, request["pattern"], request["timeout_seconds"])
            changed = changed_file(folder, request["files"])
            if changed is not None:
                raise ProgramError(
                    "error",
                    "the program changed `{}`, which is one of the benchmark's `files`: its runs are not comparable; "
                    "write to another file, or narrow `files`".format(changed),
                )
            # A metric that is missing is reported by the first run.
            value = read_value(run, request["pattern"])
            if number >= request["warmup_runs"]:
                values.append(value)
            runs.append(run)
    except ProgramError as failure:
        return {"status": failure.status, "failure": str(failure)[-2 * _TAIL_BYTES :]}
    warmups, timed = runs[: request["warmup_runs"]], runs[request["warmup_runs"] :]
    higher = request["better"] == "higher"
    return {
        "status": "ok",
        "samples": rounded([1 / value if higher else value * request["seconds_per_unit"] for value in values]),
        "loops": 1,
        "warmup_seconds": round(sum(run.seconds for run in warmups), 6),
        # The project decides how many runs warm the program up.
        "steady": True,
        "metrics": {
            "value": statistics.median(values),
            "seconds_per_run": statistics.median(run.seconds for run in timed),
            **peak_memory(),
        },
    }


def run_command(command: List[str], folder: str, pattern: str, timeout_seconds: float) -> Run:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        folder: Working directory.
        pattern: Regular expression to search for in each line of the output; empty for none.
        timeout_seconds: Maximum duration.

    Raises:
        ProgramError: If the command cannot be started, exceeds the time, or ends with an error.
    """
    started = time.perf_counter()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment_of(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        reason = "`{}` cannot be started: {}; the stack's environment does not contain it".format(
            command[0], error.strerror
        )
        raise ProgramError("error", reason) from None
    assert process.stdout is not None
    reader = _OutputReader(process.stdout, pattern)
    reader.start()
    # `wait` with a time limit checks in intervals of up to 50 ms, which would be part of the duration.
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout_seconds, expire)
    timer.daemon = True
    timer.start()
    status = process.wait()
    seconds = time.perf_counter() - started
    timer.cancel()
    # A process that the command left behind may keep the output open.
    reader.join(_KILLED_DRAIN_SECONDS if expired.is_set() else _DRAIN_SECONDS)
    output = reader.tail.decode("utf-8", "replace")
    if expired.is_set():
        raise ProgramError(
            "timed-out", "killed after {:g} seconds (`--timeout`), without an end".format(timeout_seconds), output
        )
    if status:
        reason = "exit status {}".format(status) if status > 0 else "killed by signal {}".format(-status)
        last = output.strip().splitlines()[-1:]
        raise ProgramError("error" if status > 0 else "crashed", ": ".join([reason, *last]), output)
    return Run(seconds, reader.values, output)


def environment_of(folder: str) -> Dict[str, str]:
    """Return the variables of a command: this interpreter's programs come first, and the project can be imported.

    Args:
        folder: The copy of the project.
    """
    variables = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    programs = os.path.dirname(sys.executable)
    variables["PATH"] = os.pathsep.join(filter(None, [programs, variables.get("PATH", os.defpath)]))
    variables["VIRTUAL_ENV"] = sys.prefix
    variables["PYTHONNOUSERSITE"] = "1"
    sources = [path for path in (folder, os.path.join(folder, "src")) if os.path.isdir(path)]
    variables["PYTHONPATH"] = os.pathsep.join(sources)
    return variables


def read_value(run: Run, pattern: str) -> float:
    """Return the metric of a run: the number that it printed, or without a pattern its duration.

    Raises:
        ProgramError: If it printed no number, a number that is not positive, or several.
    """
    if not pattern:
        return run.seconds
    if not run.values:
        raise ProgramError(
            "error", "no line of the output matches the metric's pattern `{}`".format(pattern), run.output
        )
    if len(run.values) > 1:
        reason = "the metric's pattern `{}` matches {} times (`{}`, `{}`, ...); it must match once".format(
            pattern, len(run.values), run.values[0], run.values[1]
        )
        raise ProgramError("error", reason, run.output)
    try:
        value = float(run.values[0])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ProgramError(
            "error", "the metric is `{}`, which is not a positive number".format(run.values[0]), run.output
        )
    return value


def changed_file(folder: str, hashes: Dict[str, str]) -> Optional[str]:
    """Return the first file whose content differs from its hash, or none.

    Args:
        folder: The copy of the project.
        hashes: SHA-256 by path.
    """
    for path, expected in sorted(hashes.items()):
        digest = hashlib.sha256()
        try:
            with open(os.path.join(folder, path), "rb") as file:
                for chunk in iter(lambda: file.read(1 << 20), b""):
                    digest.update(chunk)
        except OSError:
            return path
        if digest.hexdigest() != expected:
            return path
    return None


def peak_memory() -> Dict[str, float]:
    """Return the peak resident memory of the largest process so far; empty if the system does not report it."""
    try:
        import resource
    except ImportError:
        return {}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"peak_memory_bytes": float(peak * (1 if sys.platform == "darwin" else 1024))}


class _OutputReader(threading.Thread):
    """Reads the output of a command; keeps what the pattern matches, and the end."""

    def __init__(self, stream: IO[bytes], pattern: str) -> None:
        super().__init__(daemon=True)
        self.values: List[str] = []
        self.tail = b""
        self._stream = stream
        self._pattern = re.compile(pattern) if pattern else None

    def run(self) -> None:
        for line in iter(lambda: self._stream.readline(_LINE_BYTES), b""):
            self.tail = (self.tail + line)[-_TAIL_BYTES:]
            if self._pattern is not None and len(self.values) < _MOST_VALUES:
                self.values += [
                    match.group(1) or "" for match in self._pattern.finditer(line.decode("utf-8", "replace"))
                ]
