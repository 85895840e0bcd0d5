"""Measure how many observations the service accepts: ``python -m benchmarks.service [SECONDS]``.

Clients in separate processes deliver observations to `advisor serve` on loopback, 1 and 100 per request, with 1 and 32
clients, on SQLite and on PostgreSQL. It prints observations and requests per second, the median and the 99th percentile
of the duration of a request, and how many of the observations that were answered with 200 are stored.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import requests

from knowledge.exchange.files import observation_file
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.samples import observation

CLIENTS = (1, 32)
SIZES = (1, 100)


def client(number: int, address: str, token: str, size: int, until: float, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """Deliver observations of a separate block until a time; report the duration of each request."""
    session = requests.Session()
    session.headers.update({"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"})
    durations: list[float] = []
    delivered = 0
    name = f"load-{size}-{os.getpid()}-{number}"
    # Runners deliver one arm of one round at a time, with several indicators.
    while time.time() < until:
        observations = [
            replace(observation(round=delivered + i, block=name), settings={"client": number}) for i in range(size)
        ]
        content = observation_file(observations)
        started = time.perf_counter()
        answer = session.post(f"{address}/observations", data=content, timeout=60)
        durations.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
        assert answer.json()["added"] == size, answer.text
        delivered += size
    results.put((delivered, durations))


@contextmanager
def served(knowledge: str, folder: Path, *options: str) -> Iterator[tuple[str, str]]:
    """Run `advisor serve` with options; yield its address and a token of a runner."""
    environment = {**os.environ, "ADVISOR_KNOWLEDGE": knowledge}
    command = [sys.executable, "-m", "advisor"]
    token = subprocess.run(
        [*command, "knowledge", "token", "create", "load"], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen([*command, "serve", "--port", "0", *options], env=environment, stderr=log)
        try:
            while "http://" not in (text := (folder / "log").read_text()):
                time.sleep(0.1)
            address = next(word for word in text.split() if word.startswith("http://"))
            yield address.partition("/dashboard")[0], token
        finally:
            process.terminate()
            process.wait()


def measure(knowledge: str, label: str, seconds: float, folder: Path) -> None:
    """Print a line for each number of clients and each size."""
    open_knowledge_base(knowledge, shipped=False).close()
    total = 0
    with served(knowledge, folder) as (address, token):
        with open_knowledge_base(knowledge, shipped=False) as store:
            before = sum(block.observations for block in store.blocks())
        for size in SIZES:
            for clients in CLIENTS:
                results: multiprocessing.Queue[tuple[int, list[float]]] = multiprocessing.Queue()
                until = time.time() + seconds
                processes = [
                    multiprocessing.Process(target=client, args=(i, address, token, size, until, results))
                    for i in range(clients)
                ]
                started = time.perf_counter()
                for process in processes:
                    process.start()
                deliveries = [results.get() for _ in processes]
                for process in processes:
                    process.join()
                elapsed = time.perf_counter() - started
                delivered, times = (
                    sum(s for s, _ in deliveries),
                    sorted(t for _, durations in deliveries for t in durations),
                )
                total += delivered
                print(
                    f"{label:11} {clients:3} clients x {size:4}: {delivered / elapsed:7.0f} observations/s, "
                    f"{len(times) / elapsed:6.0f} requests/s, p50 {statistics.median(times) * 1e3:6.1f} ms, "
                    f"p99 {times[int(0.99 * (len(times) - 1))] * 1e3:7.1f} ms",
                    flush=True,
                )
    with open_knowledge_base(knowledge, shipped=False) as store:
        stored = sum(block.observations for block in store.blocks()) - before
        print(
            f"{label:11} {total} answered with 200, {stored} there, {len(store.quarantined())} quarantined", flush=True
        )


def main() -> None:
    """Measure both databases."""
    import pgserver

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("seconds", type=float, nargs="?", default=10.0, help="duration of each case (default: 10)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as scratch:
        measure(f"sqlite:///{scratch}/knowledge.sqlite", "sqlite", seconds, Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        server = pgserver.get_server(Path(scratch) / "postgresql")
        measure(server.get_uri(), "postgresql", seconds, Path(scratch))
        server.cleanup()


if __name__ == "__main__":
    main()
