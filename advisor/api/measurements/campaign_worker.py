"""The worker of a campaign: measures one task on this machine, as batch jobs do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from advisor.api.measurements.options import WorkerOptions
from advisor.api.stores import Warn, log_warning, warn_of_quarantine
from advisor.campaign.directory import CampaignDirectory, CampaignPlan, Cell, read_plan
from advisor.campaign.worker import WorkerMachine, cell_line, run_task
from advisor.project.metadata.copy import unpack_copy
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.shared_files import read_bytes
from knowledge.hardware.detect import detect
from knowledge.service.client import KnowledgeService


def run_worker(
    folder: Path,
    task: int,
    options: WorkerOptions,
    *,
    plan: Path | None = None,
    print_line: Callable[[str], None] | None = None,
    warn: Warn = log_warning,
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Measure the missing cells of one task of a campaign on this machine; return the number of observations.

    Args:
        folder: Directory of the campaign, or a directory of this worker only.
        task: Number of the task.
        options: Environments, limits and service.
        plan: File of the plan, if it is not in the directory.
        print_line: Receives each cell as a line of output, for engines that store only the output.
        warn: Receives each temporary problem.
        progress: Called with a short text before each step.

    Raises:
        InputError: If there is no plan or no such task (exit code 2).
        UnavailableError: If this machine is not of the kind that the campaign was planned for, or the service did not
            receive all observations (exit code 4).
    """
    directory = CampaignDirectory(folder)
    campaign = directory.plan() if plan is None else read_plan(read_bytes(plan), where=str(plan))
    if task >= len(campaign.tasks):
        raise InputError(f"campaign `{campaign.name}` has no task {task}", hint=f"it has {len(campaign.tasks)}, from 0")
    directory.create(campaign)
    delivery = _Delivery(options.service, options.token, warn) if options.service else None

    def deliver(cell: Cell, content: bytes) -> None:
        if print_line is not None:
            print_line(cell_line(cell, content))
        if delivery is not None:
            delivery.push(content)

    environments = _create_folder(options.environments)
    with tempfile.TemporaryDirectory(
        prefix="seshat-", dir=None if options.keep_environments else environments
    ) as temporary:
        settings = WorkerMachine(
            hardware=detect(),
            environments=environments if options.keep_environments and environments else Path(temporary),
            keep_environments=options.keep_environments,
            memory_limit_bytes=options.memory_limit_bytes,
        )
        campaign = _with_project(campaign, plan, Path(temporary, "project"))
        observations = run_task(directory, campaign, task, settings, deliver=deliver, progress=progress)
    progress(f"task {task}: {observations} observations")
    if delivery is not None and (problem := delivery.push()) is not None:
        raise problem
    return observations


def _with_project(campaign: CampaignPlan, plan: Path | None, folder: Path) -> CampaignPlan:
    """Return a plan with the project of its benchmark, which is unpacked into a directory."""
    blocks = []
    for number, block in enumerate(campaign.blocks):
        if block.benchmark is not None:
            archive, copy = block.benchmark.directory, folder / str(number)
            # In a pod, it is with the file of the plan.
            unpack_copy(archive if plan is None else plan.with_name(archive.name), copy)
            block = replace(block, benchmark=replace(block.benchmark, directory=copy))
        blocks.append(block)
    return replace(campaign, blocks=tuple(blocks))


class _Delivery:
    """Delivers observations to a service, oldest first; what the service does not receive waits."""

    def __init__(self, service: str, token: str, warn: Warn) -> None:
        self._service = KnowledgeService(service, token)
        self._warn = warn
        self._waiting: list[bytes] = []

    def push(self, *contents: bytes) -> UnavailableError | None:
        """Deliver what waits and further observations; return why some of it still waits."""
        self._waiting += contents
        while self._waiting:
            try:
                result = self._service.deliver(self._waiting[0])
            except UnavailableError as error:
                # Measuring continues: all observations are on the disk and in the output.
                self._warn(error.message, f"{len(self._waiting)} deliveries wait")
                return error
            warn_of_quarantine([(entry.id, entry.reason) for entry in result.quarantined], self._warn)
            del self._waiting[0]
        return None


def _create_folder(folder: Path | None) -> Path | None:
    """Create a directory of environments, and return it."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"`{folder}` cannot be created on this node: {error.strerror}",
                hint="name another folder for environments",
            ) from None
    return folder
