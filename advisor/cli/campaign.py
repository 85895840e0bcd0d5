"""`advisor pi plan` and `advisor pi campaign`: a matrix of stacks, settings and indicators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import duration, redraw, say, warn
from advisor.cli.measure import BudgetOption, ResultGroup, disk_budget, write_output
from advisor.cli.option_groups import IndexUrlOptions, expand_options
from advisor.cli.options import HardwareOption, KnowledgeOption, read_pairs
from advisor.domain.words import count

if TYPE_CHECKING:
    from advisor.api.campaign_session import CampaignSession
    from advisor.api.campaigns import CampaignOptions
    from advisor.campaign.status import CampaignStatus

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", help="Directory of the campaign, shared by all nodes.\nBy default next to the knowledge base."
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", metavar="NAME=VALUE", help="Option of the executor (repeatable).\nSuch as `partition=gpu`."
    ),
]
AttemptsOption = Annotated[
    int, typer.Option("--attempts", min=1, help="Attempts at a task without a new result.\nThen the task is given up.")
]


@dataclass(frozen=True, kw_only=True)
class MatrixGroup:
    """Options of what a campaign measures."""

    matrix: Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")]
    most: Annotated[int, typer.Option("--max-runs", min=1, help="Most indicator runs in a round.")] = 20000
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            help="Interpreter if the matrix names none.\nA path, or a version for other machines.",
            show_default="the running one",
        ),
    ] = None
    repetition: Annotated[
        int,
        typer.Option("--repetition", min=1, help="A new number measures everything again."),
    ] = 1
    hardware: HardwareOption = None

    def options(self) -> CampaignOptions:
        """Return what the campaign is planned for."""
        from advisor.api.campaigns import CampaignOptions

        return CampaignOptions(
            max_runs=self.most,
            python=self.python,
            repetition=self.repetition,
            hardware=self.hardware or "detect",
        )


@dataclass(frozen=True, kw_only=True)
class ExecutorGroup:
    """Options of where a campaign runs."""

    executor: Annotated[str, typer.Option("--executor", "-e", metavar="NAME", help="local, slurm or kubernetes.")] = (
        "local"
    )
    engine: EngineOption = None
    attempts: AttemptsOption = 3
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and return.\n`advisor pi collect` fetches the observations.")
    ] = False
    render: Annotated[
        Path | None,
        typer.Option("--render", metavar="DIR", help="Only write Kubernetes manifests to DIR."),
    ] = None
    home: HomeOption = None


@expand_options
def plan(group: MatrixGroup, index_urls: IndexUrlOptions, knowledge: KnowledgeOption = None) -> None:
    """Print what a matrix expands to, which combinations are dropped and why, and the cost. Nothing is installed."""
    from advisor.api.campaigns import plan_campaign

    planned = plan_campaign(
        group.matrix, options=group.options(), indexes=index_urls.indexes(), knowledge=knowledge, progress=say
    )
    for block, cost in zip(planned.campaign.blocks, planned.costs, strict=True):
        size = f"{count(len(block.arms), 'arm')} x {count(block.rounds, 'round')} = {cost.processes} processes"
        space = f"download at most {cost.download_bytes / 1e9:.2f} GB, disk {cost.disk_bytes / 1e9:.2f} GB"
        typer.echo(f"block `{block.name}`: {size}, {count(cost.runs, 'run')}; {space}, {duration(cost.seconds)}")
        for arm in block.arms:
            mark = " (reference)" if arm.reference else ""
            typer.echo(f"  {arm.number:3} {arm.label}{mark}: {count(len(arm.indicators), 'run')}")
    dropped = planned.campaign.dropped
    for combination in dropped:
        typer.echo(f"dropped {combination.label}: {combination.reason}")
    typer.echo(f"in total {duration(planned.seconds)}; {len(dropped)} combinations dropped")


@expand_options
def campaign(
    group: MatrixGroup,
    executor: ExecutorGroup,
    results: ResultGroup,
    index_urls: IndexUrlOptions,
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments when it is complete.")
    ] = False,
    budget: BudgetOption = None,
) -> None:
    """Measure what a matrix expands to: here, on Slurm, or on Kubernetes.

    After an interruption the same command continues. A task is one round of one block on one machine. A task whose
    machine is lost is tried again; a stack that crashes, hangs or cannot be installed is an observation.
    """
    from advisor.api.campaigns import ExecutorOptions, open_campaign

    session = open_campaign(
        group.matrix,
        options=group.options(),
        executor=ExecutorOptions(
            name=executor.executor, options=engine_options(executor.engine), disk_budget_bytes=disk_budget(budget)
        ),
        home=executor.home,
        indexes=index_urls.indexes(),
        knowledge=results.knowledge,
        warn=warn,
        progress=say,
    )
    if executor.render is not None:
        _render(session, executor.render)
        return
    status = session.run(
        attempts=executor.attempts,
        detach=executor.detach,
        keep_environments=keep_environments,
        prometheus=results.prometheus,
        progress=say,
        report=progress_display(),
    )
    print_result(session, status, detach=executor.detach)
    if results.output is not None:
        write_output(results.output, session.observations())
    if status.state != "complete" and not executor.detach:
        raise typer.Exit(4)


def _render(campaign: CampaignSession, folder: Path) -> None:
    """Write the manifests of a campaign, and print the commands that use them."""
    import shlex

    instance = campaign.render(folder)
    typer.echo(f"kubectl apply -k {shlex.quote(str(folder))}")
    typer.echo(f"kubectl logs --tail=-1 -l app.kubernetes.io/instance={instance} > output.log")
    typer.echo(f"advisor pi collect {shlex.quote(campaign.plan.name)} --logs output.log")


def engine_options(texts: list[str] | None) -> dict[str, str]:
    """Read ``name=value`` options of an executor.

    Raises:
        InputError: If one is not written so.
    """
    return dict(read_pairs(texts or (), "--engine", example="partition=gpu", allow_empty=True))


def progress_display() -> Callable[[CampaignStatus], None]:
    """Return a function that shows a status: in place on a terminal, elsewhere a line whenever the counts change."""
    from advisor.campaign.status import COLUMNS
    from advisor.report.campaign import text

    if sys.stderr.isatty():
        return lambda status: redraw(text(status), err=True)
    last: list[Mapping[str, int]] = []

    def line(status: CampaignStatus) -> None:
        counts = status.total
        if not last or last[-1] != counts:
            last.append(counts)
            states = ", ".join(f"{counts[name]} {name}" for name in COLUMNS if counts[name])
            where = ", ".join(row.name for row in status.nodes if row.counts["running"])
            say(f"[{status.measured}/{counts.total()}] {states}{f' (on {where})' if where else ''}")

    return line


def print_result(campaign: CampaignSession, status: CampaignStatus, *, detach: bool = False) -> None:
    """Print the status of a campaign that was coordinated, and what to do next.

    Args:
        campaign: The campaign.
        status: Its status.
        detach: Whether the command did not wait for the tasks.
    """
    from advisor.report.campaign import text

    typer.echo(text(status))
    if status.state == "complete":
        for name in campaign.block_names():
            typer.echo(f"  advisor pi show {name}")
    elif detach:
        say(f"submitted; follow it with `advisor pi status {status.name} --watch`")
    else:
        say(
            "not complete; the observations so far are stored; "
            f"try again with `advisor pi retry {status.name} --failed`"
        )
