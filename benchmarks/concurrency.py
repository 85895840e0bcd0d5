"""How long writers and readers of one knowledge base wait.

    python -m benchmarks.concurrency [SECONDS] [--folder DIR]

Eight processes add observations and four read, on a SQLite file and on a PostgreSQL server of its own, for a minute by
default. A writer adds 50 observations a transaction, half of them its own and half the same as all others'. A reader
asks for the blocks, and reads one of them. Printed are how often each was done, the median, the 99th percentile and the
longest time that a call took, and whether everything that was acknowledged is there, once and undamaged. The times hold
the work itself, too: 12 processes share the processors.
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
"""Observations of each kind in one transaction."""
_TRANSACTIONS = 20
"""Transactions of a writer in one block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of writers and readers.

    Attributes:
        seconds: Durations of the calls, by kind of call.
        acknowledged: Observations whose storage was acknowledged, by block.
        stored: Observations in the knowledge base afterwards, by block.
        torn: Reads that returned a part of a transaction, one sentence each.
        damage: One sentence for each record of the knowledge base that is damaged.
    """

    seconds: dict[str, list[float]]
    acknowledged: dict[str, int]
    stored: dict[str, int]
    torn: tuple[str, ...]
    damage: tuple[str, ...]


def write(number: int, address: str, until: float, results: Any) -> None:
    """Add observations until a time of the monotonic clock; report durations and acknowledged observations."""
    durations: dict[str, list[float]] = {"add": []}
    acknowledged: dict[str, int] = defaultdict(int)
    with open_knowledge_base(address, shipped=False) as store:
        turn = 0
        # Once at least, however long it took to begin.
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
    torn: list[str] = []
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
                torn.append(f"block `{block.name}`: {count} observations, after {block.observations}")
    results.put((durations, {}, torn))


def measure(address: str, seconds: float, *, writers: int = WRITERS, readers: int = READERS) -> Outcome:
    """Let writers and readers work on one knowledge base at once.

    Args:
        address: Address of the knowledge base.
        seconds: How long they work.
        writers: How many processes write.
        readers: How many processes read.
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
    spent: dict[str, list[float]] = defaultdict(list)
    acknowledged: dict[str, int] = defaultdict(int)
    for durations, blocks, _ in results:
        for name, values in durations.items():
            spent[name] += values
        for name, count in blocks.items():
            # Several writers add to a shared block.
            acknowledged[name] = max(acknowledged[name], count)
    with open_knowledge_base(address, shipped=False) as store:
        return Outcome(
            seconds=dict(spent),
            acknowledged=dict(acknowledged),
            stored={block.name: block.observations for block in store.blocks()},
            torn=tuple(text for _, _, texts in results for text in texts),
            damage=tuple(store.find_damage()),
        )


def show(label: str, outcome: Outcome) -> None:
    """Print a row for each kind of call, and whether all is there."""
    for name, values in outcome.seconds.items():
        ordered = sorted(values)
        milliseconds = [
            1000 * v for v in (statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))], ordered[-1])
        ]
        cells = [label, name, str(len(ordered)), *(f"{ms:.0f} ms" for ms in milliseconds)]
        print(f"| {' | '.join(cells)} |", flush=True)
    acknowledged, stored = Counter(outcome.acknowledged), Counter(outcome.stored)
    # Subtracted block by block: a surplus in one hides no loss in another.
    surplus = (stored - acknowledged).total()
    print(
        f"{label}: {acknowledged.total()} observations acknowledged, {(acknowledged - stored).total()} lost, "
        f"{f'{surplus} that nobody acknowledged, ' if surplus else ''}"
        f"{len(outcome.torn)} torn readings, {len(outcome.damage)} damages",
        flush=True,
    )


def main() -> None:
    """Measure both databases."""
    import pgserver

    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--folder", type=Path, help="Folder for the databases (default: the one for temporary files)")
    options = parser.parse_args()
    print("| database | call | calls | median | 99th percentile | longest |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        show("SQLite", measure(f"sqlite:///{scratch}/knowledge.sqlite", options.seconds))
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        # The server runs as another user where this runs as root.
        os.chmod(scratch, 0o755)
        server = pgserver.get_server(Path(scratch) / "server")
        try:
            show("PostgreSQL", measure(server.get_uri(), options.seconds))
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
