"""Operations to kill: their start, the states that a kill may leave, and their outcome when repeated."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from knowledge.exchange.files import observation_file
from knowledge.store.engine import open_knowledge_base
from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells
from tests.knowledge.next_revision import NEXT, installed, older_knowledge
from tests.knowledge.samples import observation
from tests.package_index import PackageIndex

NEXT_REVISION = "from tests.knowledge.next_revision import install; install()"
"""Code of a program whose tables have one more revision."""
OLD, NEW, BETWEEN = "old", "new", "between"
"""States that a killed program may leave; in the one between, only complete steps are done."""


class ViolationError(Exception):
    """Raised when a killed program leaves a state that is not allowed."""


class Operation(ABC):
    """One operation of the program, in variants that take turns.

    Attributes:
        name: Name of the operation.
        variants: Number of variants.
        program: Command that the arguments are appended to.
        nearness: Exponent of the uniform number that determines a moment after the first change: 1 distributes the
            moments evenly, larger exponents put most of them soon after the change.
    """

    name: str
    variants: int
    program: tuple[str, ...] = (sys.executable, "-m", "advisor")
    nearness: int = 4

    @abstractmethod
    def prepare(self, folder: Path, variant: int) -> None:
        """Create the folder with the initial state of the operation."""

    @abstractmethod
    def command(self, folder: Path, variant: int) -> list[str]:
        """Return the arguments of `advisor`."""

    @abstractmethod
    def watched(self, folder: Path) -> Path:
        """Return the directory whose first change is the start of writing."""

    @abstractmethod
    def outcome(self, folder: Path, variant: int) -> object:
        """Return everything that the operation has written, as a value to compare with that of the reference run."""

    @abstractmethod
    def state(self, folder: Path, variant: int, output: str) -> str:
        """Return the state that a killed run left, without changing it.

        Raises:
            ViolationError: If the state is not allowed.
        """

    def start(self, folder: Path, variant: int, output: Path) -> subprocess.Popen[bytes]:
        """Start the operation, with its output in a file."""
        with output.open("wb") as file:
            return subprocess.Popen(
                [*self.program, *self.command(folder, variant)],
                cwd=folder,
                env=variables(folder),
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def kill(self, folder: Path, number: int, process: subprocess.Popen[bytes]) -> bool:
        """Kill the running processes; return whether there were any."""
        is_running = process.poll() is None
        process.kill()
        process.wait()
        return is_running

    def repeat(self, folder: Path, variant: int, process: subprocess.Popen[bytes], output: Path) -> None:
        """Run the operation again.

        Raises:
            ViolationError: If it fails.
        """
        again = self.start(folder, variant, output)
        if code := again.wait(600):
            text = output.read_text(errors="replace").strip()
            raise ViolationError(f"repeating it ends with exit code {code}: {text[-300:]}")


def variables(folder: Path) -> dict[str, str]:
    """Return environment variables with the cache and the knowledge base in a folder."""
    own = {"ADVISOR_CACHE_DIR": str(folder / "cache"), "ADVISOR_KNOWLEDGE": f"sqlite:///{knowledge_in(folder)}"}
    return {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")} | own


def knowledge_in(folder: Path) -> Path:
    """Return the path of a folder's knowledge base, which is in its own directory."""
    return folder / "knowledge" / "knowledge.sqlite"


def knowledge_of(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's knowledge base except for times, read from a copy so that nothing changes.

    Raises:
        ViolationError: If the knowledge base is damaged.
    """
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(knowledge_in(folder).parent, copy)
    with open_knowledge_base(str(copy / "knowledge.sqlite"), shipped=False) as store:
        if damage := list(store.find_damage()):
            raise ViolationError(f"the knowledge base is damaged: {damage[0]}")
        return {
            "content": replace(store.content(), address=""),
            "blocks": {block.name: (block.observations, block.digest, block.source) for block in store.blocks()},
            "quarantine": sorted((q.observation.identity, q.source, q.reason) for q in store.quarantined()),
            "shipped": store.shipped(),
        }


class _Lock(Operation):
    """A new lock that replaces an old one: `advisor advise`, and `advisor advise --update`."""

    name = "lock writing"
    variants = 2

    def __init__(self, scratch: Path, index: PackageIndex, knowledge: Path) -> None:
        self._index = index
        self._template = scratch / "project"
        for version in ("1.0", "2.0"):
            index.add("a", version, [f"b=={version}"], code="")
            index.add("b", version, code="")
        knowledge_in(self._template).parent.mkdir(parents=True)
        shutil.copy(knowledge, knowledge_in(self._template))
        self._project("a<2")
        self._advise(self._template, "advise")
        self.before = (self._template / "pylock.toml").read_bytes()
        self._project("a>=2")
        # The directory itself stays, so that the first change in the project is that of the lock.
        shutil.rmtree(self._template / "cache" / "index")
        self._after: dict[int, bytes] = {}

    def _project(self, requirement: str) -> None:
        (self._template / "pyproject.toml").write_text(
            f'[project]\nname = "m"\ndependencies = ["{requirement}"]\n\n'
            '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
        )

    def _advise(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "advisor", *arguments, "--index-url", self._index.url]
        subprocess.run(command, cwd=folder, env=variables(folder), check=True, capture_output=True)

    def prepare(self, folder: Path, variant: int) -> None:
        shutil.copytree(self._template, folder)

    def command(self, folder: Path, variant: int) -> list[str]:
        return ["advise", *(["--update"] if variant else []), "--index-url", self._index.url]

    def watched(self, folder: Path) -> Path:
        return folder

    def outcome(self, folder: Path, variant: int) -> object:
        content = (folder / "pylock.toml").read_bytes()
        self._after.setdefault(variant, content)
        return content

    def state(self, folder: Path, variant: int, output: str) -> str:
        content = (folder / "pylock.toml").read_bytes()
        if content not in (self.before, self._after[variant]):
            raise ViolationError(f"the lock is neither the old nor the new one, but {len(content)} other bytes")
        return OLD if content == self.before else NEW


class _Import(Operation):
    """Import three observation files into an existing knowledge base, or into a new one."""

    name = "ingest"
    variants = 2
    blocks = ("one", "two", "three")
    sizes = (400, 3000, 400)
    nearness = 1

    def __init__(self, scratch: Path, index: PackageIndex, knowledge: Path) -> None:
        self._files = scratch / "files"
        self._files.mkdir()
        for name, size in zip(self.blocks, self.sizes, strict=True):
            observations = [observation(block=name, round=r, seconds=1.0 + r / size) for r in range(size)]
            # One observation of each file is implausible, and is quarantined.
            observations.append(replace(observation(block=name, round=size), started_at="1999-01-01T00:00:00Z"))
            (self._files / f"{name}.jsonl").write_bytes(observation_file(observations))
        self._knowledge = knowledge

    def prepare(self, folder: Path, variant: int) -> None:
        knowledge_in(folder).parent.mkdir(parents=True)
        if variant == 0:
            shutil.copy(self._knowledge, knowledge_in(folder))

    def command(self, folder: Path, variant: int) -> list[str]:
        return ["knowledge", "import", *(str(self._files / f"{name}.jsonl") for name in self.blocks)]

    def watched(self, folder: Path) -> Path:
        return knowledge_in(folder).parent

    def outcome(self, folder: Path, variant: int) -> object:
        return knowledge_of(folder)

    def state(self, folder: Path, variant: int, output: str) -> str:
        if not knowledge_in(folder).exists():
            return self._checked(output, 0)
        knowledge = knowledge_of(folder)
        quarantined = len(knowledge["quarantine"])
        for place, (name, size) in enumerate(zip(self.blocks, self.sizes, strict=True)):
            # A file is one transaction, with its quarantined observations.
            expected = size if place < quarantined else 0
            if (count := knowledge["blocks"].get(name, (0,))[0]) != expected:
                raise ViolationError(
                    f"block `{name}` has {count} of {size} observations, and {quarantined} are quarantined"
                )
        return self._checked(output, quarantined)

    def _checked(self, output: str, stored: int) -> str:
        if (acknowledged := output.count(" added, ")) > stored:
            raise ViolationError(f"{acknowledged} files were acknowledged, and {stored} are there")
        return {0: OLD, len(self.blocks): NEW}.get(stored, BETWEEN)


class _Migration(Operation):
    """Open a knowledge base of an older revision, which migrates it and adds the shipped observations."""

    name = "migration"
    variants = 1
    nearness = 1
    program = (sys.executable, "-c", f"{NEXT_REVISION}; from advisor.cli.app import main; main()")

    def __init__(self, scratch: Path, index: PackageIndex, knowledge: Path) -> None:
        self._schemas: dict[int, set[object]] = {}

    def prepare(self, folder: Path, variant: int) -> None:
        path = knowledge_in(folder)
        path.parent.mkdir(parents=True)
        older_knowledge(path)
        self._schemas.setdefault(variant, set()).add(_tables(path)[0])

    def command(self, folder: Path, variant: int) -> list[str]:
        return ["knowledge", "status"]

    def watched(self, folder: Path) -> Path:
        return knowledge_in(folder).parent

    def outcome(self, folder: Path, variant: int) -> object:
        self._schemas[variant].add(_tables(knowledge_in(folder))[0])
        with installed():
            return knowledge_of(folder)

    def state(self, folder: Path, variant: int, output: str) -> str:
        copy = folder / "look"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(knowledge_in(folder).parent, copy)
        schema, revision = _tables(copy / "knowledge.sqlite")
        if schema not in self._schemas[variant]:
            raise ViolationError(f"at revision {revision}, the tables are those of no revision")
        return NEW if revision == NEXT else OLD


def _tables(path: Path) -> tuple[object, str]:
    """Return the tables and revision of a file, whose integrity is checked."""
    with closing(sqlite3.connect(path)) as connection:
        (health,) = connection.execute("PRAGMA integrity_check").fetchone()
        if health != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone():
            raise ViolationError(f"the file is damaged: {health}")
        schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return tuple(schema), str(revision)


class _Campaign(Operation):
    """A campaign on this machine, of which one process or all are killed; started again until it is complete."""

    name = "campaign"
    victims = ("coordinator", "supervisor", "worker", "every process")
    variants = 1
    rounds, arms = 2, 3
    _OPTIONS = ("--attempts", "9")

    def __init__(self, scratch: Path, index: PackageIndex, knowledge: Path) -> None:
        self._index = index
        self._knowledge = knowledge
        self._offered = False

    def _bench(self, folder: Path) -> Bench:
        return Bench(folder, self._index, knowledge_in(folder))

    def prepare(self, folder: Path, variant: int) -> None:
        knowledge_in(folder).parent.mkdir(parents=True)
        shutil.copy(self._knowledge, knowledge_in(folder))
        codes: Collection[str] = () if self._offered else (f"import time; time.sleep(0.3); {REFUSES}", REFUSES)
        self._bench(folder).matrix(*codes, rounds=self.rounds)
        self._offered = True

    def command(self, folder: Path, variant: int) -> list[str]:
        return ["pi", "campaign", "matrix.toml", "--index-url", self._index.url, *self._OPTIONS]

    def watched(self, folder: Path) -> Path:
        return knowledge_in(folder).parent

    def kill(self, folder: Path, number: int, process: subprocess.Popen[bytes]) -> bool:
        role = self.victims[number // 2 % len(self.victims)]
        words = {"supervisor": "pi_runners.executors.supervisor", "worker": "work"}
        victims = [psutil.Process(process.pid)] if role == "coordinator" and process.poll() is None else []
        if role != "coordinator":
            victims = _processes(folder, words.get(role, ""))
        for member in victims:
            with suppress(psutil.Error):
                member.send_signal(signal.SIGKILL)
        return bool(victims)

    def repeat(self, folder: Path, variant: int, process: subprocess.Popen[bytes], output: Path) -> None:
        self._bench(folder).finish(process, *self._OPTIONS)

    def outcome(self, folder: Path, variant: int) -> object:
        cells = self._bench(folder).cells
        if cells != all_cells(self.rounds, self.arms):
            raise ViolationError(f"the rounds and arms {cells} are stored, which is not each of them once")
        if entries := knowledge_of(folder)["quarantine"]:
            raise ViolationError(f"{len(entries)} observations are quarantined: {entries[0][2]}")
        return cells

    def state(self, folder: Path, variant: int, output: str) -> str:
        # Not from a copy, because processes that were not killed may still write.
        stored = len(self._bench(folder).observations)
        return {0: OLD, self.rounds * self.arms: NEW}.get(stored, BETWEEN)


def _processes(folder: Path, word: str) -> list[psutil.Process]:
    """Return the processes of a folder whose command contains a word, the newest first."""
    matches = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            inside = str(folder) in " ".join(words) or process.cwd() == str(folder)
            if inside and process.pid != os.getpid() and (not word or word in words):
                matches.append(process)
    return sorted(matches, key=lambda p: -p.pid)


OPERATIONS: dict[str, type[_Lock] | type[_Import] | type[_Migration] | type[_Campaign]] = {
    "lock": _Lock,
    "ingest": _Import,
    "campaign": _Campaign,
    "migration": _Migration,
}
