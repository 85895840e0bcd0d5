"""`advisor pi plan` and `advisor pi campaign`: a matrix of stacks, settings and indicators."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import ENGINE_OPTIONS, CampaignOptions, ExecutorOptions, MeasurementStore
from advisor.api.option import Option, read_duration
from advisor.api.options import IndexOptions
from advisor.campaign.status import COLUMNS, CampaignStatus, status_text
from advisor.cli.console import duration, redraw, say, warn
from advisor.cli.options import FormatOption, IndexPlaces, KnowledgeOption, expand_options, print_either, typer_option
from advisor.domain.words import count
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import write_atomically
from knowledge.exchange.files import observation_file

OUTPUT_FILE = Option("--output -o", metavar="FILE", help="Also write the observations to a file.")
_BUDGET = Option("--budget", metavar="TIME", help="Propose a campaign of at most this time.\nSuch as `8h` or `90m`.")
_MATRIX_FILE = Option("--output -o", metavar="FILE", help="Write the proposed campaign as a matrix file.")
_HOME = Option("--home", help="Directory of the campaign, shared by all nodes.\nBy default next to the knowledge base.")
_ATTEMPTS = Option("--attempts", minimum=1, help="Attempts at a task without a new result.\nThen the task is given up.")
HomeOption = Annotated[Path | None, typer_option(_HOME)]
AttemptsOption = Annotated[int, typer_option(_ATTEMPTS)]
EngineOption = Annotated[list[str] | None, typer_option(ENGINE_OPTIONS)]
MatrixArgument = Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")]


@dataclass(frozen=True, kw_only=True)
class _RunOptions:
    """How a campaign runs."""

    attempts: Annotated[int, _ATTEMPTS] = 3
    detach: Annotated[
        bool, Option("--detach", help="Submit and return.\n`advisor pi collect` fetches the observations.")
    ] = False
    render: Annotated[
        Path | None, Option("--render", metavar="DIR", help="Only write Kubernetes manifests to DIR.")
    ] = None
    home: Annotated[Path | None, _HOME] = None
    keep_environments: Annotated[
        bool, Option("--keep-environments/--remove-environments", help="Keep environments when it is complete.")
    ] = False
    output: Annotated[Path | None, OUTPUT_FILE] = None


@expand_options
def plan(
    options: CampaignOptions,
    indexes: IndexPlaces,
    matrix: Annotated[Path | None, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")] = None,
    budget: Annotated[str | None, typer_option(_BUDGET)] = None,
    output: Annotated[Path | None, typer_option(_MATRIX_FILE)] = None,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print what a matrix expands to, which combinations are dropped and why, and the cost. Nothing is installed.

    With `--budget` and no matrix, propose the campaign that is expected to improve the advice for a machine most in
    this time: which frameworks, versions, settings and models to measure, and why.
    """
    if budget is not None and matrix is None:
        _propose(read_duration(budget), options, indexes, output, format=format, knowledge=knowledge)
        return
    if matrix is None or budget is not None:
        reason = (
            "a matrix is named, and `--budget` proposes one" if matrix else "neither a matrix nor `--budget` is named"
        )
        raise InputError(reason, hint="name a matrix file, or `--budget 8h --output FILE` to get one")
    if output is not None or format != "text":
        raise InputError(
            "`--output` and `--format` are for a proposed campaign", hint="replace the matrix by `--budget`"
        )
    planned = api.campaigns.plan_campaign(matrix, options=options, indexes=indexes, knowledge=knowledge, progress=say)
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


def _propose(
    seconds: float,
    options: CampaignOptions,
    indexes: IndexOptions,
    output: Path | None,
    *,
    format: str,
    knowledge: str | None,
) -> None:
    """Print a proposed campaign, and write its matrix."""
    from advisor.campaign.proposal import matrix_text
    from advisor.report.proposal import proposal_record, proposal_text

    proposal = api.proposals.propose_campaign(
        seconds, options=options, indexes=indexes, knowledge=knowledge, progress=say
    )
    print_either(format, proposal_record(proposal), proposal_text(proposal))
    if output is not None and proposal.blocks:
        write_atomically(output, matrix_text(proposal))
        say(f"written: `{output}`; measure it with `advisor pi campaign {shlex.quote(str(output))}`")
    elif output is not None:
        warn(f"`{output}` is not written: there is nothing to measure")


@expand_options
def campaign(
    matrix: MatrixArgument,
    options: CampaignOptions,
    executor: ExecutorOptions,
    store: MeasurementStore,
    indexes: IndexPlaces,
    printed: _RunOptions,
) -> None:
    """Measure what a matrix expands to: here, on Slurm, or on Kubernetes.

    After an interruption the same command continues. A task is one round of one block on one machine. A task whose
    machine is lost is tried again; a stack that crashes, hangs or cannot be installed is an observation.
    """
    session = api.campaigns.open_campaign(
        matrix,
        options=options,
        executor=executor,
        home=printed.home,
        indexes=indexes,
        knowledge=store.knowledge,
        warn=warn,
        progress=say,
    )
    if printed.render is not None:
        _render(session, printed.render)
        return
    status = session.run(
        attempts=printed.attempts,
        detach=printed.detach,
        keep_environments=printed.keep_environments,
        prometheus=store.prometheus,
        progress=say,
        report=progress_display(),
    )
    print_result(session, status, detach=printed.detach)
    if printed.output is not None:
        write_output(printed.output, session.observations())
    if status.state != "complete" and not printed.detach:
        raise typer.Exit(4)


def _render(campaign: api.campaign_session.CampaignSession, folder: Path) -> None:
    """Write the manifests of a campaign, and print the commands that use them."""
    instance = campaign.render(folder)
    typer.echo(f"kubectl apply -k {shlex.quote(str(folder))}")
    typer.echo(f"kubectl logs --tail=-1 -l app.kubernetes.io/instance={instance} > output.log")
    typer.echo(f"advisor pi collect {shlex.quote(campaign.plan.name)} --logs output.log")


def progress_display() -> Callable[[CampaignStatus], None]:
    """Return a function that shows a status: in place on a terminal, elsewhere a line whenever the counts change."""
    if sys.stderr.isatty():
        return lambda status: redraw(status_text(status), err=True)
    last: list[Mapping[str, int]] = []

    def line(status: CampaignStatus) -> None:
        counts = status.total
        if not last or last[-1] != counts:
            last.append(counts)
            states = ", ".join(f"{counts[name]} {name}" for name in COLUMNS if counts[name])
            where = ", ".join(row.name for row in status.nodes if row.counts["running"])
            say(f"[{status.measured}/{counts.total()}] {states}{f' (on {where})' if where else ''}")

    return line


def print_result(
    campaign: api.campaign_session.CampaignSession, status: CampaignStatus, *, detach: bool = False
) -> None:
    """Print the status of a campaign that was coordinated, and what to do next."""
    typer.echo(status_text(status))
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


def write_output(output: Path, observations: Iterable[Observation]) -> None:
    """Write an observation file."""
    write_atomically(output, observation_file(observations))
