"""Status of a campaign: numbers of cells by stack and by node."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.campaign.coordinator import Coordinator
from advisor.campaign.directory import CampaignDirectory, CampaignPlan, Cell
from knowledge.domain.documents import lines_of
from knowledge.exchange.files import read_observations
from pi_runners.executors.base import TaskStatus

COLUMNS = ("queued", "running", "done", "failed", "not run")
"""States of a cell: ``failed`` has an observation, too; ``not run`` was cancelled or given up."""
SUCCESSFUL = frozenset({"ok", "unsupported", "not-converged"})
"""Statuses of runs that are no failure of the stack."""
_SKEW_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Numbers of cells by column, of a stack with its settings or of a node."""

    name: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStatus:
    """Status of a campaign.

    Attributes:
        name: Its name.
        folder: Its folder.
        state: ``running``; ``measured``, but not completely in the knowledge base; ``complete``; ``incomplete`` or
            ``cancelled``.
        stacks: A row for each stack, in order of the plan.
        nodes: A row for each node that has run a task.
        observations: Number of observations by status.
        tasks: State of each task.
        remarks: Problems, one sentence each.
    """

    name: str
    folder: Path
    state: str
    stacks: tuple[Row, ...]
    nodes: tuple[Row, ...]
    observations: Mapping[str, int]
    tasks: tuple[TaskStatus, ...]
    remarks: tuple[str, ...]

    @property
    def total(self) -> Counter[str]:
        """Cells by column, over all stacks."""
        return sum((Counter(row.counts) for row in self.stacks), Counter())

    @property
    def measured(self) -> int:
        """Number of cells with observations."""
        return self.total["done"] + self.total["failed"]

    def record(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "schema_version": 1,
            "name": self.name,
            "folder": str(self.folder),
            "state": self.state,
            "cells": {column: self.total[column] for column in COLUMNS},
            "stacks": [{"stack": row.name, **row.counts} for row in self.stacks],
            "nodes": [{"node": row.name, **row.counts} for row in self.nodes],
            "observations": dict(self.observations),
            "tasks": [asdict(task) for task in self.tasks],
            "remarks": list(self.remarks),
        }


def campaign_status(coordinator: Coordinator) -> CampaignStatus:
    """Return the status of a campaign, from its folder and the last poll."""
    plan, home = coordinator.plan, coordinator.directory
    tasks = coordinator.states()
    files = home.cells()
    measured = {(cell.block, cell.round, cell.arm): path for cell, path in files.items()}
    stacks: dict[str, Counter[str]] = {}
    nodes: dict[str, Counter[str]] = {}
    for state in tasks:
        number, round_ = plan.tasks[state.task]
        noted = home.read_progress(state.task)
        arms = plan.arms(state.task)
        now = _now(state, noted, [arm.number for arm in arms if (number, round_, arm.number) not in measured])
        for arm in arms:
            column, node = "queued", ""
            if (path := measured.get((number, round_, arm.number))) is not None:
                column = "done" if set(statuses(path)) <= SUCCESSFUL else "failed"
                node = str(noted.get("nodes", {}).get(str(arm.number), ""))
            elif arm.number == now:
                column, node = "running", state.node
            elif state.state in ("given-up", "cancelled"):
                column = "not run"
            stacks.setdefault(arm.label, Counter())[column] += 1
            if node:
                nodes.setdefault(node, Counter())[column] += 1
    observations = Counter(status for path in files.values() for status in statuses(path))
    return CampaignStatus(
        name=plan.name,
        folder=home.path,
        state=_state(coordinator, tasks),
        stacks=tuple(_row(name, counts) for name, counts in stacks.items()),
        nodes=tuple(_row(name, counts) for name, counts in sorted(nodes.items())),
        observations=dict(sorted(observations.items())),
        tasks=tasks,
        remarks=(*_skews(coordinator), *_failures(tasks)),
    )


def status_text(status: CampaignStatus) -> str:
    """Return the status of a campaign as plain text."""
    measured = f"{status.measured} of {status.total.total()} measured"
    lines = [f"{status.name}: {status.state}, {measured} ({status.folder})", ""]
    lines += _table("stack", status.stacks)
    if status.nodes:
        lines += ["", *_table("node", status.nodes)]
    counts = ", ".join(f"{count} {name}" for name, count in status.observations.items())
    lines += ["", f"observations: {counts or 'none yet'}", *status.remarks]
    return "\n".join(lines)


def _table(title: str, rows: Sequence[Row]) -> list[str]:
    width = max(len(title), *(len(row.name) for row in rows))
    head = f"{title:{width}}" + "".join(f"  {column:>7}" for column in COLUMNS)
    return [head, *(f"{r.name:{width}}" + "".join(f"  {r.counts[c] or '-':>7}" for c in COLUMNS) for r in rows)]


def _row(name: str, counts: Counter[str]) -> Row:
    return Row(name=name, counts={column: counts[column] for column in COLUMNS})


def _now(state: TaskStatus, noted: Mapping[str, Any], missing: Sequence[int]) -> int | None:
    """Return the arm that a task is running; the first missing one if its worker does not report it."""
    if state.state != "running":
        return None
    cell = Cell.from_filename(str(noted.get("cell", "")))
    return cell.arm if cell is not None else next(iter(missing), None)


def _state(coordinator: Coordinator, tasks: tuple[TaskStatus, ...]) -> str:
    states = {state.state for state in tasks}
    if states <= {"done"}:
        return "measured" if coordinator.directory.cells(coordinator.directory.spool) else "complete"
    if coordinator.is_cancelled:
        return "cancelled"
    # Nobody records the end of the tasks if the process that coordinates them was killed, too.
    has_tasks = not states.isdisjoint({"queued", "running"})
    return "running" if coordinator.is_active and (has_tasks or coordinator.is_coordinated) else "incomplete"


def _failures(tasks: Iterable[TaskStatus]) -> list[str]:
    """Return a sentence for each reason why tasks were given up or lost, or wait for something."""
    reasons: dict[str, list[str]] = {}
    for state in tasks:
        where = f" on {state.node}" if state.node else ""
        if state.state == "given-up":
            text = f"given up after {state.attempts} attempts without a new result: {state.reason}"
            reasons.setdefault(text, []).append(f"{state.task}{where}")
        elif state.state == "queued" and state.reason:
            reasons.setdefault(f"waiting: {state.reason}", []).append(f"{state.task}")
        elif state.state == "lost":
            reasons.setdefault(f"lost: {state.reason}", []).append(f"{state.task}{where}")
    return [f"task{'s' if len(names) > 1 else ''} {', '.join(names)} {reason}" for reason, names in reasons.items()]


def _skews(coordinator: Coordinator) -> list[str]:
    """Return a sentence for each node whose clock differs: no worker starts before its submission or in the future."""
    submission_times = {task: s.submitted_at for s in coordinator.submissions() for task in s.tasks}
    worst: dict[str, float] = {}
    for task, submitted in submission_times.items():
        path = coordinator.directory.path / "tasks" / f"{task}.json"
        noted = coordinator.directory.read_progress(task)
        if "clock" not in noted:
            continue
        clock, node = float(noted["clock"]), str(noted["node"])
        behind = submitted - clock
        # The file's time stamp comes from the file system, which this machine sees, too.
        ahead = clock - path.stat().st_mtime
        skew = -behind if behind > _SKEW_SECONDS else ahead if ahead > _SKEW_SECONDS else 0.0
        if abs(skew) > abs(worst.get(node, 0.0)):
            worst[node] = skew
    return [
        f"the clock of node `{node}` is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}: the times of its "
        f"observations are wrong, the measurements are not affected; synchronise it with NTP"
        for node, skew in sorted(worst.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFailure:
    """A run of a campaign that failed.

    Attributes:
        stack: Name of the stack, with its settings.
        label: Label of the indicator run.
        status: How it ended.
        started_at: When it began, ISO 8601.
        failure: Class and end of the error output.
    """

    stack: str
    label: str
    status: str
    started_at: str
    failure: str


def cell_failures(directory: CampaignDirectory, plan: CampaignPlan) -> tuple[CellFailure, ...]:
    """Return the failed runs of a campaign, newest first."""
    failures = []
    for cell, path in directory.cells().items():
        if set(statuses(path)) <= SUCCESSFUL:
            continue
        arms = {arm.number: arm for arm in plan.blocks[cell.block].arms}
        failures += [
            CellFailure(
                stack=arms[cell.arm].label,
                label=o.indicator.label,
                status=o.status,
                started_at=o.started_at,
                failure=o.failure,
            )
            for o in read_observations(lines_of(path.read_text(encoding="utf-8")), where=path.name)
            if o.status not in SUCCESSFUL
        ]
    return tuple(sorted(failures, key=lambda f: (f.started_at, f.stack, f.label), reverse=True))


@lru_cache(maxsize=100_000)
def statuses(path: Path) -> tuple[str, ...]:
    """Return the statuses of a cell's observations (cached: the file never changes)."""
    try:
        lines = lines_of(path.read_text(encoding="utf-8"))
    except OSError:
        return ()
    records = (json.loads(line) for line in lines)
    return tuple(r["record"]["status"] for r in records if r["kind"] == "observation")
