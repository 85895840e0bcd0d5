"""Runs a parser on many damaged documents in a child process with limits of time and memory."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import Documented, Parser

MOST_BYTES = 2**30
"""Limit of the memory of the child process."""
MOST_SECONDS = 5.0
"""Limit of processor time of one input in the command; tests allow :data:`ENDLESS_SECONDS`."""
ENDLESS_SECONDS = 60.0
"""Processor time after which an input counts as endless; no input takes a tenth of it, even on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Results of the inputs of one parser.

    Attributes:
        parser: Name of the parser.
        seed: Seed of the inputs.
        inputs: Number of inputs.
        refused: Number of inputs that were refused with a documented error.
        failed: Number of inputs with another error.
        longest_seconds: Longest processor time of an input.
        peak_bytes: Peak memory of the process, including the program itself.
        failures: Number of an input and message, by kind of failure.
    """

    parser: str
    seed: int
    inputs: int
    refused: int
    failed: int
    longest_seconds: float
    peak_bytes: int
    failures: dict[str, str] = field(default_factory=dict)


class _Progress(ctypes.Structure):
    """Progress of the child process, in shared memory so that it outlives the process."""

    _fields_ = [
        ("ready", ctypes.c_bool),
        ("number", ctypes.c_int64),
        ("refused", ctypes.c_int64),
        ("failed", ctypes.c_int64),
        ("longest", ctypes.c_double),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    parser: Parser
    seeds: list[bytes]
    seed: int
    end: int
    most_seconds: float
    keep: Path | None
    progress: _Progress
    failures: Path

    def next_input(self) -> bytes:
        """Return the next input."""
        return generate_input(self.seeds, self.parser.kind, self.seed, self.progress.number)

    def record_failure(self, failure: str, message: str = "") -> None:
        """Record the failure of the current input."""
        with self.failures.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps([failure, f"input {self.progress.number} of seed {self.seed} {message}".strip()]) + "\n"
            )

    def store(self, name: str, content: bytes) -> None:
        """Store an input, if a directory was given."""
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / name.replace(" ", "-").replace("/", "-")).write_bytes(content)


def generate_input(seeds: list[bytes], kind: str, seed: int, number: int) -> bytes:
    """Return an input, which depends only on the seed and its number."""
    generator = random.Random(f"{seed}:{number}")
    return mutate(generator.choice(seeds), kind, generator)


def run(
    name: str,
    parser: Parser,
    *,
    seed: int,
    inputs: int,
    first: int = 0,
    most_seconds: float = MOST_SECONDS,
    keep: Path | None = None,
) -> Report:
    """Parse inputs in a child process; an input that ends the process is a failure, and a new process continues.

    Args:
        name: Name of the parser, for the report.
        parser: The parser.
        seed: Seed of the inputs.
        inputs: Number of inputs.
        first: Number of the first input.
        most_seconds: Processor time after which the process is ended.
        keep: Directory for an input of each kind of failure, the slowest input and the largest one.
    """
    progress = _Progress.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Progress)))
    progress.number, peak = first, 0
    with tempfile.TemporaryDirectory() as folder:
        task = _Task(
            parser=parser,
            seeds=list(parser.seeds()),
            seed=seed,
            end=first + inputs,
            most_seconds=most_seconds,
            keep=keep,
            progress=progress,
            failures=Path(folder) / "failures",
        )
        task.failures.touch()
        while progress.number < task.end:
            process = os.fork()
            if process == 0:
                _work(task)
            _, status, usage = os.wait4(process, 0)
            peak = max(peak, usage.ru_maxrss * 1024)
            if status != 0:
                code = os.waitstatus_to_exitcode(status)
                if not progress.ready:
                    raise RuntimeError(f"a valid document of `{name}` was not read: {_end_text(code)}")
                task.record_failure(_end_text(code))
                task.store(f"ended-{progress.number}", task.next_input())
                progress.failed += 1
                progress.number += 1
        failures = [json.loads(line) for line in task.failures.read_text(encoding="utf-8").split("\n")[:-1]]
    return Report(
        parser=name,
        seed=seed,
        inputs=inputs,
        refused=progress.refused,
        failed=progress.failed,
        longest_seconds=round(progress.longest, 3),
        peak_bytes=peak,
        failures=dict(reversed(failures)),
    )


def _end_text(code: int) -> str:
    if code == -signal.SIGPROF:
        return "too much processor time"
    return f"the process ended with {signal.Signals(-code).name if code < 0 else code}"


def _work(task: _Task) -> NoReturn:
    """Parse the remaining inputs in the child process."""
    try:
        # When the time is over, print the traceback; then the default action of the signal ends the process.
        faulthandler.register(signal.SIGPROF, chain=True)
        signal.setitimer(signal.ITIMER_PROF, ENDLESS_SECONDS)
        for content in task.seeds:
            # Imports and set-up, which happen once, do not count as time of an input.
            _read(task.parser, content)
        task.progress.ready = True
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        _read_all(task)
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _read_all(task: _Task) -> None:
    progress, peak = task.progress, _peak()
    smallest: dict[str, int] = {}
    while progress.number < task.end:
        content = task.next_input()
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, task.most_seconds)
        try:
            progress.refused += _read(task.parser, content)
        except Exception as error:  # An undocumented error.
            progress.failed += 1
            failure = _failure_name(error)
            if len(content) < smallest.get(failure, sys.maxsize):
                smallest[failure] = len(content)
                task.store(failure, content)
                task.record_failure(failure, str(error)[:200])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - began
        if seconds > progress.longest:
            progress.longest = seconds
            task.store("slowest", content)
        if _peak() > peak:
            peak = _peak()
            task.store("largest", content)
        progress.number += 1


def _read(parser: Parser, content: bytes) -> bool:
    """Read a document; return whether it was refused as documented."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            parser.read(content, Path(folder))
        except Documented:
            return True
    return False


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _failure_name(error: Exception) -> str:
    """Return the class of an error and the line of the program that raised it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename]
    own = [f for f in frames if "site-packages" not in f.filename and "/lib/" not in f.filename]
    return f"{type(error).__name__} in {Path(own[-1].filename).name}:{own[-1].lineno}" if own else type(error).__name__


class EndlessError(BaseException):
    """Raised when an input takes more processor time than any valid run."""


@contextmanager
def watchdog(seconds: float = ENDLESS_SECONDS) -> Iterator[None]:
    """Raise an error in endless code, so that a test fails instead of running forever."""

    def stop(_: int, __: FrameType | None) -> None:
        raise EndlessError(f"it took more than {seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def table(reports: Iterable[Report]) -> str:
    """Return reports as a table in Markdown."""
    lines = [
        "| parser | inputs | rejected with a message | accepted | longest, s of CPU time | peak memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in reports:
        accepted = r.inputs - r.refused - r.failed
        lines.append(
            f"| `{r.parser}` | {r.inputs} | {r.refused} | {accepted} | {r.longest_seconds:.2f} "
            f"| {r.peak_bytes / 2**20:.0f} |"
        )
    return "\n".join(lines)
