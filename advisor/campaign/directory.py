"""The directory of a campaign: its plan, its submissions, and observations that go to the knowledge base.

    HOME/campaign.json           the plan; never changed after it was written
    HOME/batches/001/            a submission: `submission.json`, `handle`, `closed.json`, the executor's files
    HOME/tasks/7.json            progress of the worker of task 7: the cell, the node, the node's clock
    HOME/spool/CELL.jsonl        observations of a worker, written atomically
    HOME/kept/CELL.jsonl         the same, after they were stored in the knowledge base

A cell is one stack in one round of a block, on one kind of machine. Each cell has one file, which is never replaced:
if a task runs twice, for example because its node was considered lost, the first result of each cell counts.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import create_atomically, lock_file, read_document, write_atomically
from knowledge.exchange.files import observation_file
from pi_runners.execution.campaign import Block
from pi_runners.plan.matrix import Arm

_FORMAT = 2
_MACHINE_CHARACTERS = 8
_CELL = re.compile(r"(?P<block>\d+)-(?P<round>\d+)-(?P<arm>\d+)-(?P<machine>[0-9a-f]{8})\.jsonl")


class CampaignDirectoryError(UnavailableError):
    """Raised when the directory of a campaign cannot be read or written."""

    code = "campaign-folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedCombination:
    """A combination of a matrix that is not measured, with the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPlan:
    """The blocks that a campaign measures.

    Attributes:
        name: Name of the campaign, unique to matrix, target, interpreter and repetition.
        blocks: The blocks, one for each backend and interpreter; their names begin with the campaign's, and their
            hardware is the hardware that the campaign was planned for.
        dropped: The combinations that are left out; the directory does not keep them.
    """

    name: str
    blocks: tuple[Block, ...]
    dropped: tuple[DroppedCombination, ...] = ()

    @property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """Block and round of each task. A round runs on one machine, so that compared stacks share the machine."""
        return tuple((b, r) for b, block in enumerate(self.blocks) for r in range(block.rounds))

    def arms(self, task: int) -> tuple[Arm, ...]:
        """Return the arms that a task measures, in the order of the plan."""
        return tuple(arm for arm in self.blocks[self.tasks[task][0]].arms if arm.indicators)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One stack in one round of a block, on one kind of machine.

    Attributes:
        block: Number of the block in the plan.
        round: Number of the round.
        arm: Number of the arm.
        machine: Prefix of the machine's identity.
    """

    block: int
    round: int
    arm: int
    machine: str

    @property
    def filename(self) -> str:
        """Name of the cell's file."""
        return f"{self.block}-{self.round:04}-{self.arm:04}-{self.machine}.jsonl"

    @classmethod
    def from_filename(cls, filename: str) -> Cell | None:
        """Return the cell of a file, or `None` if it is not a file of a cell."""
        match = _CELL.fullmatch(filename)
        if match is None:
            return None
        return cls(
            block=int(match["block"]), round=int(match["round"]), arm=int(match["arm"]), machine=match["machine"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Tasks that were submitted together.

    Attributes:
        folder: Directory of the submission.
        tasks: Numbers of the tasks.
        cells_before: By task, the number of cells that existed before the submission.
        engine: Name of the engine.
        options: Options of the engine.
        submitted_at: Time of submission, in seconds since the epoch.
        handle: Identifier of the submission in the engine; empty if the engine has not confirmed it.
        outcomes: By task, how it ended; empty until all tasks have ended.
    """

    folder: Path
    tasks: tuple[int, ...]
    cells_before: dict[int, int]
    engine: str
    options: dict[str, Any]
    submitted_at: float
    handle: str
    outcomes: dict[int, dict[str, Any]]


class CampaignDirectory:
    """The directory of a campaign.

    Attributes:
        path: The directory.
        spool: Directory of cells that are not in the knowledge base yet.
        stored: Directory of cells that are in the knowledge base.
        batches: Directory of the submissions.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.spool = self.path / "spool"
        self.stored = self.path / "kept"
        self.batches = self.path / "batches"

    def create(self, plan: CampaignPlan) -> None:
        """Create the directory and write the plan, unless there is a plan.

        Raises:
            CampaignDirectoryError: If the directory cannot be written.
        """
        try:
            for folder in (self.spool, self.stored, self.batches, self.path / "tasks"):
                folder.mkdir(parents=True, exist_ok=True)
            if not (self.path / "campaign.json").exists():
                content = plan_document(plan)
                write_file(self.path / "campaign.json.gz", gzip.compress(content, mtime=0))
                write_file(self.path / "campaign.json", content)
        except OSError as error:
            raise CampaignDirectoryError(
                f"the campaign directory `{self.path}` cannot be written: {error.strerror}",
                hint="choose another directory with `--home`",
            ) from None

    @property
    def exists(self) -> bool:
        """Whether the directory has a plan."""
        return (self.path / "campaign.json").exists()

    def plan(self) -> CampaignPlan:
        """Return the plan.

        Raises:
            InputError: If there is no plan, or it is damaged.
        """
        path = self.path / "campaign.json"
        try:
            return read_plan(path.read_bytes(), where=str(path))
        except OSError:
            raise InputError(
                f"`{self.path}` is not the directory of a campaign", hint="`advisor pi status` lists all campaigns"
            ) from None

    def cells(self, *folders: Path) -> dict[Cell, Path]:
        """Return the cells that have a file in some of the directories (default: spool and stored), with the files."""
        files = {}
        for folder in folders or (self.spool, self.stored):
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(folder):
                    if (cell := Cell.from_filename(entry.name)) is not None:
                        files[cell] = Path(entry.path)
        return dict(sorted(files.items()))

    def put(self, cell: Cell, content: bytes, *, stored: bool = False) -> bool:
        """Write the observations of a cell, which may be stored, unless it has a file; return whether it was written.

        Raises:
            CampaignDirectoryError: If the file cannot be written.
        """
        if (self.stored / cell.filename).exists():
            return False
        try:
            return create_atomically((self.stored if stored else self.spool) / cell.filename, content)
        except InputError as error:
            raise CampaignDirectoryError(
                error.message, hint="free disk space or correct the directory's permissions, then repeat the command"
            ) from None

    def mark_stored(self, cell: Cell, *, is_stored: bool = True) -> None:
        """Record whether the knowledge base has a cell."""
        source, target = (self.spool, self.stored) if is_stored else (self.stored, self.spool)
        with contextlib.suppress(FileNotFoundError):
            os.replace(source / cell.filename, target / cell.filename)

    def write_progress(self, task: int, document: dict[str, Any]) -> None:
        """Write what the worker of a task is doing."""
        write_file(self.path / "tasks" / f"{task}.json", json.dumps(document).encode())

    def read_progress(self, task: int) -> dict[str, Any]:
        """Return what :meth:`write_progress` wrote last for a task; empty if nothing was written."""
        return read_document(self.path / "tasks" / f"{task}.json")

    @contextlib.contextmanager
    def lock_coordinator(self) -> Iterator[bool]:
        """Lock the campaign for one coordinator; yield false if another process has the lock."""
        with lock_file(self.path / "coordinator") or contextlib.nullcontext() as lock:
            yield lock is not None


def read_submission(folder: Path) -> Submission:
    """Read a submission from its directory."""
    document = read_document(folder / "submission.json")
    handle = folder / "handle"
    return Submission(
        folder=folder,
        tasks=tuple(document.get("tasks", ())),
        cells_before={int(task): count for task, count in document.get("had", {}).items()},
        engine=str(document.get("engine", "local")),
        options=dict(document.get("options", {})),
        submitted_at=float(document.get("at", 0.0)),
        handle=handle.read_text(encoding="utf-8") if handle.exists() else "",
        outcomes={int(task): end for task, end in read_document(folder / "closed.json").items()},
    )


def cell_files(plan: CampaignPlan, observations: Iterable[Observation]) -> Iterator[tuple[Cell, bytes]]:
    """Group observations of a campaign by cell; yield each cell with the content of its file."""
    numbers = {block.name: number for number, block in enumerate(plan.blocks)}
    by_cell: dict[Cell, list[Observation]] = {}
    for observation in observations:
        machine = observation.hardware.identity[:_MACHINE_CHARACTERS]
        block = numbers[observation.block.removesuffix(f"-{machine}")]
        cell = Cell(block=block, round=observation.round, arm=observation.arm, machine=machine)
        by_cell.setdefault(cell, []).append(observation)
    for cell, members in sorted(by_cell.items()):
        yield cell, observation_file(members)


def block_name(block: Block, machine: str) -> str:
    """Return the name of a planned block on one kind of machine; each kind has blocks of its own to compare."""
    return f"{block.name}-{machine[:_MACHINE_CHARACTERS]}"


def plan_document(plan: CampaignPlan) -> bytes:
    """Return a plan as JSON. The same plan gives the same bytes."""
    content = _plans().dump_json(plan, exclude={"dropped"})
    return b'{"format": %d, "plan": %b}\n' % (_FORMAT, content)


def read_plan(content: bytes, *, where: str) -> CampaignPlan:
    """Read a plan.

    Raises:
        InputError: If the content is not a plan, or was written by an incompatible version.
    """
    try:
        document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
        plan: CampaignPlan = _plans().validate_python(document["plan"])
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise InputError(
            f"`{where}` is not the plan of a campaign: {str(error).splitlines()[0]}",
            hint="the file is damaged, or from another version; start a new campaign with another `--repetition`",
        ) from None
    return plan


def _plans() -> Any:
    # `advisor pi --help` imports this module.
    from pydantic import TypeAdapter

    return TypeAdapter(CampaignPlan)


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a campaign atomically.

    Raises:
        CampaignDirectoryError: If the file cannot be written.
    """
    try:
        write_atomically(path, content)
    except InputError as error:
        raise CampaignDirectoryError(
            error.message, hint="free disk space, correct the permissions, or choose another `--home`"
        ) from None
