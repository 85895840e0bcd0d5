"""How fast the knowledge base takes in observations, and how long advice's questions take as it grows.

    python benchmarks/store.py [--most 1000000] [--postgresql]

The observations are generated after the shipped ones: as many samples, as long a record; no value is a measurement.
Times are medians of several calls. "Ingest" is of observations whose identities are known, as after reading a file,
which checks them; "and hashed first" works those out too.
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

from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase

ROUNDS = 12
A_BLOCK = 4800


def shipped() -> list[Observation]:
    """Return the observations of the longest file that ships."""
    file = max(
        (f for f in files("knowledge.data").iterdir() if f.name.endswith("campaign-cpu-vm.jsonl.gz")),
        key=lambda f: f.name,
    )
    return list(read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name))


def generate(like: list[Observation], start: int) -> Iterator[Observation]:
    """Yield observations without end, in blocks of 4 800, from the one numbered so on."""
    for number in itertools.count(start):
        model = like[number % len(like)]
        block, place = divmod(number, A_BLOCK)
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
    """Fill a knowledge base step by step and print what it takes."""
    like, here = shipped(), 0
    fit = {"hyperparameters": list(range(40)), "contrasts": [[0.1] * 12] * 600}
    print("| observations | ingest a second | with hashing | already stored | blocks | model | one block | status |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in (10_000, 100_000, 1_000_000):
        if size > most:
            return
        fresh = list(itertools.islice(generate(like, here), min(size - here, 100_000)))
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
        here += len(fresh)
        while here < size:
            store.add(itertools.islice(generate(like, here), 100_000))
            here += 100_000
        here = size
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
