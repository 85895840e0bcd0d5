"""Runs the benchmark of a project in this environment: copies the project, runs the command, reads its metric."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any, Dict, List, NamedTuple, Optional

from pi_runners.harness.interpreters import InterpreterRecord
from pi_runners.harness.timing import Stopwatch, rounded
from pi_runners.hooks import sitecustomize as hook

_TAIL_BYTES = 1500
_CHUNK_BYTES = 65536
_FIRST_BYTES = 1 << 24
_LAST_BYTES = 1 << 20
_PATTERN_SECONDS = 20.0
# Searches the lines of a file for a pattern: some patterns take exponential time, so it runs in a process of its own.
_SEARCH = """
import json, re, sys
pattern, values = re.compile(sys.argv[1]), []
with open(sys.argv[2], "rb") as file:
    for line in iter(lambda: file.readline(65536), b""):
        values += [match.group(1) or "" for match in pattern.finditer(line.decode("utf-8", "replace"))]
        if len(values) > 100_000:
            break
print(json.dumps(values))
"""
_ANY_LINE = r"(.*\S.*)"
_TRIAL_LINES = 2000
_DRAIN_SECONDS = 5.0
_KILLED_DRAIN_SECONDS = 0.5
_OWN_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", hook.SETTINGS)


class ProgramError(Exception):
    """Raised when a run of the command gives no result; ``status`` is that of the observation."""

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
        results: Texts that the pattern of the program's result matched, in order.
    """

    seconds: float
    values: List[str]
    output: str
    results: List[str] = []  # noqa: RUF012


def measure_program(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run the command of a request of :class:`pi_runners.execution.benchmark.Benchmark`; return JSON-ready values.

    It runs first to warm up, then once for each sample, each time after the start-up command if there is one. All runs
    share one copy of the project, which is made in the working directory.
    """
    project = _ProjectCopy(request)
    runs, values, startups, results = [], [], [], []
    start = Stopwatch()
    try:
        for number in range(request["warmup_runs"] + request["runs"]):
            is_sample = number >= request["warmup_runs"]
            if number == request["warmup_runs"]:
                start = Stopwatch()
            if is_sample and request["startup"]:
                startups.append(project.run(request["startup"], ""))
            run = project.run(request["command"], request["pattern"], request["result"])
            project.check_imports()
            # A metric that is missing is reported by the first run.
            value = read_value(run, request["pattern"], request["statistic"])
            if request["result"]:
                results.append(read_result(run, request["result"]))
            if is_sample:
                values.append(seconds_of_work(run, startups[-1]) if startups else value)
            runs.append(run)
    except ProgramError as failure:
        return {"status": failure.status, "failure": str(failure)[-2 * _TAIL_BYTES :]}
    warmups, timed = runs[: request["warmup_runs"]], runs[request["warmup_runs"] :]
    # With the start-up command, the window is not the program's: its energy could not be subtracted as its time is.
    window = {} if startups else {"window": start.window(sum(run.seconds for run in timed), len(timed))._asdict()}
    higher = request["better"] == "higher"
    metrics = {"value": statistics.median(values), "seconds_per_run": statistics.median(run.seconds for run in timed)}
    if startups:
        metrics["startup_seconds"] = statistics.median(run.seconds for run in startups)
    if results:
        metrics["result"] = statistics.median(results)
    return {
        "status": "ok",
        "environment": {"program_python": "stack"},
        "samples": rounded([1 / value if higher else value * request["seconds_per_unit"] for value in values]),
        "loops": 1,
        "warmup_seconds": round(sum(run.seconds for run in warmups), 6),
        # The project decides how many runs warm the program up.
        "steady": True,
        "metrics": {**metrics, **peak_memory()},
        **window,
    }


def try_program(request: Dict[str, Any]) -> Dict[str, Any]:
    """Run the command of a request once, and before it the start-up command if there is one; return JSON-ready values.

    Nothing is measured: the values are the durations in seconds and the lines that the command printed.
    """
    project = _ProjectCopy(request)
    try:
        startup = project.run(request["startup"], "") if request["startup"] else None
        run = project.run(request["command"], _ANY_LINE)
    except ProgramError as failure:
        return {"status": failure.status, "failure": str(failure)[-2 * _TAIL_BYTES :]}
    lines = (
        run.values if len(run.values) <= 2 * _TRIAL_LINES else run.values[:_TRIAL_LINES] + run.values[-_TRIAL_LINES:]
    )
    return {
        "status": "ok",
        "command_seconds": run.seconds,
        "startup_seconds": startup.seconds if startup else 0.0,
        "lines": lines,
    }


class _ProjectCopy:
    """A copy of the project of a request in the working directory; commands run in it, and are checked."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self._request = request
        self._folder = os.path.join(os.getcwd(), "project")
        shutil.copytree(request["directory"], self._folder, symlinks=True)
        record, statements = os.path.join(os.getcwd(), "interpreters"), request.get("statements", [])
        self._interpreters = InterpreterRecord(record, self._folder, statements)
        self._variables = self._interpreters.applied_to(environment_of(self._folder))

    def run(self, command: List[str], pattern: str, result: str = "") -> Run:
        """Run a command to its end, as :func:`run_command` does.

        Raises:
            ProgramError: If it has no result, runs another Python than the stack's, or changes the project.
        """
        self._interpreters.begin_run()
        try:
            patterns, limit = [pattern, result], self._request["timeout_seconds"]
            run = run_command(command, self._folder, self._variables, patterns, limit)
        finally:
            # Also if the command failed: packages that it did not find belong to the stack.
            check_foreign_environments(command, self._interpreters)
            check_settings(self._interpreters.settings_failure())
        if not self._interpreters.has_own():
            raise ProgramError(
                "error",
                "no Python of the stack's environment was seen to run: start the program with `python`, without "
                "`-I`, `-E` or `-S`, and keep what PYTHONPATH has: without `env -i`, and with "
                "`PYTHONPATH=.:$PYTHONPATH` instead of `PYTHONPATH=.`",
            )
        changed = changed_file(self._folder, self._request["files"])
        if changed is not None:
            raise ProgramError(
                "error",
                "the program changed `{}`, which is one of the benchmark's `files`: its runs are not comparable; "
                "write to another file, or narrow `files`".format(changed),
            )
        return run

    def check_imports(self) -> None:
        """Check that the last command made the imports after which settings are applied.

        Raises:
            ProgramError: If it did not.
        """
        check_settings(self._interpreters.missing_import(self._request.get("import_settings", [])))


def check_foreign_environments(command: List[str], interpreters: InterpreterRecord) -> None:
    """Check that no Python of another environment may have done the work of a command.

    Raises:
        ProgramError: If one may have.
    """
    prefixes = interpreters.foreign_prefixes()
    if prefixes:
        reason = (
            "the command `{}` runs Python in `{}`, not in the environment of the stack: a login shell (`bash -l`), "
            "`uv run` and similar programs choose their own; start the program with `python`"
        )
        raise ProgramError("error", reason.format(" ".join(command), "`, `".join(prefixes)))


def check_settings(failure: Optional[str]) -> None:
    """Check that a run had its settings.

    Raises:
        ProgramError: If there is a reason why it had not.
    """
    if failure is not None:
        raise ProgramError("unsupported", failure)


def run_command(
    command: List[str], folder: str, variables: Dict[str, str], patterns: List[str], timeout_seconds: float
) -> Run:
    """Run a command in a folder to its end, and search its output for the patterns of the metric and of the result.

    Either may be empty.

    Raises:
        ProgramError: If the command cannot be started, exceeds the time, or ends with an error.
    """
    started = time.perf_counter()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
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
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(folder)) as file:
        reader = _OutputReader(process.stdout, file)
        seconds = _wait(process, reader, started, timeout_seconds)
        # After the end, because a search would take time from the program.
        reader.complete_file()
        limit = min(_PATTERN_SECONDS, timeout_seconds)
        values, results = (search_output(file.name, pattern, limit) if pattern else [] for pattern in patterns)
    return Run(seconds, values, reader.text, results)


def _wait(process: "subprocess.Popen[bytes]", reader: "_OutputReader", started: float, timeout_seconds: float) -> float:
    """Wait for the end of a command, and return its duration in seconds; for errors see :func:`run_command`."""
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
    if expired.is_set():
        raise ProgramError(
            "timed-out", "killed after {:g} seconds: it did not end".format(timeout_seconds), reader.text
        )
    if status:
        reason = "exit status {}".format(status) if status > 0 else "killed by signal {}".format(-status)
        last = reader.text.strip().splitlines()[-1:]
        raise ProgramError("error" if status > 0 else "crashed", ": ".join([reason, *last]), reader.text)
    return seconds


def search_output(path: str, pattern: str, seconds: float) -> List[str]:
    """Return what the group of a regular expression matches in the lines of a file, in order.

    Raises:
        ProgramError: If the search takes more than ``seconds``.
    """
    try:
        search = subprocess.run(
            [sys.executable, "-I", "-c", _SEARCH, pattern, path],
            stdout=subprocess.PIPE,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        reason = "the search for the pattern `{}` in the output was stopped after {:g} seconds; ".format(
            pattern, seconds
        )
        raise ProgramError("error", reason + "simplify the pattern, or print less") from None
    values: List[str] = json.loads(search.stdout)
    return values


def environment_of(folder: str) -> Dict[str, str]:
    """Return the variables of a command: this interpreter's programs come first, and the project can be imported."""
    variables = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    programs = os.path.dirname(sys.executable)
    variables["PATH"] = os.pathsep.join(filter(None, [programs, variables.get("PATH", os.defpath)]))
    variables["VIRTUAL_ENV"] = sys.prefix
    variables["PYTHONNOUSERSITE"] = "1"
    sources = [path for path in (folder, os.path.join(folder, "src")) if os.path.isdir(path)]
    variables["PYTHONPATH"] = os.pathsep.join(sources)
    return variables


def read_value(run: Run, pattern: str, statistic: str = "") -> float:
    """Return the metric of a run: the number that it printed, or without a pattern its duration.

    Args:
        run: The run.
        pattern: What was searched for in its output.
        statistic: ``median`` or ``last`` of several numbers; empty if the program must print one.

    Raises:
        ProgramError: If it printed no number, a number that is not positive, or several although it must print one.
    """
    if not pattern:
        return run.seconds
    if not run.values:
        raise ProgramError(
            "error", "no line of the output matches the metric's pattern `{}`".format(pattern), run.output
        )
    if len(run.values) > 1 and not statistic:
        reason = "the metric's pattern `{}` matches {} times (`{}`, `{}`, ...); it must match once".format(
            pattern, len(run.values), run.values[0], run.values[1]
        )
        raise ProgramError("error", reason, run.output)
    texts = run.values if statistic == "median" else run.values[-1:]
    return statistics.median(_positive_number(text, run) for text in texts)


def read_result(run: Run, pattern: str) -> float:
    """Return the result of a run, such as its loss: the last number that it printed.

    Raises:
        ProgramError: If it printed none, or one that is not finite.
    """
    text = run.results[-1] if run.results else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not run.results:
        reason = "no line of the output matches the pattern `{}` of the result".format(pattern)
        raise ProgramError("error", reason, run.output)
    if not math.isfinite(value):
        raise ProgramError("wrong-result", "the result of the program is `{}`".format(text), run.output)
    return value


def _positive_number(text: str, run: Run) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ProgramError("error", "the metric is `{}`, which is not a positive number".format(text), run.output)
    return value


def seconds_of_work(run: Run, startup: Run) -> float:
    """Return how many seconds longer a command took than the start-up command before it.

    Raises:
        ProgramError: If it did not take longer.
    """
    seconds = run.seconds - startup.seconds
    if seconds <= 0:
        reason = (
            "the command took {:.2f} seconds, and `startup` {:.2f}: its own steps are too short to be measured; "
            "let `command` take more steps"
        )
        raise ProgramError("error", reason.format(run.seconds, startup.seconds), run.output)
    return seconds


def changed_file(folder: str, hashes: Dict[str, str]) -> Optional[str]:
    """Return the first file of a copy of the project whose content differs from its SHA-256, or ``None``."""
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
    """Reads the output of a command; writes its first and its last part to a file."""

    def __init__(self, stream: IO[bytes], file: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._file = file
        self._last = bytearray()
        self._tail = b""

    @property
    def text(self) -> str:
        """End of the output."""
        return self._tail.decode("utf-8", "replace")

    def run(self) -> None:
        descriptor, remaining = self._stream.fileno(), _FIRST_BYTES
        for chunk in iter(lambda: os.read(descriptor, _CHUNK_BYTES), b""):
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            try:
                self._file.write(chunk[:remaining])
            except ValueError:
                # The file is closed: a process that the command left behind still prints.
                return
            self._last += chunk[remaining:]
            remaining = max(0, remaining - len(chunk))
            if len(self._last) > 2 * _LAST_BYTES:
                del self._last[:-_LAST_BYTES]

    def complete_file(self) -> None:
        """Write the last part of the output to the file."""
        self._file.write(self._last)
        self._file.flush()
