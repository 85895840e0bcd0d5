"""Measure the installed frameworks of a machine with a GPU, in pieces of a few minutes, without a package index.

`benchmarks/gpu.sh FOLDER` runs it. It needs Python 3.11, packaging and psutil; nvidia-ml-py detects the GPU, and
archspec the processor. Its exit status is 0 when everything is measured and 75 when there is more to measure.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu_suite import PlannedBlock
    from benchmarks.observation_folder import ObservationFolder
    from knowledge.domain.hardware import HardwareProfile
    from knowledge.domain.observation import Observation
    from pi_runners.execution.campaign import Block
    from pi_runners.execution.environment import BuiltEnvironment
    from pi_runners.execution.subprocess_runner import FreshProcesses
    from pi_runners.plan.matrix import Arm

MORE_TO_MEASURE = 75
"""Exit status EX_TEMPFAIL of sysexits.h: run the command again."""
_REQUIRED = ("packaging", "psutil")
_TELEMETRY_SECONDS = 0.25
"""Interval of readings: an indicator takes a second or two on a GPU and needs several readings."""
_LONGEST_PAUSE_SECONDS = 600.0
"""Longest pause between two pieces of a session; within a session, a piece completes the rounds of earlier ones."""
_ENDING_SECONDS = 5.0
"""Time at the end of a piece to end the running process and to write its results."""


def with_name(block: Block, folder: ObservationFolder, *, now: datetime) -> Block:
    """Return a block with its name in the folder, or with a new name if the folder does not contain the block.

    The name contains a hash of the machine, packages, settings and runs: a change of one of them starts a new block.
    """
    from knowledge.domain.identity import content_hash

    content = [[s.number, dict(s.settings), s.reference, [run.label for run in s.indicators]] for s in block.arms]
    stack = block.environment.stack.identity if block.environment else ""
    tail = f"{block.name}-{content_hash([block.hardware.identity, stack, content])[:8]}"
    names = sorted({run.block for run in folder.runs if run.block.endswith(f"Z-{tail}")})
    return replace(block, name=names[0] if names else f"{now.strftime('%Y%m%dT%H%M%SZ')}-{tail}")


class Tally:
    """Writes observations to a folder, and counts their statuses."""

    def __init__(self, folder: ObservationFolder) -> None:
        self.statuses: Counter[str] = Counter()
        self.failures: dict[tuple[str, str], list[str]] = {}
        self._folder = folder

    def add(self, observations: Iterable[Observation]) -> None:
        """Write observations."""
        batch = tuple(observations)
        self._folder.add(batch)
        for o in batch:
            self.statuses[o.status] += 1
            if o.status != "ok":
                reason = (o.failure.strip().splitlines() or [""])[-1][:200]
                self.failures.setdefault((o.status, reason), []).append(o.indicator.label)


def block_with_missing_rounds(
    planned_block: PlannedBlock, folder: ObservationFolder, *, session: str
) -> tuple[Block, list[tuple[int, tuple[Arm, ...]]]]:
    """Return a block with its name in a folder, and its rounds that are missing there."""
    from benchmarks.installed_stack import missing_rounds

    block = with_name(planned_block.block, folder, now=datetime.now(UTC))
    measured = {(run.round, run.arm, run.label): of for run, of in folder.runs.items() if run.block == block.name}
    return block, list(missing_rounds(block.arms, block.rounds, measured, session=session))


def measure_piece(
    planned_blocks: Sequence[PlannedBlock], folder: ObservationFolder, runner: FreshProcesses, *, session: str
) -> Tally:
    """Measure the missing runs of blocks until all are measured or the runner is stopped."""
    from pi_runners.execution.campaign import run_block

    tally = Tally(folder)
    with tempfile.TemporaryDirectory(prefix="advisor-gpu-") as scratch:
        for place, entry in enumerate(planned_blocks, start=1):
            block, rounds = block_with_missing_rounds(entry, folder, session=session)
            for number, arms in rounds:
                run_block(
                    replace(block, arms=arms, rounds=max(block.rounds, number + 1)),
                    sink=tally.add,
                    runner=runner,
                    environments=Path(scratch),
                    is_missing=partial(_is_round, number),
                    progress=partial(_print_progress, f"block {place}/{len(planned_blocks)} {entry.name}"),
                )
                if runner.stopped:
                    return tally
    return tally


def _is_round(expected: int, number: int, arm: int) -> bool:
    return number == expected


def _print_progress(block: str, text: str) -> None:
    print_line(f"{block}: {text}")


def count_missing(
    planned_blocks: Sequence[PlannedBlock], folder: ObservationFolder, *, session: str
) -> tuple[int, int]:
    """Return the number of missing runs, and of all runs."""
    missing = total = 0
    for entry in planned_blocks:
        block, rounds = block_with_missing_rounds(entry, folder, session=session)
        missing += sum(len(arm.indicators) for _, arms in rounds for arm in arms)
        total += block.rounds * sum(len(arm.indicators) for arm in block.arms)
    return missing, total


def session_name(folder: Path, *, now: datetime) -> str:
    """Return the name of the current session: a hash of the machine's boot and GPUs, and the start of the session.

    The GPUs are part of it because copies of a virtual machine may share the boot. A session ends with a long pause
    between the files of the folder: afterwards the machine may be in another state, and observations are not compared
    with those before.
    """
    import psutil

    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        started = str(int(psutil.boot_time()))
    machine = hashlib.sha256(" ".join((started, *gpu_identifiers())).encode()).hexdigest()[:8]
    files = sorted(folder.glob(f"observations-{machine}t*.jsonl"), key=lambda file: file.stat().st_mtime)
    if files and now.timestamp() - files[-1].stat().st_mtime < _LONGEST_PAUSE_SECONDS:
        return files[-1].stem.removeprefix("observations-").rpartition("-")[0]
    return f"{machine}t{now.strftime('%Y%m%d%H%M%S')}"


def gpu_identifiers() -> tuple[str, ...]:
    """Return NVIDIA's identifiers of the GPUs; none if the driver does not report them."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles)
    except Exception:
        # No package, no driver, or a driver without identifiers: the boot alone identifies the machine.
        return ()


def print_line(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now(UTC).strftime('%H:%M:%S')} {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one piece."""
    started = time.monotonic()
    options = _parse(arguments)
    if absent := [name for name in _REQUIRED if find_spec(name) is None]:
        print(
            f"error: {sys.executable} lacks {', '.join(absent)}: install the packages, or set PYTHONPATH",
            file=sys.stderr,
        )
        return 2
    from knowledge.domain.errors import AdvisorError

    try:
        return _run(options, started)
    except AdvisorError as error:
        print(f"error: {error.message}{f' (hint: {error.hint})' if error.hint else ''}", file=sys.stderr)
        return error.exit_code


def _run(options: Any, started: float) -> int:
    from benchmarks.gpu_suite import plan_blocks
    from benchmarks.installed_stack import installed_environment
    from benchmarks.observation_folder import ObservationFolder
    from knowledge.domain.errors import InputError
    from knowledge.hardware.detect import detect
    from pi_runners.execution.subprocess_runner import FreshProcesses

    hardware = detect()
    environment, unreadable = installed_environment(Path(sys.executable))
    print_line(_describe(hardware, environment))
    for text in (*hardware.unknown, *(f"version of {name} cannot be read" for name in unreadable)):
        print_line(f"unknown: {text}")
    sizes = ("small", "large") if options.size == "both" else (options.size,)
    devices = [d for d in ("cuda", "cpu") if options.device in (d, "both") and (d == "cpu" or hardware.gpu)]
    planned_blocks, refused = plan_blocks(environment, hardware, sizes=sizes, devices=devices, rounds=options.rounds)
    planned_blocks = tuple(
        p for p in planned_blocks if not options.only or any(text in p.name for text in options.only)
    )
    if not planned_blocks and options.only:
        raise InputError(f"no block has `{'` or `'.join(options.only)}` in its name", hint="`--list` prints the blocks")
    if not planned_blocks:
        raise InputError(
            "no framework is installed", hint="install one of numpy, torch, jax, onnxruntime or tensorflow"
        )
    for text in refused:
        print_line(f"omitted or replaced by a smaller case: {text}")
    session = session_name(options.folder, now=datetime.now(UTC))
    folder = ObservationFolder(options.folder, session=session)
    if options.list:
        for entry in planned_blocks:
            missing, total = count_missing([entry], folder, session=session)
            print(f"{entry.name}: {len(entry.block.arms)} arms, {total} runs, {missing} missing")
        return 0
    folder.lock()
    runner = FreshProcesses(interval_seconds=_TELEMETRY_SECONDS if hardware.gpu else 1.0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    remaining = options.minutes * 60 - _ENDING_SECONDS - (time.monotonic() - started)
    timer = threading.Timer(max(0.0, remaining), runner.stop)
    timer.daemon = True
    timer.start()
    tally = measure_piece(planned_blocks, folder, runner, session=session)
    timer.cancel()
    return _summary(tally, *count_missing(planned_blocks, folder, session=session))


def _describe(hardware: HardwareProfile, environment: BuiltEnvironment) -> str:
    from benchmarks.installed_stack import installed_frameworks

    stack = environment.stack
    versions = ", ".join(f"{name} {stack.version_of(name)}" for name in installed_frameworks(stack))
    device = f"{hardware.gpu.model}" if hardware.gpu else "no NVIDIA GPU: only the CPU part is measured"
    cuda = stack.cuda or "not installed as a package"
    return f"{device}; CUDA {cuda}, Python {stack.python}; {versions or 'no framework'}"


def _summary(tally: Tally, missing: int, total: int) -> int:
    statuses = ", ".join(f"{number} {status}" for status, number in sorted(tally.statuses.items()))
    for (status, reason), labels in tally.failures.items():
        print_line(f"{len(labels)} {status}, the first {labels[0]}: {reason}")
    print_line(f"this piece: {statuses or 'nothing'}; {total - missing} of {total} runs are measured")
    if missing:
        print_line("run the same command again to continue")
    return MORE_TO_MEASURE if missing else 0


def _rounds(text: str) -> int:
    """Read a number of rounds.

    Raises:
        ArgumentTypeError: If the text is not a positive integer.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a positive integer")
    return int(text)


def _parse(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of observation files; runs in it are not measured again")
    parser.add_argument("--minutes", type=float, default=9.0, help="maximum duration of this piece (default: 9)")
    parser.add_argument("--size", choices=("large", "small", "both"), default="both", help="parameter sets on the GPU")
    parser.add_argument("--device", choices=("cuda", "cpu", "both"), default="both", help="devices to measure on")
    parser.add_argument("--rounds", type=_rounds, default=4, help="rounds of each block (default: 4)")
    parser.add_argument("--only", action="append", help="measure only blocks whose name contains this (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the blocks and their missing runs, and exit")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
