"""Kill operations with SIGKILL at random moments, and check the state that they leave.

    python -m benchmarks.kills [lock] [ingest] [campaign] [migration] [--kills 50] [--seed 7] [--folder DIR]

Each operation first runs without a kill: the reference run gives its duration and its outcome. Then it is started
`--kills` times from the same initial state, and killed. The moment of every other kill is drawn uniformly from the
whole run, including the start of the interpreter. Because writing takes a small part of that, the moments of the other
kills are drawn from the time between the first change of a file and the end; for locks and campaigns, most of them are
soon after the first change. A killed run must leave the old state, the new state, or a state between complete
acknowledged steps; the same command must then produce exactly the outcome of the reference run.

For each operation, the output has the number of kills, of kills during the run, of each state, of kills that left a
temporary file, and of violations. The exit status is 1 if there is a violation.
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
class ReferenceRun:
    """A run without a kill.

    Attributes:
        seconds: Duration of the run.
        writing_seconds: Duration after the first change of a file.
        outcome: What the run has written.
    """

    seconds: float
    writing_seconds: float
    outcome: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Results of the kills of one operation.

    Attributes:
        name: The operation.
        kills: Number of kills.
        running: Number of kills during the run.
        states: Number of kills that left each state.
        strays: Number of kills that left a temporary file.
        violations: One message for each violation.
    """

    name: str
    kills: int
    running: int
    states: Counter[str]
    strays: int
    violations: tuple[str, ...]

    @property
    def row(self) -> str:
        """Return the row of the table."""
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
        kills: Number of kills.
        seed: Seed of the moments.
    """
    references: dict[int, ReferenceRun] = {}
    generator = random.Random(f"{seed} {operation.name}")
    running = strays = 0
    states: Counter[str] = Counter()
    violations: list[str] = []
    for number in range(kills):
        variant = number // 2 % operation.variants
        if variant not in references:
            references[variant] = _run_reference(operation, scratch / f"reference-{variant}", variant)
        reference = references[variant]
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
                raise ViolationError("repeating it does not produce the outcome of the reference run")
        except Exception as error:
            # Any error of the program, or of these checks, is a violation.
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


def _run_reference(operation: Operation, folder: Path, variant: int) -> ReferenceRun:
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
        sys.exit(f"{operation.name} fails without a kill: {output.read_text(errors='replace')}")
    return ReferenceRun(
        seconds=ended - started, writing_seconds=ended - changed, outcome=operation.outcome(folder, variant)
    )


def _stamp(operation: Operation, folder: Path) -> tuple[tuple[str, int], ...]:
    """Return the modification times in the operation's directory, which change with every write."""
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
    parser.add_argument("operations", nargs="*", choices=[*OPERATIONS, []], help="Operations to kill (default: all)")
    parser.add_argument("--kills", type=int, default=50, help="Kills of each operation (default: 50)")
    parser.add_argument("--seed", type=int, default=7, help="Seed of the moments (default: 7)")
    parser.add_argument("--folder", type=Path, help="Folder for the files (default: the system's temporary folder)")
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
