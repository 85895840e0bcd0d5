"""Runs one task of a campaign: one round of one block on this machine."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from advisor.campaign.directory import CampaignDirectory, CampaignPlan, Cell, block_name, cell_files
from knowledge.domain.errors import UnavailableError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from pi_runners.execution.campaign import Block, run_block
from pi_runners.execution.subprocess_runner import FreshProcesses
from pi_runners.plan.matrix import Arm

_MAX_KILLS = 2
"""Number of times that a worker may be killed while it measures a stack, before the stack is given up."""
_LINE = re.compile(r"^seshat-cell (\S+) ([0-9a-f]{64}) (\S+)$", re.MULTILINE)


class UnsuitableNodeError(UnavailableError):
    """Raised when a node is not the machine that a campaign was planned for."""

    code = "unsuitable-node"


Deliver = Callable[[Cell, bytes], None]
"""Reports a cell that is already on disk; a cell that cannot be reported stays on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMachine:
    """The machine of a worker: where, and with which limits, it measures.

    Attributes:
        hardware: This machine.
        environments: Directory in which environments are built.
        keep_environments: Whether the environments stay after the task.
        memory_limit_bytes: Maximum memory of one process, in addition to the limit of the plan; `None` for no limit.
    """

    hardware: HardwareProfile
    environments: Path
    keep_environments: bool
    memory_limit_bytes: float | None


def run_task(
    directory: CampaignDirectory,
    plan: CampaignPlan,
    task: int,
    settings: WorkerMachine,
    *,
    deliver: Deliver,
    progress: Callable[[str], None],
) -> int:
    """Measure the missing cells of one task, and return the number of observations.

    Args:
        directory: The campaign directory, or a directory of this worker only.
        plan: The plan of the campaign.
        task: Number of the task.
        settings: Machine, environments and limits.
        deliver: Called with each cell.
        progress: Called with a short text before each step.

    Raises:
        UnsuitableNodeError: If this machine is not of the kind that the campaign was planned for.
    """
    hardware = settings.hardware
    number, round_ = plan.tasks[task]
    block = _block_here(plan.blocks[number], settings)
    own_cells = [
        (cell, path)
        for cell, path in directory.cells().items()
        if (cell.block, cell.round) == (number, round_) and hardware.identity.startswith(cell.machine)
    ]
    for cell, path in own_cells:
        # A former worker may have been killed after it wrote a cell and before it reported it.
        deliver(cell, path.read_bytes())
    measured = {(cell.round, cell.arm) for cell, _ in own_cells}

    def store(observations: Iterable[Observation]) -> None:
        for cell, content in cell_files(plan, observations):
            if directory.put(cell, content):
                deliver(cell, content)

    with CrashJournal(directory, task, hardware, number) as journal:
        return run_block(
            block,
            sink=store,
            runner=FreshProcesses(),
            environments=settings.environments,
            is_missing=lambda number, arm: number == round_ and (number, arm) not in measured,
            keep_environments=settings.keep_environments,
            progress=progress,
            begin=journal.begin,
        )


def _block_here(planned: Block, settings: WorkerMachine) -> Block:
    """Return a planned block as it is measured on this machine; refuse one for another kind of machine."""
    hardware = settings.hardware
    check_node(planned, hardware)
    limits = [x for x in (planned.memory_limit_bytes, settings.memory_limit_bytes) if x is not None]
    return replace(
        planned,
        name=block_name(planned, hardware.identity),
        hardware=hardware,
        memory_limit_bytes=min(limits, default=None),
    )


def check_node(block: Block, hardware: HardwareProfile) -> None:
    """Check that a machine is of the kind that a block was planned for.

    Raises:
        UnsuitableNodeError: If the machine differs; the message says how.
    """
    planned = block.hardware
    node = os.uname().nodename
    hint = (
        "the task is retried, on another node if the engine chooses one; exclude this node, or plan with `--hardware`"
    )

    def unsuitable(what: str) -> UnsuitableNodeError:
        return UnsuitableNodeError(f"node `{node}` {what}", hint=hint)

    if hardware.cpu.architecture != planned.cpu.architecture:
        raise unsuitable(f"is {hardware.cpu.architecture}, the campaign was planned for {planned.cpu.architecture}")
    if not any(run.device == "cuda" for arm in block.arms for run in arm.indicators):
        return
    if hardware.gpu is None:
        why = next((text for text in hardware.unknown if text.startswith("accelerators")), "NVML reports none")
        raise unsuitable(f"has no NVIDIA GPU with a driver ({why})")
    gpu = planned.gpu
    if gpu and gpu.compute_capability and hardware.gpu.compute_capability != gpu.compute_capability:
        raise unsuitable(
            f"has a GPU of compute capability {hardware.gpu.compute_capability} ({hardware.gpu.model}), "
            f"the campaign was planned for {gpu.compute_capability} ({gpu.model})"
        )
    available, planned_cuda = (p.driver.newest_cuda if p.driver else None for p in (hardware, planned))
    if available and planned_cuda and Version(available) < Version(planned_cuda):
        raise unsuitable(
            f"has a driver that supports CUDA {available} at most, the campaign was planned for {planned_cuda}"
        )


class CrashJournal:
    """Records what is being measured, so that after a kill the next worker knows which stack was running."""

    def __init__(self, directory: CampaignDirectory, task: int, hardware: HardwareProfile, block: int) -> None:
        self._directory = directory
        self._task = task
        self._block = block
        self._machine = hardware.identity[:8]
        self._previous = directory.read_progress(task)
        self._nodes: dict[str, str] = dict(self._previous.get("nodes", {}))

    def __enter__(self) -> CrashJournal:
        # An engine sends SIGTERM before it reclaims a machine or ends a task at its time limit: no fault of the stack.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(self, *_: object) -> None:
        self._note("", 0)

    def begin(self, round_: int, arm: Arm) -> str:
        """Record that an arm starts; return why it is given up instead, or an empty string."""
        cell = Cell(block=self._block, round=round_, arm=arm.number, machine=self._machine).filename
        self._nodes[str(arm.number)] = node_name()
        kills = int(self._previous.get("begun", 0)) if self._previous.get("cell") == cell else 0
        self._note(cell, kills + 1)
        return f"its worker was killed {kills} times while it ran" if kills >= _MAX_KILLS else ""

    def _note(self, cell: str, begun: int) -> None:
        document = {"cell": cell, "begun": begun, "node": node_name(), "clock": time.time(), "nodes": self._nodes}
        self._directory.write_progress(self._task, document)


def node_name() -> str:
    """Return the name of this node in the engine, else the name of the machine."""
    names = (os.environ.get(name) for name in ("SLURMD_NODENAME", "SESHAT_NODE"))
    return next((name for name in names if name), os.uname().nodename)


def cell_line(cell: Cell, content: bytes) -> str:
    """Return a cell as one line of output, for engines that store nothing but the output of a task."""
    packed = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f"seshat-cell {cell.filename} {hashlib.sha256(content).hexdigest()} {packed}"


def cells_in(output: str) -> Iterator[tuple[Cell, bytes]]:
    """Yield the cells in the output of a task; damaged lines are ignored."""
    for match in _LINE.finditer(output):
        cell = Cell.from_filename(match[1])
        try:
            content = gzip.decompress(base64.b64decode(match[3], validate=True))
        except (ValueError, OSError, EOFError):
            continue
        if cell is not None and hashlib.sha256(content).hexdigest() == match[2]:
            yield cell, content
