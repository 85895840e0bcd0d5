"""What a program leaves that is killed with SIGKILL at a random moment.

    python -m benchmarks.kills [lock] [ingest] [campaign] [migration] [--kills 50] [--seed 7] [--folder DIR]

Each operation runs once without a kill, which gives its duration and its result. Then it is started as often as
asked, each time from the same beginning, and killed. Every other kill is at a moment that is drawn uniformly from the
whole run, start of the interpreter included. Since writing is a small part of that, the others are drawn from the time
between the first change of a file and the end, counted from the first change that the run itself makes; for locks and
campaigns, most of them soon after it. What is left must be the old state, the new state, or a state between whole steps
that were acknowledged; the same command must then come to exactly what the unharmed run came to.

Printed are, for each operation: the kills, how many of them found it running, the states that were left, how many left
a temporary file, and what was wrong. The exit status is 1 where something was.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kill_operations import BETWEEN, NEW, OLD, OPERATIONS, Operation, ViolationError
from tests.conftest import first_knowledge_at
from tests.package_index import PackageIndex

_POLL_SECONDS = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Unharmed:
    """A run that nobody killed.

    Attributes:
        seconds: How long it took.
        writing_seconds: How much of that was after the first change of a file.
        outcome: What it came to.
    """

    seconds: float
    writing_seconds: float
    outcome: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the kills of one operation left.

    Attributes:
        name: The operation.
        kills: How often it was killed.
        running: How many of the kills found it running.
        states: The states that were left, counted.
        strays: How many kills left a temporary file.
        violations: What was wrong, one sentence each.
    """

    name: str
    kills: int
    running: int
    states: Counter[str]
    strays: int
    violations: tuple[str, ...]

    @property
    def row(self) -> str:
        """The row of the table."""
        states = [self.states[state] for state in (OLD, BETWEEN, NEW)]
        cells = [self.name, self.kills, self.running, *states, self.strays, len(self.violations)]
        return f"| {' | '.join(map(str, cells))} |"


HEADER = (
    "| operation | kills | during the run | old state | intermediate state | new state | temporary files | violations |"
)


def kill_often(operation: Operation, scratch: Path, *, kills: int, seed: int) -> Tally:
    """Kill an operation at random moments.

    Args:
        operation: The operation.
        scratch: An empty folder.
        kills: How often.
        seed: Seed of the moments.
    """
    unharmed: dict[int, Unharmed] = {}
    generator = random.Random(f"{seed} {operation.name}")
    running = strays = 0
    states: Counter[str] = Counter()
    violations: list[str] = []
    for number in range(kills):
        variant = number // 2 % operation.variants
        if variant not in unharmed:
            unharmed[variant] = _unharmed(operation, scratch / f"unharmed-{variant}", variant)
        reference = unharmed[variant]
        folder = scratch / f"killed-{number}"
        output = scratch / f"output-{number}"
        operation.prepare(folder, variant)
        before = _stamp(operation, folder)
        process = operation.start(folder, variant, output)
        started = time.monotonic()
        if number % 2:
            moment = reference.writing_seconds * generator.random() ** operation.nearness
            while process.poll() is None and _stamp(operation, folder) == before:
                time.sleep(_POLL_SECONDS)
            time.sleep(moment)
        else:
            moment = generator.uniform(0.0, reference.seconds)
            time.sleep(max(0.0, started + moment - time.monotonic()))
        running += operation.kill(folder, number, process)
        try:
            strays += bool(list(folder.glob(".*")))
            states[operation.state(folder, variant, output.read_text(errors="replace"))] += 1
            operation.repeat(folder, variant, process, output)
            if operation.outcome(folder, variant) != reference.outcome:
                raise ViolationError("repeating it comes to something else than the run that nobody killed")
        except Exception as error:
            # Whatever the state makes the program or this one do is wrong.
            cause = str(error) if isinstance(error, ViolationError) else f"{type(error).__name__}: {error}"
            violations.append(f"{operation.name}, kill {number}, variant {variant}, after {moment:.3f} s: {cause}")
            continue
        shutil.rmtree(folder)
    return Tally(
        name=operation.name,
        kills=kills,
        running=running,
        states=states,
        strays=strays,
        violations=tuple(violations),
    )


def _unharmed(operation: Operation, folder: Path, variant: int) -> Unharmed:
    operation.prepare(folder, variant)
    before = _stamp(operation, folder)
    output = folder.with_name(f"{folder.name}.output")
    started = changed = time.monotonic()
    process = operation.start(folder, variant, output)
    writes = False
    while process.poll() is None:
        if not writes:
            changed, writes = time.monotonic(), _stamp(operation, folder) != before
        time.sleep(_POLL_SECONDS)
    ended = time.monotonic()
    if process.returncode:
        sys.exit(f"{operation.name} fails when nobody kills it: {output.read_text(errors='replace')}")
    return Unharmed(
        seconds=ended - started, writing_seconds=ended - changed, outcome=operation.outcome(folder, variant)
    )


def _stamp(operation: Operation, folder: Path) -> tuple[tuple[str, int], ...]:
    """Return what changes when something is written in the operation's directory."""
    watched = operation.watched(folder)
    entries = [(".", watched.stat().st_mtime_ns)]
    for path in watched.iterdir():
        try:
            entries.append((path.name, path.stat().st_mtime_ns if path.is_file() else 0))
        except FileNotFoundError:
            continue
    return tuple(sorted(entries))


def main() -> None:
    """Kill the operations, and print the table."""
    parser = argparse.ArgumentParser(description="Kill operations with SIGKILL at random moments.")
    parser.add_argument("operations", nargs="*", choices=[*OPERATIONS, []], help="Which ones (default: all)")
    parser.add_argument("--kills", type=int, default=50, help="Kills of each operation (default: 50)")
    parser.add_argument("--seed", type=int, default=7, help="Seed of the moments (default: 7)")
    parser.add_argument("--folder", type=Path, help="Folder for the files (default: the one for temporary files)")
    options = parser.parse_args()
    violations: list[str] = []
    print(f"{HEADER}\n|{' --- |' * HEADER.count(' | ')} --- |", flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as name, PackageIndex() as index:
        scratch = Path(name)
        knowledge = first_knowledge_at(scratch / "first.sqlite")
        for key in options.operations or OPERATIONS:
            own = scratch / key
            own.mkdir()
            tally = kill_often(OPERATIONS[key](own, index, knowledge), own, kills=options.kills, seed=options.seed)
            print(tally.row, flush=True)
            violations += tally.violations
    for violation in violations:
        print(violation)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
