"""SIGKILL at random points of campaigns on Slurm: every cell is stored exactly once, whichever process dies.

`benchmarks/kills.py` does the same to campaigns on this machine.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from knowledge.domain.errors import AdvisorError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells
from tests.advisor.campaign.plans import workers
from tests.slurm.cluster import NODES, Cluster

TRIALS = 100
VICTIMS = ("coordinator", "worker", "node", "slurmd", "database")
ROUNDS, ARMS = 2, 3
LONGEST_SECONDS = 9.0


class Database:
    """A PostgreSQL server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        pgserver = pytest.importorskip("pgserver", reason="pgserver is not installed")
        self.folder = folder
        self._server = pgserver.get_server(folder)
        self.address: str = self._server.get_uri()

    def kill(self) -> None:
        """Kill every process of the server with SIGKILL."""
        postmaster = psutil.Process(int((self.folder / "postmaster.pid").read_text().splitlines()[0]))
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        # Without a reaper, the process id of the killed server still exists and would prevent the next start.
        for path in (self.folder / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            path.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the server again."""
        time.sleep(1)
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """End the server."""
        self._server.cleanup()


def _kill(victim: str, bench: Bench, slurm: Cluster, database: Database, process: subprocess.Popen[bytes]) -> None:
    """Kill a process or node, and restart what its machine would restart."""
    if victim == "coordinator":
        process.send_signal(signal.SIGKILL)
    elif victim == "worker":
        for worker in workers(bench)[:1]:
            with contextlib.suppress(psutil.Error):
                worker.send_signal(signal.SIGKILL)
    elif victim == "node":
        slurm.kill_node(NODES[0])
        slurm.start_node(NODES[0])
    elif victim == "slurmd":
        slurm.kill_daemon(NODES[1])
        slurm.start_node(NODES[1])
    else:
        database.kill()
        database.start()


@pytest.mark.slow
def test_every_cell_is_stored_exactly_once(bench: Bench, slurm: Cluster) -> None:
    bench.matrix(f"import time; time.sleep(0.3); {REFUSES}", REFUSES, rounds=ROUNDS)
    # Not inside pytest's directories: another run would make them inaccessible to the user of the server.
    folder = Path(tempfile.mkdtemp(prefix="seshat-kills-"))
    database = Database(folder)
    open_knowledge_base(database.address, shipped=False).close()
    bench.address = database.address
    generator = random.Random(7)
    coordinators: Counter[str] = Counter()
    stored = 0
    try:
        for trial in range(TRIALS):
            victim = VICTIMS[trial % len(VICTIMS)]
            options = ("-e", "slurm", "--repetition", str(trial + 1), "--attempts", "9", "--home", f"home-{trial}")
            process = bench.start(*options)
            time.sleep(generator.uniform(0.0, LONGEST_SECONDS))
            _kill(victim, bench, slurm, database, process)
            # A controller that lost the location of jobs starts them twice and drains those nodes.
            coordinators[victim] += bench.finish(process, *options, each_time=slurm.heal)

            with _open_store(database) as store:
                names = [name for name in _names(store) if f"-{trial + 1}-numpy" in name]
                cells = sorted((o.round, o.arm) for name in names for o in store.observations(block=name))
                assert cells == all_cells(ROUNDS, ARMS), (trial, victim)
                assert store.quarantined() == ()
            stored += len(cells)
        with _open_store(database) as store:
            total = sum(block.observations for block in store.blocks(_names(store)))
            assert total == stored == TRIALS * ROUNDS * ARMS
            assert list(store.find_damage()) == []
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{TRIALS} kills, {stored} observations, coordinators started again: {dict(coordinators)}")


def _names(store: SqlKnowledgeBase) -> list[str]:
    """Return the names of the campaigns' blocks, without the shipped ones."""
    return [block.name for block in store.blocks() if block.name.startswith("small-")]


@contextlib.contextmanager
def _open_store(database: Database) -> Iterator[SqlKnowledgeBase]:
    """Open the knowledge base, which may still be recovering."""
    deadline = time.monotonic() + 60
    while True:
        try:
            store = open_knowledge_base(database.address, shipped=False)
            break
        except AdvisorError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    with store:
        yield store
