"""What a campaign submitted, as its folder tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.campaign.directory import CampaignPlan, Home, read_document
from advisor.campaign.engines import Engine
from knowledge.domain.identity import content_hash
from pi_runners.executors.base import Batch, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Tasks that were submitted together.

    Attributes:
        folder: Where it is written.
        tasks: Their numbers.
        had: How many cells each had before.
        engine: Name of the engine.
        options: Its options.
        command: What each task runs.
        at: When, in seconds since the epoch.
        handle: The engine's name for it, or empty where it is not known that it was submitted.
        closed: How each task ended, by number, once all have.
    """

    folder: Path
    tasks: tuple[int, ...]
    had: dict[int, int]
    engine: str
    options: dict[str, Any]
    at: float
    handle: str
    closed: dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """How far a task is.

    Attributes:
        task: Its number.
        state: ``waiting`` is to be submitted, ``given-up`` gave no whole result as often as it may; the rest is as in
            :data:`pi_runners.executors.base.State`.
        node: Where it is or was.
        reason: Why, where that is not as it should be.
        attempts: How often it was submitted in a row without giving anything new.
    """

    task: int
    state: State | str
    node: str = ""
    reason: str = ""
    attempts: int = 0


def batch_of(home: Home, plan: CampaignPlan, engine: Engine, *, number: str, tasks: tuple[int, ...]) -> Batch:
    """Return a batch of a campaign; the same number gives the same name, by which an engine knows it."""
    # Two folders of one campaign are two campaigns to an engine.
    place = content_hash(str(home.folder))[:6]
    name = re.sub(r"[^a-z0-9]+", "-", plan.name.lower()).strip("-")[:36].rstrip("-")
    return Batch(
        name=f"{name}-{place}-{number}",
        command=engine.command,
        tasks=tasks,
        folder=home.batches / number / "engine",
        home=home.folder,
        inputs=engine.inputs,
    )


def submission_from(folder: Path) -> Submission:
    """Read a submission from its folder."""
    asked = read_document(folder / "submission.json")
    handle = folder / "handle"
    return Submission(
        folder=folder,
        tasks=tuple(asked.get("tasks", ())),
        had={int(task): count for task, count in asked.get("had", {}).items()},
        engine=str(asked.get("engine", "local")),
        options=dict(asked.get("options", {})),
        at=float(asked.get("at", 0.0)),
        handle=handle.read_text(encoding="utf-8") if handle.exists() else "",
        closed={int(task): end for task, end in read_document(folder / "closed.json").items()},
    )
