"""Campaigns over a package that is no framework: what it does on import is what its stack does."""

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
    """A folder with a matrix, an index and a knowledge base, and the command line in it."""

    def __init__(self, folder: Path, index: PackageIndex, knowledge: Path) -> None:
        self.folder = folder
        self.index = index
        self.knowledge = knowledge
        self.address = f"sqlite:///{self.knowledge}"

    @property
    def variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
        return {
            **kept,
            "ADVISOR_CACHE_DIR": str(self.folder / "cache"),
            "ADVISOR_KNOWLEDGE": self.address,
        }

    @property
    def held(self) -> str:
        """Code of a version that fails once ``release`` was called, and not before."""
        return (
            f"import os, time\nwhile not os.path.exists({str(self.folder / 'released')!r}): time.sleep(0.05)\n{REFUSES}"
        )

    def release(self) -> None:
        """Let the versions go on that are held."""
        (self.folder / "released").touch()

    def matrix(self, *codes: str, rounds: int = 2) -> None:
        """Offer a version for each piece of code, and write the matrix of all of them."""
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
        """Start a campaign and do not wait for it."""
        return subprocess.Popen(
            self.command("pi", "campaign", "matrix.toml", "--index-url", self.index.url, *arguments),
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # What a shell starts in the background ignores interrupts, and so would what the tests start there.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def watch(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command line and read what it prints."""
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, text=True
        )

    def finish(
        self, process: subprocess.Popen[bytes], *arguments: str, meanwhile: Callable[[], None] = lambda: None
    ) -> int:
        """Wait until a campaign is complete; where its coordinator ends, start it again, as a service manager would.

        Args:
            process: The coordinator.
            arguments: What it was started with.
            meanwhile: Called every half second.

        Returns:
            How often it was started again.
        """
        deadline = time.monotonic() + 400
        starts = 0
        while (code := process.poll()) != 0:
            assert time.monotonic() < deadline, self.run("pi", "status").stdout
            if code is not None:
                starts += 1
                process = self.start(*arguments)
            meanwhile()
            time.sleep(0.5)
        return starts

    def status(self, *arguments: str) -> dict[str, Any]:
        result = self.run("pi", "status", "small", "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    @property
    def observations(self) -> list[Observation]:
        """What the knowledge base has of the campaign."""
        with open_knowledge_base(str(self.knowledge), shipped=False) as store:
            names = [block.name for block in store.blocks() if block.name.startswith("small-")]
            return [o for name in names for o in store.observations(block=name)]

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Round and arm of each observation, sorted: each must be there once."""
        return sorted((o.round, o.arm) for o in self.observations)

    @property
    def home(self) -> Path:
        """The campaign's folder."""
        (found,) = (self.folder / "campaigns").iterdir()
        return found

    @property
    def begun(self) -> bool:
        """Whether some worker, here or in a pod, has begun to measure."""
        # No walk through everything: environments come and go.
        patterns = ("campaigns/*/tasks/*.json", "cluster/pod-*/scratch/campaign/tasks/*.json")
        return any(found for pattern in patterns for found in self.folder.glob(pattern))

    def wait(self, condition: Callable[[], bool], every: float = 0.05) -> None:
        """Wait until something is so; the limit only ends what would hang."""
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(every)


@pytest.fixture
def bench(tmp_path: Path, index: PackageIndex, first_knowledge: Path) -> Bench:
    return Bench(tmp_path, index, Path(shutil.copy(first_knowledge, tmp_path / "knowledge.sqlite")))


def every_cell(rounds: int, arms: int) -> list[tuple[int, int]]:
    return [(number, arm) for number in range(rounds) for arm in range(arms)]
