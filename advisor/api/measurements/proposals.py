"""Propose a campaign for a machine and a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from advisor.api.indexes import open_indexes
from advisor.api.measurements.options import CampaignOptions
from advisor.api.options import IndexOptions
from advisor.api.stores import open_readable_store
from advisor.campaign.plan import run_seconds_by_label
from advisor.campaign.proposal import CampaignProposal, propose
from advisor.campaign.stack_lock import StackLocker
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.hardware.profiles import find_profile


def propose_campaign(
    budget_seconds: float,
    *,
    options: CampaignOptions | None = None,
    indexes: IndexOptions | None = None,
    knowledge: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CampaignProposal:
    """Propose the campaign that is expected to improve the advice for a machine most in a given time.

    Nothing is installed or measured. :func:`advisor.campaign.proposal.matrix_text` returns it as a matrix file.

    Args:
        budget_seconds: Time that the campaign may take.
        options: The machine and the interpreter.
        indexes: The package indexes; by default as pip and uv are configured.
        knowledge: Address of the knowledge base; by default the user's own.
        progress: Called with a short text before each step.

    Returns:
        The blocks with what they are expected to gain, and what cannot be planned with the reasons.

    Raises:
        InputError: If the time is too short for one block, or nothing can be planned for the machine (exit code 2).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    options, indexes = options or CampaignOptions(), indexes or IndexOptions()
    hardware, python = find_profile(options.hardware), options.python or sys.executable
    with open_indexes(indexes, Path.cwd()) as client, open_readable_store(knowledge) as store:
        locker = StackLocker(client, hardware)
        progress("reading the measurements")
        history = run_seconds_by_label(store.observations())
        estimator = WorkloadEstimator(
            ModelCache(store), hardware=hardware, workload=None, frameworks=frozenset(FRAMEWORKS)
        )
        return propose(
            estimator,
            hardware,
            versions_of=lambda requirement: locker.versions_of(requirement, python),
            history=history,
            budget_seconds=budget_seconds,
            progress=progress,
        )
