"""Measure how long concurrent writers and readers of one knowledge base wait.

    python -m benchmarks.concurrency [SECONDS] [--folder DIR]

Eight processes add observations and four read, on a SQLite file and on a new PostgreSQL server, for a minute by
default. A writer adds 50 observations per transaction: half are its own, half are the same for all writers. A reader
lists the blocks, and reads one of them. For each kind of call, the output has the number of calls and the median, the
99th percentile and the maximum of their durations; and it says whether all acknowledged observations are stored, once
and undamaged. The durations contain the work itself: 12 processes share the processors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge.store.engine import open_knowledge_base
from tests.knowledge.samples import observation

WRITERS = 8
READERS = 4
HALF = 25
"""Observations of a writer's own block, and of the shared block, in one transaction."""
_TRANSACTIONS = 20
"""Transactions of a writer in one block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of writers and readers.

    Attributes:
        seconds: Durations of the calls, by kind of call.
        acknowledged: Observations whose storage was acknowledged, by block.
        stored: Observations that were stored in the end, by block.
        inconsistent: One message for each read that returned a part of a transaction.
        damaged: One message for each damaged record of the knowledge base.
    """

    seconds: dict[str, list[float]]
    acknowledged: dict[str, int]
    stored: dict[str, int]
    inconsistent: tuple[str, ...]
    damaged: tuple[str, ...]


def write(number: int, address: str, until: float, results: Any) -> None:
    """Add observations until a time of the monotonic clock; report durations and acknowledged observations."""
    durations: dict[str, list[float]] = {"add": []}
    acknowledged: dict[str, int] = defaultdict(int)
    with open_knowledge_base(address, shipped=False) as store:
        turn = 0
        # At least once, even if the process started late.
        while turn == 0 or time.monotonic() < until:
            block, place = divmod(turn, _TRANSACTIONS)
            rounds = range(place * HALF, (place + 1) * HALF)
            own, shared = f"own-{number}-{block}", f"shared-{block}"
            batch = [observation(round=r, block=name) for name in (own, shared) for r in rounds]
            started = time.perf_counter()
            store.add(batch)
            durations["add"].append(time.perf_counter() - started)
            acknowledged[own] += HALF
            acknowledged[shared] += HALF
            turn += 1
    results.put((durations, dict(acknowledged), []))


def read(number: int, address: str, until: float, results: Any) -> None:
    """Read until a time of the monotonic clock; report durations and inconsistent reads."""
    durations: dict[str, list[float]] = {"list blocks": [], "first observation": [], "whole block": []}
    inconsistent: list[str] = []
    with open_knowledge_base(address, shipped=False) as store:
        turn = number
        while not durations["whole block"] or time.monotonic() < until:
            started = time.perf_counter()
            blocks = store.blocks()
            durations["list blocks"].append(time.perf_counter() - started)
            if not blocks:
                continue
            turn += 1
            block = blocks[turn % len(blocks)]
            started = time.perf_counter()
            observations = store.observations(block=block.name)
            next(observations)
            durations["first observation"].append(time.perf_counter() - started)
            count = 1 + sum(1 for _ in observations)
            durations["whole block"].append(time.perf_counter() - started)
            if count % HALF or count < block.observations:
                inconsistent.append(f"block `{block.name}`: {count} observations, after {block.observations}")
    results.put((durations, {}, inconsistent))


def measure(address: str, seconds: float, *, writers: int = WRITERS, readers: int = READERS) -> Outcome:
    """Run writers and readers of one knowledge base at the same time.

    Args:
        address: Address of the knowledge base.
        seconds: Duration of the run.
        writers: Number of writing processes.
        readers: Number of reading processes.
    """
    open_knowledge_base(address, shipped=False).close()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    until = time.monotonic() + seconds
    roles: list[tuple[Callable[..., None], int]] = [(write, n) for n in range(writers)]
    roles += [(read, n) for n in range(readers)]
    processes = [context.Process(target=role, args=(n, address, until, queue), daemon=True) for role, n in roles]
    for process in processes:
        process.start()
    results = [queue.get(timeout=seconds + 300) for _ in processes]
    for process in processes:
        process.join()
    seconds_by_call: dict[str, list[float]] = defaultdict(list)
    acknowledged: dict[str, int] = defaultdict(int)
    for durations, blocks, _ in results:
        for name, values in durations.items():
            seconds_by_call[name] += values
        for name, count in blocks.items():
            # Several writers add to a shared block.
            acknowledged[name] = max(acknowledged[name], count)
    with open_knowledge_base(address, shipped=False) as store:
        return Outcome(
            seconds=dict(seconds_by_call),
            acknowledged=dict(acknowledged),
            stored={block.name: block.observations for block in store.blocks()},
            inconsistent=tuple(text for _, _, texts in results for text in texts),
            damaged=tuple(store.find_damage()),
        )


def show(label: str, outcome: Outcome) -> None:
    """Print a row for each kind of call, and the number of lost, inconsistent and damaged observations."""
    for name, values in outcome.seconds.items():
        ordered = sorted(values)
        milliseconds = [
            1000 * v for v in (statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))], ordered[-1])
        ]
        cells = [label, name, str(len(ordered)), *(f"{ms:.0f} ms" for ms in milliseconds)]
        print(f"| {' | '.join(cells)} |", flush=True)
    acknowledged, stored = Counter(outcome.acknowledged), Counter(outcome.stored)
    # Subtracted by block, so that a surplus in one block does not hide a loss in another.
    surplus = (stored - acknowledged).total()
    print(
        f"{label}: {acknowledged.total()} observations acknowledged, {(acknowledged - stored).total()} lost, "
        f"{f'{surplus} stored without acknowledgement, ' if surplus else ''}"
        f"{len(outcome.inconsistent)} inconsistent reads, {len(outcome.damaged)} damaged records",
        flush=True,
    )


def main() -> None:
    """Measure both databases."""
    import pgserver

    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--folder", type=Path, help="Folder for the databases (default: the system's temporary folder)")
    options = parser.parse_args()
    print("| database | call | calls | median | 99th percentile | longest |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        show("SQLite", measure(f"sqlite:///{scratch}/knowledge.sqlite", options.seconds))
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        # If this program runs as root, the server runs as another user.
        os.chmod(scratch, 0o755)
        server = pgserver.get_server(Path(scratch) / "server")
        try:
            show("PostgreSQL", measure(server.get_uri(), options.seconds))
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
