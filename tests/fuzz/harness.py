"""Gives many damaged documents to one parser, in a process that ends when an input takes too much time or memory."""

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
"""Memory of the process that reads."""
MOST_SECONDS = 5.0
"""Processor time of one input, of the command; tests allow :data:`ENDLESS_SECONDS`."""
ENDLESS_SECONDS = 60.0
"""Processor time after which an input counts as endless: no input takes a tenth of it, however busy the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the inputs of one parser.

    Attributes:
        parser: Its name.
        seed: What the inputs were drawn from.
        inputs: How many were given.
        refused: How many of them were refused in one sentence.
        failed: How many ended otherwise.
        longest_seconds: Longest processor time of one.
        peak_bytes: Largest memory of the process, with the program itself.
        failures: Each kind of failure once, with the number of an input and the message.
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
    """What the process that reads writes into shared memory, so that its end does not take it along."""

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

    def draw(self) -> bytes:
        """Return the input that is next."""
        return draw(self.seeds, self.parser.kind, self.seed, self.progress.number)

    def note(self, about: str, message: str = "") -> None:
        """Note how an input failed."""
        with self.failures.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps([about, f"input {self.progress.number} of seed {self.seed} {message}".strip()]) + "\n"
            )

    def store(self, name: str, content: bytes) -> None:
        """Keep an input, where that is wanted."""
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / name.replace(" ", "-").replace("/", "-")).write_bytes(content)


def draw(seeds: list[bytes], kind: str, seed: int, number: int) -> bytes:
    """Return one input: it depends on the seed and its number only."""
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
    """Read inputs in a process of its own; one that ends the process is a failure, and the next ones follow.

    Args:
        name: The parser's name, for the report.
        parser: What reads.
        seed: What the inputs are drawn from.
        inputs: How many.
        first: Number of the first.
        most_seconds: Processor time after which the process is ended.
        keep: Folder for an input of each kind of failure, the slowest and the largest.
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
                    raise RuntimeError(f"a valid document of `{name}` was not read: {_end(code)}")
                task.note(_end(code))
                task.store(f"ended-{progress.number}", task.draw())
                progress.failed += 1
                progress.number += 1
        notes = [json.loads(line) for line in task.failures.read_text(encoding="utf-8").split("\n")[:-1]]
    return Report(
        parser=name,
        seed=seed,
        inputs=inputs,
        refused=progress.refused,
        failed=progress.failed,
        longest_seconds=round(progress.longest, 3),
        peak_bytes=peak,
        failures=dict(reversed(notes)),
    )


def _end(code: int) -> str:
    if code == -signal.SIGPROF:
        return "too much processor time"
    return f"the process ended with {signal.Signals(-code).name if code < 0 else code}"


def _work(task: _Task) -> NoReturn:
    """Read the inputs that are left, in the process that may be ended."""
    try:
        # Says where the processor was when the time was over; then the signal ends the process, as it does by default.
        faulthandler.register(signal.SIGPROF, chain=True)
        signal.setitimer(signal.ITIMER_PROF, ENDLESS_SECONDS)
        for content in task.seeds:
            # What is imported and set up once is no input's own time.
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
        content = task.draw()
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, task.most_seconds)
        try:
            progress.refused += _read(task.parser, content)
        except Exception as error:  # What is looked for.
            progress.failed += 1
            about = _about(error)
            if len(content) < smallest.get(about, sys.maxsize):
                smallest[about] = len(content)
                task.store(about, content)
                task.note(about, str(error)[:200])
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


def _about(error: Exception) -> str:
    """Return what failed and in which line of the program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename]
    own = [f for f in frames if "site-packages" not in f.filename and "/lib/" not in f.filename]
    return f"{type(error).__name__} in {Path(own[-1].filename).name}:{own[-1].lineno}" if own else type(error).__name__


class EndlessError(BaseException):
    """Raised where an input took the processor for longer than any input does."""


@contextmanager
def watchdog(seconds: float = ENDLESS_SECONDS) -> Iterator[None]:
    """End what is endless, in a process that goes on: a test fails then, where it would never end."""

    def bark(_: int, __: FrameType | None) -> None:
        raise EndlessError(f"it took more than {seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGPROF, bark)
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
