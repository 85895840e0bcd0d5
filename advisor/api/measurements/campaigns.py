"""Campaigns: plan one from a matrix file, open it to run it, and find the existing ones."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from advisor.api.indexes import open_indexes
from advisor.api.measurements.campaign_session import CampaignSession
from advisor.api.measurements.options import CampaignOptions, ExecutorOptions
from advisor.api.options import IndexOptions
from advisor.api.stores import Warn, log_warning, open_writable_store
from advisor.campaign.directory import CampaignDirectory, CampaignPlan
from advisor.campaign.engines import open_engine, own_interpreter
from advisor.campaign.plan import BlockCost, CampaignTarget, check_disk, estimate, run_seconds_by_label
from advisor.campaign.plan import plan_campaign as expand_matrix
from advisor.campaign.prometheus import campaign_tasks
from advisor.campaign.status import CampaignStatus
from advisor.user_directories import cache_directory
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.metrics import MOST_CAMPAIGNS, WINDOW_DAYS, CampaignTasks
from knowledge.hardware.profiles import find_profile
from knowledge.store.state_hash import default_address
from pi_runners.plan.matrix_file import read_matrix


@dataclass(frozen=True, kw_only=True)
class CampaignEstimate:
    """A planned campaign with its estimated cost.

    Attributes:
        campaign: The blocks, and the combinations that are not measured.
        costs: Estimated cost of each block.
    """

    campaign: CampaignPlan
    costs: tuple[BlockCost, ...]

    @property
    def seconds(self) -> float:
        """Estimated duration of all blocks."""
        return sum(cost.seconds for cost in self.costs)


def plan_campaign(
    matrix: Path | str,
    *,
    options: CampaignOptions | None = None,
    indexes: IndexOptions | None = None,
    knowledge: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CampaignEstimate:
    """Expand a matrix for this machine, lock its stacks and estimate the cost; nothing is installed.

    Args:
        matrix: The matrix file.
        options: What the campaign is planned for.
        indexes: The package indexes; by default as pip and uv are configured.
        knowledge: Address of the knowledge base, whose observations show how long runs take; by default the user's own.
        progress: Called with a short text before each lock.

    Returns:
        The blocks with their cost, and the combinations that are not measured with the reasons.

    Raises:
        InputError: If the matrix or an option is wrong, or no combination can be resolved (exit code 2).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    options, indexes = options or CampaignOptions(), indexes or IndexOptions()
    with open_indexes(indexes, Path.cwd()) as client:
        content, target = read_matrix(Path(matrix)), _target(options, sys.executable)
        campaign = expand_matrix(content, target, client=client, max_runs=options.max_runs, progress=progress)
        with open_writable_store(knowledge) as store:
            history = run_seconds_by_label(store.observations())
        costs = tuple(estimate(block, client, history) for block in campaign.blocks)
    return CampaignEstimate(campaign=campaign, costs=costs)


def open_campaign(
    matrix: Path | str,
    *,
    options: CampaignOptions | None = None,
    executor: ExecutorOptions | None = None,
    home: Path | None = None,
    indexes: IndexOptions | None = None,
    knowledge: str | None = None,
    warn: Warn = log_warning,
    progress: Callable[[str], None] = lambda _: None,
) -> CampaignSession:
    """Plan the campaign of a matrix for an executor, or open it if it exists; nothing is submitted.

    Args:
        matrix: The matrix file.
        options: What the campaign is planned for.
        executor: Where it runs; by default on this machine.
        home: Directory of the campaign, shared by all nodes; by default next to the knowledge base.
        indexes: The package indexes; by default as pip and uv are configured.
        knowledge: Address of the knowledge base that receives the observations; by default the user's own.
        warn: Receives each temporary problem: a message and a hint, which may be empty.
        progress: Called with a short text before each lock, and for each combination that is not measured.

    Returns:
        The campaign, to run it or to write its manifests.

    Raises:
        InputError: If the matrix or an option is wrong, the directory holds another campaign, or its environments
            would exceed the disk budget (exit code 2).
        UnavailableError: If an index cannot be read, or the disk has too little free space (exit code 4).
    """
    options, executor, indexes = options or CampaignOptions(), executor or ExecutorOptions(), indexes or IndexOptions()
    python, is_remote = own_interpreter(executor.name), executor.name != "local"
    content, target = read_matrix(Path(matrix)), _target(options, python, is_remote=is_remote)
    name = target.campaign_name(content)
    directory = CampaignDirectory(home or campaigns_directory(knowledge) / name)
    settings = dict(executor.options)
    if executor.name == "local":
        environments = cache_directory(indexes.cache_directory) / "environments"
        settings = {"environments": str(environments), **settings}
    if directory.exists:
        plan = _stored_plan(directory, name)
        progress(f"campaign `{name}` continues: {directory.path}")
    else:
        # Wrong options are reported before anything is resolved.
        open_engine(executor.name, settings, directory, CampaignPlan(name=name, blocks=()))
        with open_indexes(indexes, Path.cwd()) as client:
            plan = expand_matrix(content, target, client=client, max_runs=options.max_runs, progress=progress)
            for dropped in plan.dropped:
                progress(f"dropped {dropped.label}: {dropped.reason}")
            if not target.is_remote:
                costs = [estimate(block, client, {}) for block in plan.blocks]
                check_disk(costs, Path(settings["environments"]), budget_bytes=executor.disk_budget_bytes)
    engine = open_engine(executor.name, settings, directory, plan)
    return CampaignSession(directory=directory, plan=plan, knowledge=knowledge, engine=engine, warn=warn)


def find_campaign(
    name: str | None = None, *, home: Path | None = None, knowledge: str | None = None, warn: Warn = log_warning
) -> CampaignSession:
    """Open an existing campaign.

    Args:
        name: Name of the campaign or a unique prefix; optional if there is only one.
        home: Directory of the campaign, instead of a name.
        knowledge: Address of the knowledge base that the campaign belongs to; by default the user's own.
        warn: Receives each temporary problem: a message and a hint, which may be empty.

    Returns:
        The campaign.

    Raises:
        InputError: If there is none of that name, or several (exit code 2).
    """
    directory = CampaignDirectory(home or _select_directory(name, knowledge))
    return CampaignSession(directory=directory, plan=directory.plan(), knowledge=knowledge, warn=warn)


def list_campaigns(*, knowledge: str | None = None, warn: Warn = log_warning) -> tuple[CampaignStatus, ...]:
    """List the campaigns of a knowledge base with their progress, according to the files in their directories.

    Args:
        knowledge: Address of the knowledge base; by default the user's own.
        warn: Receives each temporary problem: a message and a hint, which may be empty.

    Returns:
        The status of each campaign, in the order of their names.

    Raises:
        InputError: If the plan of a campaign is damaged (exit code 2).
    """
    homes = [path.parent for path in sorted(campaigns_directory(knowledge).glob("*/campaign.json"))]
    return tuple(find_campaign(home=home, knowledge=knowledge, warn=warn).stored_status() for home in homes)


def newest_campaign_tasks(*, knowledge: str | None = None, warn: Warn = log_warning) -> tuple[CampaignTasks, ...]:
    """Return the tasks of the campaigns that changed in the last days, according to the files in their directories.

    Args:
        knowledge: Address of the knowledge base; by default the user's own.
        warn: Receives the message and the hint of each campaign that cannot be read, which is left out.
    """
    changes = {path.parent: _changed_at(path.parent) for path in campaigns_directory(knowledge).glob("*/campaign.json")}
    newest = sorted(changes, key=lambda home: (-changes[home], home))[:MOST_CAMPAIGNS]
    campaigns = []
    for home in newest:
        if changes[home] >= time.time() - WINDOW_DAYS * 86400:
            try:
                status = find_campaign(home=home, knowledge=knowledge, warn=warn).stored_status()
            except AdvisorError as error:
                warn(error.message, error.hint)
            else:
                campaigns.append(campaign_tasks(status, time=changes[home]))
    return tuple(campaigns)


def _changed_at(home: Path) -> float:
    """Return when a file of a campaign was last created or replaced, seconds since 1970; 0 if it was deleted."""
    times = [0.0]
    for path in (home, *home.glob("*/"), *home.glob("batches/*/")):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def campaigns_directory(knowledge: str | None) -> Path:
    """Return the default directory of campaigns: next to the knowledge base if that is a file."""
    address = knowledge or default_address()
    if "://" not in address or address.startswith("sqlite:///"):
        return Path(address.removeprefix("sqlite:///").partition("?")[0]).absolute().parent / "campaigns"
    return Path(default_address().removeprefix("sqlite:///")).parent / "campaigns"


def _target(options: CampaignOptions, python: str, *, is_remote: bool = False) -> CampaignTarget:
    return CampaignTarget(
        hardware=find_profile(options.hardware),
        python=options.python or python,
        repetition=options.repetition,
        is_remote=is_remote,
    )


def _stored_plan(directory: CampaignDirectory, name: str) -> CampaignPlan:
    """Return the plan of a directory, which must be of this campaign."""
    stored = directory.plan()
    if stored.name != name:
        raise InputError(
            f"`{directory.path}` holds the campaign `{stored.name}`, not `{name}`",
            hint="the matrix, the interpreter or the hardware has changed: name another `--home`",
        )
    return stored


def _select_directory(name: str | None, knowledge: str | None) -> Path:
    """Return the directory of the campaign with a name or a prefix of it."""
    folder = campaigns_directory(knowledge)
    names = [path.parent.name for path in sorted(folder.glob("*/campaign.json"))]
    matches = [n for n in names if name in (None, n)] or [n for n in names if n.startswith(name or "")]
    if len(matches) == 1:
        return folder / matches[0]
    if not matches:
        raise InputError(
            f"there is no campaign `{name}` in `{folder}`" if name else f"there is no campaign in `{folder}`",
            hint="`advisor pi status` lists them; `--home` names the folder of another one",
        )
    raise InputError(
        f"`{name}` matches {', '.join(matches)}" if name else f"there are {len(matches)} campaigns",
        hint=f"name one, such as `{matches[0]}`",
    )
