"""Fixtures for campaigns over a fake `numpy` whose import decides what its stack does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from knowledge.domain.observation import Observation
from knowledge.store.engine import open_knowledge_base
from tests.forked import run_forked
from tests.package_index import PackageIndex

MATRIX = """
name = "small"
rounds = {rounds}
samples = 2
min-time = 0.001
indicators = [{{ name = "sort", parameters = {{ rows = 4, columns = 16 }} }}]
[[stack]]
framework = "numpy"
versions = "all"
"""
REFUSES = "raise ImportError('not today')"


class Bench:
    """A directory with a matrix, a package index and a knowledge base, in which the command line runs."""

    def __init__(self, folder: Path, index: PackageIndex, knowledge: Path) -> None:
        self.folder = folder
        self.index = index
        self.knowledge = knowledge
        self.address = f"sqlite:///{self.knowledge}"

    @property
    def variables(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
        return {
            **inherited,
            "ADVISOR_CACHE_DIR": str(self.folder / "cache"),
            "ADVISOR_KNOWLEDGE": self.address,
        }

    @property
    def waiting_code(self) -> str:
        """Code of a version that waits until ``release`` is called, and then fails."""
        return (
            f"import os, time\nwhile not os.path.exists({str(self.folder / 'released')!r}): time.sleep(0.05)\n{REFUSES}"
        )

    def release(self) -> None:
        """Let the waiting versions continue."""
        (self.folder / "released").touch()

    def matrix(self, *codes: str, rounds: int = 2) -> None:
        """Add a version to the index for each piece of code, and write a matrix of all of them."""
        for number, code in enumerate(codes):
            self.index.add("numpy", f"2.{number}.0", code=code)
        (self.folder / "matrix.toml").write_text(MATRIX.format(rounds=rounds))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "advisor", *arguments]

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run_forked(arguments, cwd=self.folder, environment={**self.variables, **more}, timeout=600)

    def campaign(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("pi", "campaign", "matrix.toml", "--index-url", self.index.url, *arguments, **more)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a campaign without waiting for its end."""
        return subprocess.Popen(
            self.command("pi", "campaign", "matrix.toml", "--index-url", self.index.url, *arguments),
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A background process of a shell ignores interrupts, and its children inherit that: restore the default.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def watch(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command line with a pipe for its output."""
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, text=True
        )

    def finish(
        self, process: subprocess.Popen[bytes], *arguments: str, each_time: Callable[[], None] = lambda: None
    ) -> int:
        """Wait until a campaign is complete; if its coordinator ends, restart it, as a service manager would.

        Args:
            process: The coordinator.
            arguments: The options of the campaign.
            each_time: Called every half second.

        Returns:
            Number of restarts.
        """
        deadline = time.monotonic() + 400
        starts = 0
        while (code := process.poll()) != 0:
            assert time.monotonic() < deadline, self.run("pi", "status").stdout
            if code is not None:
                starts += 1
                process = self.start(*arguments)
            each_time()
            time.sleep(0.5)
        return starts

    def status(self, *arguments: str) -> dict[str, Any]:
        result = self.run("pi", "status", "small", "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        status_report: dict[str, Any] = json.loads(result.stdout)
        return status_report

    @property
    def observations(self) -> list[Observation]:
        """The observations of the campaign in the knowledge base."""
        with open_knowledge_base(str(self.knowledge), shipped=False) as store:
            names = [block.name for block in store.blocks() if block.name.startswith("small-")]
            return [o for name in names for o in store.observations(block=name)]

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Round and arm of each observation, sorted; each pair must occur once."""
        return sorted((o.round, o.arm) for o in self.observations)

    @property
    def directory(self) -> Path:
        """The campaign's directory."""
        (directory,) = (self.folder / "campaigns").iterdir()
        return directory

    @property
    def has_started(self) -> bool:
        """Whether a worker, on this machine or in a pod, has started to measure."""
        # Not a recursive search: environments appear and disappear meanwhile.
        patterns = ("campaigns/*/tasks/*.json", "cluster/pod-*/scratch/campaign/tasks/*.json")
        return any(path for pattern in patterns for path in self.folder.glob(pattern))

    def wait(self, condition: Callable[[], bool], every: float = 0.05) -> None:
        """Wait until a condition is true; the time limit only ends a test that hangs."""
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(every)


@pytest.fixture
def bench(tmp_path: Path, index: PackageIndex, empty_knowledge: Path) -> Bench:
    return Bench(tmp_path, index, Path(shutil.copy(empty_knowledge, tmp_path / "knowledge.sqlite")))


def all_cells(rounds: int, arms: int) -> list[tuple[int, int]]:
    return [(number, arm) for number in range(rounds) for arm in range(arms)]
