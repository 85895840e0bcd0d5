"""Submissions of a campaign, read from its directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.campaign.directory import CampaignDirectory, CampaignPlan
from advisor.campaign.engines import Engine
from knowledge.domain.identity import content_hash
from knowledge.domain.shared_files import read_document
from pi_runners.executors.base import Batch


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


def batch_of(
    directory: CampaignDirectory, plan: CampaignPlan, engine: Engine, *, number: str, tasks: tuple[int, ...]
) -> Batch:
    """Return a batch of a campaign. The same number gives the same name, by which the engine can look it up."""
    # Two directories of one campaign get different names.
    suffix = content_hash(str(directory.path))[:6]
    name = re.sub(r"[^a-z0-9]+", "-", plan.name.lower()).strip("-")[:36].rstrip("-")
    return Batch(
        name=f"{name}-{suffix}-{number}",
        command=engine.command,
        tasks=tasks,
        folder=directory.batches / number / "engine",
        home=directory.path,
        inputs=engine.inputs,
    )


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
