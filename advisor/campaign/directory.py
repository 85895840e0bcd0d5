"""A campaign on disk: its plan, what was submitted, and the observations on their way to the knowledge base.

    HOME/campaign.json           the plan; never changed once it is there
    HOME/batches/001/            what was submitted: `submission.json`, `handle`, `closed.json`, the executor's files
    HOME/tasks/7.json            what the worker of task 7 is doing, where, and by what clock
    HOME/spool/CELL.jsonl        observations that a worker took; written whole or not at all
    HOME/kept/CELL.jsonl         the same, when the knowledge base has them

A cell is one stack in one round of a block, on one kind of machine. It has one file, and the first that is written
stays: a task that ran twice, because a node was taken for lost, leaves each cell once.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge.domain.atomic_file import create_atomically, write_atomically
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import Observation
from knowledge.exchange.files import observation_file
from pi_runners.campaign import Block
from pi_runners.matrix import Arm

_FORMAT = 1
_MACHINE = 8
_CELL = re.compile(r"(?P<block>\d+)-(?P<round>\d+)-(?P<arm>\d+)-(?P<machine>[0-9a-f]{8})\.jsonl")


class HomeError(UnavailableError):
    """Raised when a campaign's folder cannot be read or written."""

    code = "campaign-folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPlan:
    """What a campaign measures.

    Attributes:
        name: Its name, unique to matrix, target, interpreter and repetition.
        blocks: What to take together; their hardware is what they were planned for.
    """

    name: str
    blocks: tuple[Block, ...]

    @property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """Block and round of each task: a round runs on one machine, so that what is compared shares it."""
        return tuple((b, r) for b, block in enumerate(self.blocks) for r in range(block.rounds))

    def arms(self, task: int) -> tuple[Arm, ...]:
        """Return what a task measures, in the order of the plan."""
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
    def file(self) -> str:
        """Name of its file."""
        return f"{self.block}-{self.round:04}-{self.arm:04}-{self.machine}.jsonl"

    @classmethod
    def of(cls, name: str) -> Cell | None:
        """Return the cell of a file, or none where it is no cell's."""
        found = _CELL.fullmatch(name)
        if found is None:
            return None
        return cls(
            block=int(found["block"]), round=int(found["round"]), arm=int(found["arm"]), machine=found["machine"]
        )


def machine_of(o: Observation) -> str:
    """Return the prefix of a machine's identity that names cells and blocks."""
    return o.hardware.identity[:_MACHINE]


class Home:
    """A campaign's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.spool = self.folder / "spool"
        self.kept = self.folder / "kept"
        self.batches = self.folder / "batches"

    def create(self, plan: CampaignPlan) -> None:
        """Write the plan, unless there is one.

        Raises:
            HomeError: If the folder cannot be written.
        """
        try:
            for folder in (self.spool, self.kept, self.batches, self.folder / "tasks"):
                folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / "campaign.json").exists():
                content = plan_document(plan)
                write_whole(self.folder / "campaign.json.gz", gzip.compress(content, mtime=0))
                write_whole(self.folder / "campaign.json", content)
        except OSError as error:
            raise HomeError(
                f"the campaign's folder `{self.folder}` cannot be written: {error.strerror}",
                hint="name another one with `--home`",
            ) from None

    @property
    def exists(self) -> bool:
        """Whether there is a plan."""
        return (self.folder / "campaign.json").exists()

    def plan(self) -> CampaignPlan:
        """Return the plan.

        Raises:
            InputError: If there is none, or it is damaged.
        """
        path = self.folder / "campaign.json"
        try:
            return plan_from(path.read_bytes(), where=str(path))
        except OSError:
            raise InputError(
                f"`{self.folder}` holds no campaign", hint="`advisor pi status` lists the campaigns that there are"
            ) from None

    def cells(self, *folders: Path) -> dict[Cell, Path]:
        """Return the cells whose observations are there, with their files."""
        found = {}
        for folder in folders or (self.spool, self.kept):
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(folder):
                    if (cell := Cell.of(entry.name)) is not None:
                        found[cell] = Path(entry.path)
        return dict(sorted(found.items()))

    def put(self, cell: Cell, content: bytes, *, kept: bool = False) -> bool:
        """Keep a cell's observations, unless it has some; return whether it had none.

        Raises:
            HomeError: If they cannot be written.
        """
        if (self.kept / cell.file).exists():
            return False
        try:
            return create_atomically((self.kept if kept else self.spool) / cell.file, content)
        except InputError as error:
            raise HomeError(
                error.message, hint="free disk space or correct the directory's permissions, then repeat the command"
            ) from None

    def keep(self, cell: Cell) -> None:
        """Note that the knowledge base has a cell."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.spool / cell.file, self.kept / cell.file)

    def keep_again(self, cell: Cell) -> None:
        """Note that the knowledge base does not have a cell after all."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.kept / cell.file, self.spool / cell.file)

    def note(self, task: int, document: dict[str, Any]) -> None:
        """Note what the worker of a task is doing."""
        write_whole(self.folder / "tasks" / f"{task}.json", json.dumps(document).encode())

    def noted(self, task: int) -> dict[str, Any]:
        """Return what the worker of a task noted last; nothing where there is none."""
        return read_document(self.folder / "tasks" / f"{task}.json")

    @contextlib.contextmanager
    def coordinated(self) -> Iterator[bool]:
        """Yield whether nobody else coordinates the campaign; until the end, nobody else will."""
        with (self.folder / "coordinator").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def cell_files(plan: CampaignPlan, observations: Iterable[Observation]) -> Iterator[tuple[Cell, bytes]]:
    """Yield the cells of observations of a campaign's blocks, each with its file's content."""
    numbers = {block.name: number for number, block in enumerate(plan.blocks)}
    found: dict[Cell, list[Observation]] = {}
    for o in observations:
        machine = machine_of(o)
        block = numbers[o.block.removesuffix(f"-{machine}")]
        found.setdefault(Cell(block=block, round=o.round, arm=o.arm, machine=machine), []).append(o)
    for cell, members in sorted(found.items()):
        yield cell, observation_file(members)


def block_name(block: Block, machine: str) -> str:
    """Return the name that a planned block has on one kind of machine: machines are not compared with each other."""
    return f"{block.name}-{machine[:_MACHINE]}"


def plan_document(plan: CampaignPlan) -> bytes:
    """Return a plan as JSON; the same plan gives the same bytes."""
    return b'{"format": %d, "plan": %b}\n' % (_FORMAT, _plans().dump_json(plan, by_alias=True))


def plan_from(content: bytes, *, where: str) -> CampaignPlan:
    """Read a plan.

    Raises:
        InputError: If it is none, or was written by another version.
    """
    try:
        document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
        plan: CampaignPlan = _plans().validate_python(document["plan"])
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise InputError(
            f"`{where}` is no plan of a campaign: {str(error).splitlines()[0]}",
            hint="it was written by another version, or damaged; begin the campaign anew with another `--repetition`",
        ) from None
    return plan


def _plans() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(CampaignPlan)


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON document; an empty one where there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and onto the disk.

    Raises:
        HomeError: If it cannot be written.
    """
    try:
        write_atomically(path, content)
    except InputError as error:
        raise HomeError(
            error.message, hint="free disk space, correct the permissions, or choose another `--home`"
        ) from None
