"""Measure the processor time of the first use: loading the shipped observations, and their contrasts.

    python benchmarks/first_use.py [FILE ...] [--calls 3]

Files of observations are added to the shipped ones, as if they shipped as well. "Shipped contrasts" is the time that
`advisor advise` takes at the first use to read the contrasts that ship, "computed contrasts" the time to compute them
from the observations instead. Times are medians, without the import of modules.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.evidence.block_evidence import compute_evidence, load_evidence
from knowledge.store.engine import open_knowledge_base
from knowledge.store.shipped_files import ShippedFile, shipped_files


def file_at(path: Path) -> ShippedFile:
    """Return a file of observations as if it shipped."""
    content = path.read_bytes()
    return ShippedFile(name=path.name, sha256=hashlib.sha256(content).hexdigest(), content=content)


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, in seconds."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(files: tuple[ShippedFile, ...]) -> tuple[int, int, tuple[float, float, float]]:
    """Return the number of observations, the size of the database, and the times, for a new knowledge base."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "knowledge.sqlite"

        def load() -> None:
            with open_knowledge_base(str(path), shipped=False) as store:
                store.add_shipped(files, version=1)

        loading = processor_seconds(load)
        with open_knowledge_base(str(path), shipped=False) as store:
            count = sum(block.observations for block in store.blocks())
            times = (
                loading,
                processor_seconds(lambda: load_evidence(store)),
                processor_seconds(lambda: compute_evidence(store)),
            )
        return count, path.stat().st_size, times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--calls", type=int, default=3)
    arguments = parser.parse_args()
    shipped = shipped_files()
    print("| observations | files | database | loading | shipped contrasts | computed contrasts |")
    print("| --- | --- | --- | --- | --- | --- |")
    for files in [shipped, (*shipped, *map(file_at, arguments.files))][: 2 if arguments.files else 1]:
        # A process for each call: a second call would find what the first one cached.
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            results = list(pool.map(measure, [files] * arguments.calls))
        count, size, _ = results[0]
        loading, reading, computing = (statistics.median(times) for times in zip(*(r[2] for r in results), strict=True))
        compressed = sum(len(file.content) for file in files)
        print(
            f"| {count} | {compressed / 1e6:.1f} MB | {size / 1e6:.0f} MB | {loading:.2f} s | {reading:.2f} s "
            f"| {computing:.1f} s |"
        )


if __name__ == "__main__":
    main()
