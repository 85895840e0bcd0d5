"""Measure how fast the knowledge base adds observations, and how the queries of an advice slow down as it grows.

    python benchmarks/store.py [--most 1000000] [--postgresql]

The observations are generated from the shipped ones, with as many samples and records of the same length; their values
are not measured. Times are medians of several calls. "Ingest" is the rate for observations whose identities are already
computed, as after reading a file, which checks them; "with hashing" includes their computation.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase

ROUNDS = 12
BLOCK_SIZE = 4800


def shipped() -> list[Observation]:
    """Return the observations of the longest file that ships."""
    file = max(
        (f for f in files("knowledge.data").iterdir() if f.name.endswith("campaign-cpu-vm.jsonl.gz")),
        key=lambda f: f.name,
    )
    return list(read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name))


def generate(like: list[Observation], start: int) -> Iterator[Observation]:
    """Yield an endless series of observations, in blocks of 4 800, from this number on."""
    for number in itertools.count(start):
        model = like[number % len(like)]
        block, place = divmod(number, BLOCK_SIZE)
        seconds = tuple(s * (1 + number % 1009 / 10000) for s in model.samples)
        yield replace(
            model, samples=seconds, block=f"generated-{block:05}", round=place % ROUNDS, arm=place // ROUNDS % 20
        )


def timed(call: Callable[[], object], *, calls: int = 7) -> float:
    """Return the median milliseconds of a call."""
    spent = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        spent.append(1000 * (time.perf_counter() - start))
    return statistics.median(spent)


def measure(store: SqlKnowledgeBase, most: int) -> None:
    """Fill a knowledge base step by step, and print rates and durations."""
    like, stored = shipped(), 0
    fit = {"hyperparameters": list(range(40)), "contrasts": [[0.1] * 12] * 600}
    print("| observations | ingest a second | with hashing | already stored | blocks | model | one block | status |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in (10_000, 100_000, 1_000_000):
        if size > most:
            return
        fresh = list(itertools.islice(generate(like, stored), min(size - stored, 100_000)))
        start = time.perf_counter()
        for observation in fresh:
            assert observation.identity
        hashed = time.perf_counter()
        store.add(fresh)
        end = time.perf_counter()
        rate, whole = len(fresh) / (end - hashed), len(fresh) / (end - start)
        start = time.perf_counter()
        store.add(fresh)
        again = len(fresh) / (time.perf_counter() - start)
        stored += len(fresh)
        while stored < size:
            store.add(itertools.islice(generate(like, stored), 100_000))
            stored += 100_000
        stored = size
        store.store_derived("fit", [("torch/cpu", "0" * 64, fit)])
        columns = [
            timed(store.blocks),
            timed(lambda: store.load_derived("fit", [("torch/cpu", "0" * 64)])),
            timed(lambda: sum(1 for _ in store.observations(block="generated-00001")), calls=3),
            timed(store.content, calls=3),
        ]
        cells = [f"{size}", f"{rate:.0f}", f"{whole:.0f}", f"{again:.0f}", *(f"{ms:.1f} ms" for ms in columns)]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure one backend."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--postgresql", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = f"sqlite:///{folder / 'knowledge.sqlite'}"
        if options.postgresql:
            import pgserver

            folder.chmod(0o755)
            server = pgserver.get_server(folder / "server")
            stack.callback(server.cleanup)
            address = server.get_uri()
        measure(stack.enter_context(open_knowledge_base(address, shipped=False)), options.most)


if __name__ == "__main__":
    main()
