"""Coordinate a campaign and show its progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.api.context import open_writable_store
from advisor.cli.console import redraw, say, warn
from advisor.cli.knowledge_sync import AdmittingSink

if TYPE_CHECKING:
    from advisor.campaign.coordinator import Coordinator
    from advisor.campaign.directory import CampaignDirectory, CampaignPlan
    from advisor.campaign.engines import Engine
    from advisor.report.campaign import CampaignStatus
    from knowledge.domain.observation import Observation
    from knowledge.store.sql import SqlKnowledgeBase

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", help="Directory of the campaign, shared by all nodes; by default next to the knowledge base."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A campaign that is coordinated.

    Attributes:
        home: Its folder.
        plan: Its plan.
        knowledge: Address of the knowledge base; none for the user's own.
        engine: Engine that runs missing tasks; none submits nothing.
        prometheus: File that holds the newest figures.
        attempts: Give up on a task after this many attempts without a new result.
    """

    home: CampaignDirectory
    plan: CampaignPlan
    knowledge: str | None
    engine: Engine | None = None
    prometheus: Path | None = None
    attempts: int = 3


def campaigns_folder(knowledge: str | None) -> Path:
    """Return the default directory of campaigns: next to the knowledge base if that is a file."""
    from knowledge.store.state_hash import default_address

    address = knowledge or default_address()
    if "://" not in address or address.startswith("sqlite:///"):
        return Path(address.removeprefix("sqlite:///").partition("?")[0]).absolute().parent / "campaigns"
    return Path(default_address().removeprefix("sqlite:///")).parent / "campaigns"


def engine_options(texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``name=value`` options.

    Raises:
        InputError: If one is not written so.
    """
    from knowledge.domain.errors import InputError

    options = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"`--engine {text}` has no value", hint="write it as `--engine partition=gpu`")
        options[name.strip()] = value.strip()
    return options


@contextmanager
def coordinated(following: Following) -> Iterator[Coordinator]:
    """Yield the only coordinator of a campaign.

    Raises:
        InputError: If another process coordinates it.
    """
    from advisor.campaign.coordinator import Coordinator
    from advisor.campaign.prometheus import PrometheusSink
    from knowledge.domain.errors import InputError

    with ExitStack() as opened:
        store: SqlKnowledgeBase = opened.enter_context(open_writable_store(following.knowledge))
        sink = AdmittingSink(store)
        following.home.create(following.plan)
        if not opened.enter_context(following.home.lock_coordinator()):
            raise InputError(
                f"another process coordinates the campaign in `{following.home.path}`",
                hint="`advisor pi status --watch` follows it, `advisor pi cancel` ends it",
            )
        coordinator = Coordinator(
            following.home,
            following.plan,
            sink=sink if following.prometheus is None else PrometheusSink(sink, following.prometheus),
            attempts=following.attempts,
            warn=lambda message, hint: warn(message, hint=hint),
        )
        coordinator.import_results(store)
        yield coordinator


def follow(following: Following, coordinator: Coordinator, *, detach: bool = False) -> bool:
    """Coordinate a campaign until no task runs or waits; return whether it is complete."""
    from advisor.report.campaign import campaign_status, text

    engine = following.engine
    assert engine is not None
    try:
        with _display() as show:
            waiting = coordinator.step(engine)
            reported: set[str] = set()
            while waiting and not detach:
                progress = campaign_status(coordinator)
                show(progress)
                for remark in set(progress.remarks) - reported:
                    say(remark)
                reported.update(progress.remarks)
                time.sleep(engine.poll_seconds)
                waiting = coordinator.step(engine)
            progress = campaign_status(coordinator)
            show(progress)
    except KeyboardInterrupt:
        _interrupted(engine, coordinator)
        raise
    typer.echo(text(progress))
    if progress.state == "complete":
        for name in names(following):
            typer.echo(f"  advisor pi show {name}")
    elif detach:
        say(f"submitted; follow it with `advisor pi status {following.plan.name} --watch`")
    else:
        say(
            "not complete; the observations so far are stored; "
            f"try again with `advisor pi retry {following.plan.name} --failed`"
        )
    return progress.state == "complete"


def _interrupted(engine: Engine, coordinator: Coordinator) -> None:
    if engine.cancel_on_interrupt:
        coordinator.cancel()
        coordinator.collect()
        say("interrupted: the observations so far are stored; the same command continues")
    else:
        say("interrupted: the tasks continue; the same command follows them, `advisor pi cancel` cancels them")


def names(following: Following) -> tuple[str, ...]:
    """Return the names of the campaign's blocks on the machines that ran them."""
    from advisor.campaign.directory import block_name

    cells = following.home.cells(following.home.stored)
    return tuple(dict.fromkeys(block_name(following.plan.blocks[cell.block], cell.machine) for cell in cells))


def observations(following: Following) -> tuple[Observation, ...]:
    """Return the campaign's observations in the knowledge base."""
    with open_writable_store(following.knowledge) as store:
        return tuple(o for name in names(following) for o in store.observations(block=name))


@contextmanager
def _display() -> Iterator[Callable[[CampaignStatus], None]]:
    """Show the table in place on a terminal; elsewhere a line whenever the counts change."""
    from advisor.report.campaign import COLUMNS, text

    if not sys.stderr.isatty():
        last: list[Mapping[str, int]] = []

        def line(progress: CampaignStatus) -> None:
            counts = progress.total
            if not last or last[-1] != counts:
                last.append(counts)
                states = ", ".join(f"{counts[name]} {name}" for name in COLUMNS if counts[name])
                where = ", ".join(row.name for row in progress.nodes if row.counts["running"])
                finished = counts["done"] + counts["failed"]
                say(f"[{finished}/{counts.total()}] {states}{f' (on {where})' if where else ''}")

        yield line
        return
    yield lambda campaign_status: redraw(text(campaign_status), err=True)
