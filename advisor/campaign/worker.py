"""What a batch job runs: one round of one block on the machine that it finds itself on."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from packaging.version import Version

from advisor.campaign.directory import CampaignPlan, Cell, Home, block_name, cell_files
from knowledge.domain.errors import UnavailableError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from pi_runners.campaign import Block, run_block
from pi_runners.matrix import Arm
from pi_runners.subprocess_runner import FreshProcesses

_DEATHS = 2
"""So often may a worker be killed while it measures a stack, before that stack is given up."""
_LINE = re.compile(r"^seshat-cell (\S+) ([0-9a-f]{64}) (\S+)$", re.MULTILINE)


class UnsuitableNodeError(UnavailableError):
    """Raised when a node is not the machine that a campaign was planned for."""

    code = "unsuitable-node"


Deliver = Callable[[Cell, bytes], None]
"""Reports a cell that is on the disk already; what it cannot report stays there."""


def work(
    home: Home,
    plan: CampaignPlan,
    task: int,
    *,
    hardware: HardwareProfile,
    environments: Path,
    keep_environments: bool,
    memory_limit_bytes: float | None,
    deliver: Deliver,
    progress: Callable[[str], None],
) -> int:
    """Measure what is missing of one task.

    Args:
        home: The campaign's folder, or one of this worker's own.
        plan: The campaign's plan.
        task: Number of the task.
        hardware: This machine.
        environments: Where environments are built.
        keep_environments: Whether they stay.
        memory_limit_bytes: Most memory of one process, besides the plan's own limit.
        deliver: Called with every cell.
        progress: Called with a short text before each step.

    Returns:
        How many observations were taken.

    Raises:
        UnsuitableNodeError: If this machine is not what the campaign was planned for.
    """
    number, round_ = plan.tasks[task]
    planned = plan.blocks[number]
    check_node(planned, hardware)
    limits = [limit for limit in (planned.memory_limit_bytes, memory_limit_bytes) if limit is not None]
    block = replace(
        planned,
        name=block_name(planned, hardware.identity),
        hardware=hardware,
        memory_limit_bytes=min(limits) if limits else None,
    )
    mine = [(c, p) for c, p in home.cells().items() if _is_mine(c, number, round_, hardware)]
    for cell, path in mine:
        # A former worker may have died between writing and reporting.
        deliver(cell, path.read_bytes())
    done = {(cell.round, cell.arm) for cell, _ in mine}
    diary = CrashJournal(home, task, hardware, number)
    with diary:
        return run_block(
            block,
            sink=_Spool(home, plan, deliver),
            runner=FreshProcesses(),
            environments=environments,
            is_missing=lambda number, arm: number == round_ and (number, arm) not in done,
            keep_environments=keep_environments,
            progress=progress,
            begin=diary.begin,
        )


def check_node(block: Block, hardware: HardwareProfile) -> None:
    """Refuse a machine that is not what a block was planned for.

    Raises:
        UnsuitableNodeError: With what is different.
    """
    planned = block.hardware
    node = os.uname().nodename
    hint = "the task is tried again, elsewhere if the engine may choose; exclude the node, or plan with `--hardware`"

    def refuse(what: str) -> UnsuitableNodeError:
        return UnsuitableNodeError(f"node `{node}` {what}", hint=hint)

    if hardware.cpu.architecture != planned.cpu.architecture:
        raise refuse(f"is {hardware.cpu.architecture}, the campaign was planned for {planned.cpu.architecture}")
    if not any(run.device == "cuda" for arm in block.arms for run in arm.indicators):
        return
    if hardware.gpu is None:
        why = next((text for text in hardware.unknown if text.startswith("accelerators")), "NVML names none")
        raise refuse(f"has no NVIDIA GPU that a driver knows ({why})")
    asked = planned.gpu
    if asked and asked.compute_capability and hardware.gpu.compute_capability != asked.compute_capability:
        raise refuse(
            f"has a GPU of compute capability {hardware.gpu.compute_capability} ({hardware.gpu.model}), "
            f"the campaign was planned for {asked.compute_capability} ({asked.model})"
        )
    has, wants = (p.driver.newest_cuda if p.driver else None for p in (hardware, planned))
    if has and wants and Version(has) < Version(wants):
        raise refuse(f"has a driver that serves CUDA {has} at most, the campaign was planned for {wants}")


def _is_mine(cell: Cell, block: int, round_: int, hardware: HardwareProfile) -> bool:
    return (cell.block, cell.round) == (block, round_) and hardware.identity.startswith(cell.machine)


class _Spool:
    """Takes observations onto the disk, then reports them."""

    def __init__(self, home: Home, plan: CampaignPlan, deliver: Deliver) -> None:
        self._home = home
        self._plan = plan
        self._deliver = deliver

    def add(self, observations: Iterable[Observation]) -> None:
        for cell, content in cell_files(self._plan, observations):
            if self._home.put(cell, content):
                self._deliver(cell, content)


class CrashJournal:
    """Notes what is being measured, so that whoever comes after a killed worker knows what it died in."""

    def __init__(self, home: Home, task: int, hardware: HardwareProfile, block: int) -> None:
        self._home = home
        self._task = task
        self._block = block
        self._machine = hardware.identity[:8]
        self._before = home.noted(task)
        self._nodes: dict[str, str] = dict(self._before.get("nodes", {}))

    def __enter__(self) -> None:
        # An engine that takes the machine away, or ends a task for its time, says so first: that is no death.
        signal.signal(signal.SIGTERM, _ask_to_end)

    def __exit__(self, *_: object) -> None:
        self._note("", 0)

    def begin(self, round_: int, arm: Arm) -> str:
        """Note an arm; return why it is given up, or nothing."""
        cell = Cell(block=self._block, round=round_, arm=arm.number, machine=self._machine).file
        self._nodes[str(arm.number)] = node_name()
        died = int(self._before.get("begun", 0)) if self._before.get("cell") == cell else 0
        self._note(cell, died + 1)
        return f"its worker was killed {died} times while it ran" if died >= _DEATHS else ""

    def _note(self, cell: str, begun: int) -> None:
        document = {"cell": cell, "begun": begun, "node": node_name(), "clock": time.time(), "nodes": self._nodes}
        self._home.note(self._task, document)


def _ask_to_end(*_: int | FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def node_name() -> str:
    """Return the engine's name of this node, or the machine's."""
    names = (os.environ.get(name) for name in ("SLURMD_NODENAME", "SESHAT_NODE"))
    return next((name for name in names if name), os.uname().nodename)


def cell_line(cell: Cell, content: bytes) -> str:
    """Return a cell as one line of output, for engines whose tasks leave nothing but what they print."""
    packed = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f"seshat-cell {cell.file} {hashlib.sha256(content).hexdigest()} {packed}"


def cells_in(output: str) -> Iterator[tuple[Cell, bytes]]:
    """Yield the cells in a task's output; lines that were cut or mixed with others are none."""
    for found in _LINE.finditer(output):
        cell = Cell.of(found[1])
        try:
            content = gzip.decompress(base64.b64decode(found[3], validate=True))
        except (ValueError, OSError, EOFError):
            continue
        if cell is not None and hashlib.sha256(content).hexdigest() == found[2]:
            yield cell, content
