"""`advisor pi status`, `cancel`, `retry`, `collect`, `forget` and `work`: commands for existing campaigns."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import WorkerOptions, read_engine_options
from advisor.campaign.status import status_text
from advisor.cli.console import redraw, say, warn
from advisor.cli.options import FormatOption, KnowledgeOption, expand_options, print_list
from advisor.cli.pi.campaign import AttemptsOption, EngineOption, HomeOption, print_result, progress_display
from advisor.domain.words import count

CampaignArgument = Annotated[
    str | None,
    typer.Argument(metavar="[CAMPAIGN]", help="Name or a unique prefix.\nOptional if there is only one campaign."),
]
_WATCH_SECONDS = 2.0


def status(
    campaign: CampaignArgument = None,
    home: HomeOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until the campaign is complete or stops.")] = False,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the progress of campaigns: queued, running, done and failed, per stack and per node."""
    if campaign is None and home is None:
        _list(knowledge, format)
        return
    session = api.campaigns.find_campaign(campaign, home=home, knowledge=knowledge, warn=warn)
    while True:
        progress = session.status()
        if format == "json":
            typer.echo(json.dumps(progress.record(), indent=None if watch else 2))
        else:
            show = redraw if watch and sys.stdout.isatty() else typer.echo
            show(status_text(progress))
        if not watch or progress.state != "running":
            return
        time.sleep(_WATCH_SECONDS)


def _list(knowledge: str | None, format: str) -> None:
    """Print every campaign in one line."""
    campaigns = api.campaigns.list_campaigns(knowledge=knowledge, warn=warn)
    lines = (f"{o.name}: {o.state}, {o.measured} of {o.total.total()} measured" for o in campaigns)
    empty = f"there are no campaigns in `{api.campaigns.campaigns_directory(knowledge)}`"
    print_list(format, "campaigns", (o.record() for o in campaigns), lines, empty=empty)


def cancel(campaign: CampaignArgument = None, home: HomeOption = None, knowledge: KnowledgeOption = None) -> None:
    """Cancel running and waiting tasks; the observations so far are stored."""
    results = api.campaigns.find_campaign(campaign, home=home, knowledge=knowledge, warn=warn).cancel()
    typer.echo(f"cancelled; {count(results, 'result')} stored")


def retry(
    campaign: CampaignArgument = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also tasks that were given up.")] = False,
    executor: Annotated[
        str | None,
        typer.Option("--executor", "-e", metavar="NAME", help="Another engine: local, slurm or kubernetes."),
    ] = None,
    engine: EngineOption = None,
    attempts: AttemptsOption = 3,
    home: HomeOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Continue a campaign: submit missing tasks again, with the same options.

    A stack that crashed or could not be installed is an observation, and is not measured again.
    """
    session = api.campaigns.find_campaign(campaign, home=home, knowledge=knowledge, warn=warn)
    progress = session.retry(
        failed=failed,
        executor=executor,
        options=read_engine_options(engine or ()),
        attempts=attempts,
        progress=say,
        report=progress_display(),
    )
    print_result(session, progress)
    if progress.state != "complete":
        raise typer.Exit(4)


def collect(
    campaign: CampaignArgument = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", metavar="FILE", help="Output of tasks that was saved (repeatable).")
    ] = None,
    home: HomeOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store the observations so far; nothing is submitted."""
    result = api.campaigns.find_campaign(campaign, home=home, knowledge=knowledge, warn=warn).collect(logs or ())
    typer.echo(status_text(result.status))
    waiting = f", {result.waiting} not yet stored" if result.waiting else ""
    typer.echo(f"{count(result.stored, 'result')} collected{waiting}")
    if result.waiting:
        raise typer.Exit(4)


def forget(
    campaign: CampaignArgument = None,
    home: HomeOption = None,
    force: Annotated[bool, typer.Option("--force", help="Also if tasks run or results are not stored.")] = False,
    knowledge: KnowledgeOption = None,
) -> None:
    """Delete the directory of a campaign; its observations stay in the knowledge base."""
    session = api.campaigns.find_campaign(campaign, home=home, knowledge=knowledge, warn=warn)
    session.forget(force=force)
    typer.echo(f"forgot campaign `{session.plan.name}`: deleted `{session.directory.path}`")


@expand_options
def work(
    folder: Annotated[Path, typer.Argument(metavar="HOME", help="Directory of the campaign, or one of this worker.")],
    task: Annotated[int, typer.Argument(metavar="TASK", min=0, help="Number of the task.")],
    options: WorkerOptions,
    print_cells: Annotated[
        bool,
        typer.Option("--print", help="Also print the observations.\nFor engines that keep only the output."),
    ] = False,
    plan: Annotated[Path | None, typer.Option("--plan", help="File of the plan, if it is not in HOME.")] = None,
) -> None:
    """Measure one task of a campaign on this machine: what batch jobs run."""
    api.campaign_worker.run_worker(
        folder,
        task,
        options,
        plan=plan,
        print_line=typer.echo if print_cells else None,
        warn=warn,
        progress=say,
    )
