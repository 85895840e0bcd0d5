"""Measures what is installed on a machine with a GPU, in pieces of a few minutes, without a package index.

`benchmarks/gpu.sh FOLDER` runs it. It needs Python 3.11, packaging and psutil; nvidia-ml-py detects the GPU, and
archspec the processor. It ends with 0 when everything is measured and with 75 when there is more to measure.
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
    from benchmarks.gpu_suite import Planned
    from knowledge.domain.hardware import HardwareProfile
    from knowledge.domain.observation import Observation
    from knowledge.exchange.folder import ObservationFolder
    from pi_runners.campaign import Block
    from pi_runners.environment import BuiltEnvironment
    from pi_runners.matrix import Arm
    from pi_runners.subprocess_runner import FreshProcesses

MORE_TO_MEASURE = 75
"""EX_TEMPFAIL of sysexits.h: run it again."""
_REQUIRED = ("packaging", "psutil")
_TELEMETRY_SECONDS = 0.25
"""An indicator takes a second or two on a GPU: it must hold several readings."""
_LONGEST_PAUSE_SECONDS = 600.0
"""Between two pieces, so that the second may complete a round of the first."""
_ENDING_SECONDS = 5.0
"""Left at the end of a piece to end the running process and to write what it reported."""


def named(block: Block, folder: ObservationFolder, *, now: datetime) -> Block:
    """Return a block with the name under which it was begun in the folder, or a new one.

    The name holds a hash of machine, packages, settings and runs: where one of them changes, a new block is begun.
    """
    from knowledge.domain.identity import content_hash

    content = [[s.number, dict(s.settings), s.reference, [run.label for run in s.indicators]] for s in block.arms]
    stack = block.environment.stack.identity if block.environment else ""
    tail = f"{block.name}-{content_hash([block.hardware.identity, stack, content])[:8]}"
    begun = sorted({run.block for run in folder.runs if run.block.endswith(f"Z-{tail}")})
    return replace(block, name=begun[0] if begun else f"{now.strftime('%Y%m%dT%H%M%SZ')}-{tail}")


class Tally:
    """Passes observations on to a folder, and remembers how they ended."""

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


def begun(
    planned: Planned, folder: ObservationFolder, *, session: str
) -> tuple[Block, list[tuple[int, tuple[Arm, ...]]]]:
    """Return a block with its name in a folder, and the rounds of it that are missing there."""
    from pi_runners.installed_stack import missing_rounds

    block = named(planned.block, folder, now=datetime.now(UTC))
    measured = {(run.round, run.arm, run.label): of for run, of in folder.runs.items() if run.block == block.name}
    return block, list(missing_rounds(block.arms, block.rounds, measured, session=session))


def measure_piece(
    planned: Sequence[Planned], folder: ObservationFolder, runner: FreshProcesses, *, session: str
) -> Tally:
    """Measure what is missing of some blocks until all is measured or the runner is stopped."""
    from pi_runners.campaign import run_block

    tally = Tally(folder)
    with tempfile.TemporaryDirectory(prefix="advisor-gpu-") as scratch:
        for place, one in enumerate(planned, start=1):
            block, rounds = begun(one, folder, session=session)
            for number, arms in rounds:
                run_block(
                    replace(block, arms=arms, rounds=max(block.rounds, number + 1)),
                    sink=tally,
                    runner=runner,
                    environments=Path(scratch),
                    is_missing=partial(_is_round, number),
                    progress=partial(_say_progress, f"block {place}/{len(planned)} {one.name}"),
                )
                if runner.stopped:
                    return tally
    return tally


def _is_round(wanted: int, number: int, arm: int) -> bool:
    return number == wanted


def _say_progress(block: str, text: str) -> None:
    say(f"{block}: {text}")


def count_missing(planned: Sequence[Planned], folder: ObservationFolder, *, session: str) -> tuple[int, int]:
    """Return how many runs are missing, and how many there are in all."""
    missing = total = 0
    for one in planned:
        block, rounds = begun(one, folder, session=session)
        missing += sum(len(arm.indicators) for _, arms in rounds for arm in arms)
        total += block.rounds * sum(len(arm.indicators) for arm in block.arms)
    return missing, total


def session_name(folder: Path, *, now: datetime) -> str:
    """Name the machine's start, its GPUs and a time without a longer pause in the files of a folder.

    Copies of a virtual machine may share the start. After a pause, the machine may be in another state: what is
    measured then is not compared with what was measured before.
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
        # No package, no driver, or a driver without identifiers: the machine's start time names the session.
        return ()


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now(UTC).strftime('%H:%M:%S')} {text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one piece."""
    started = time.monotonic()
    options = _parse(arguments)
    if absent := [name for name in _REQUIRED if find_spec(name) is None]:
        print(
            f"error: {sys.executable} lacks {', '.join(absent)}: install it, or put it on PYTHONPATH", file=sys.stderr
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
    from knowledge.domain.errors import InputError
    from knowledge.exchange.folder import ObservationFolder
    from knowledge.hardware.detect import detect
    from pi_runners.installed_stack import installed_environment
    from pi_runners.subprocess_runner import FreshProcesses

    hardware = detect()
    environment, unreadable = installed_environment(Path(sys.executable))
    say(_describe(hardware, environment))
    for text in (*hardware.unknown, *(f"version of {name} cannot be read" for name in unreadable)):
        say(f"not known: {text}")
    sizes = ("small", "large") if options.size == "both" else (options.size,)
    devices = [d for d in ("cuda", "cpu") if options.device in (d, "both") and (d == "cpu" or hardware.gpu)]
    planned, refused = plan_blocks(environment, hardware, sizes=sizes, devices=devices, rounds=options.rounds)
    planned = tuple(p for p in planned if not options.only or any(text in p.name for text in options.only))
    if not planned and options.only:
        raise InputError(f"no block has `{'` or `'.join(options.only)}` in its name", hint="`--list` prints the blocks")
    if not planned:
        raise InputError(
            "there is nothing to measure", hint="install one of numpy, torch, jax, onnxruntime or tensorflow"
        )
    for text in refused:
        say(f"left out, or a smaller case instead: {text}")
    session = session_name(options.folder, now=datetime.now(UTC))
    folder = ObservationFolder(options.folder, session=session)
    if options.list:
        for one in planned:
            missing, total = count_missing([one], folder, session=session)
            print(f"{one.name}: {len(one.block.arms)} arms, {total} runs, {missing} missing")
        return 0
    folder.lock()
    runner = FreshProcesses(interval_seconds=_TELEMETRY_SECONDS if hardware.gpu else 1.0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    remaining_seconds = options.minutes * 60 - _ENDING_SECONDS - (time.monotonic() - started)
    timer = threading.Timer(max(0.0, remaining_seconds), runner.stop)
    timer.daemon = True
    timer.start()
    tally = measure_piece(planned, folder, runner, session=session)
    timer.cancel()
    return _summary(tally, *count_missing(planned, folder, session=session))


def _describe(hardware: HardwareProfile, environment: BuiltEnvironment) -> str:
    from pi_runners.installed_stack import installed_frameworks

    stack = environment.stack
    versions = ", ".join(f"{name} {stack.version_of(name)}" for name in installed_frameworks(stack))
    where = f"{hardware.gpu.model}" if hardware.gpu else "no NVIDIA GPU: only the CPU part is measured"
    return f"{where}; CUDA {stack.cuda or 'not carried'}, Python {stack.python}; {versions or 'no framework'}"


def _summary(tally: Tally, missing: int, total: int) -> int:
    statuses = ", ".join(f"{number} {status}" for status, number in sorted(tally.statuses.items()))
    for (status, reason), labels in tally.failures.items():
        say(f"{len(labels)} {status}, the first {labels[0]}: {reason}")
    say(f"this piece: {statuses or 'nothing'}; {total - missing} of {total} runs are measured")
    if missing:
        say("run the same command again to continue")
    return MORE_TO_MEASURE if missing else 0


def _rounds(text: str) -> int:
    """Read a number of rounds.

    Raises:
        ArgumentTypeError: If it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 1")
    return int(text)


def _parse(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of observation files; what is in it is not measured again")
    parser.add_argument("--minutes", type=float, default=9.0, help="end after this time (default: 9)")
    parser.add_argument("--size", choices=("large", "small", "both"), default="both", help="parameter sets on the GPU")
    parser.add_argument("--device", choices=("cuda", "cpu", "both"), default="both", help="devices to measure on")
    parser.add_argument("--rounds", type=_rounds, default=4, help="rounds of each block (default: 4)")
    parser.add_argument("--only", action="append", help="measure only blocks whose name contains this (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the blocks and how much is missing, and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
