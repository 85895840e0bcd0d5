"""`advisor pi plan` and `advisor pi campaign`: a matrix of stacks, settings and indicators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import progress_bar, say
from advisor.cli.measuring import (
    BudgetOption,
    OutputOption,
    PrometheusOption,
    choose_device,
    disk_budget,
    interruptible,
    run_and_report,
)
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    cache_directory,
    open_client,
    open_store,
)

if TYPE_CHECKING:
    from advisor.campaign.plan import Campaign
    from advisor.index.client import IndexClient

MatrixArgument = Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")]
MostOption = Annotated[
    int, typer.Option("--max-runs", min=1, help="Most indicator runs a round that the matrix may expand to.")
]
PythonOption = Annotated[
    str, typer.Option("--python", help="Interpreter where the matrix names none: path or version.")
]
AgainOption = Annotated[
    int, typer.Option("--repetition", min=1, help="Which repetition: another number takes the campaign anew.")
]


def plan(
    matrix: MatrixArgument,
    most: MostOption = 20000,
    python: PythonOption = sys.executable,
    repetition: AgainOption = 1,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Print what a matrix expands to, what is dropped and why, and about what it takes. Nothing is installed."""
    from advisor.campaign.plan import estimate, history_of

    client = _client(index_url, extra_index_url, find_links, cache_dir, offline)
    planned = _plan(matrix, client, most=most, python=python, repetition=repetition)
    with open_store(knowledge) as store:
        history = history_of(store.observations())
    total = 0.0
    for block in planned.blocks:
        e = estimate(block, client, history)
        total += e.seconds
        typer.echo(
            f"block `{block.name}`: {len(block.slots)} slots x {block.rounds} rounds = {e.processes} processes, "
            f"{e.runs} runs; download at most {e.download_bytes / 1e9:.2f} GB, disk {e.disk_bytes / 1e9:.2f} GB, "
            f"about {e.seconds / 60:.0f} min"
        )
        for slot in block.slots:
            mark = " (reference)" if slot.reference else ""
            typer.echo(f"  {slot.number:3} {slot.label}{mark}: {len(slot.indicators)} runs")
    for dropped in planned.dropped:
        typer.echo(f"dropped {dropped.label}: {dropped.reason}")
    typer.echo(f"in all about {total / 3600:.1f} h; {len(planned.dropped)} combinations dropped")


def campaign(
    matrix: MatrixArgument,
    most: MostOption = 20000,
    python: PythonOption = sys.executable,
    repetition: AgainOption = 1,
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments when a block is done.")
    ] = False,
    budget: BudgetOption = None,
    prometheus: PrometheusOption = None,
    output: OutputOption = None,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Measure what a matrix expands to. After an interruption the same command does what is missing."""
    from advisor.campaign.plan import check_disk, estimate

    client = _client(index_url, extra_index_url, find_links, cache_dir, offline)
    planned = _plan(matrix, client, most=most, python=python, repetition=repetition)
    for dropped in planned.dropped:
        say(f"dropped {dropped.label}: {dropped.reason}")
    check_disk(
        [estimate(b, client, {}) for b in planned.blocks],
        cache_directory(cache_dir) / "environments",
        budget_bytes=disk_budget(budget),
    )
    steps = sum(len(b.slots) * (b.rounds + 1) for b in planned.blocks)
    for block in planned.blocks:
        say(f"block `{block.name}`: {len(block.slots)} slots, {block.rounds} rounds")
    with interruptible("the same command goes on"), progress_bar(steps) as step:
        observations = run_and_report(
            planned.blocks,
            client=client,
            knowledge=knowledge,
            cache_dir=cache_dir,
            keep_environments=keep_environments,
            budget_bytes=None,
            prometheus=prometheus,
            output=output,
            progress=step,
        )
    failed = sum(o.status not in ("ok", "unsupported") for o in observations)
    typer.echo(f"{len(observations)} observations in {len(planned.blocks)} blocks, {failed} of them failures")
    for block in planned.blocks:
        typer.echo(f"  advisor pi show {block.name}")


def _plan(matrix: Path, client: IndexClient, *, most: int, python: str, repetition: int) -> Campaign:
    from advisor.campaign.plan import plan_campaign
    from knowledge.hardware.detect import detect
    from pi_runners.matrix_file import read_matrix

    hardware = detect()
    content = read_matrix(matrix)
    return plan_campaign(
        content,
        client=client,
        hardware=hardware,
        device=choose_device(content.content.device, hardware),
        python=python,
        most=most,
        repetition=repetition,
        progress=say,
    )


def _client(
    index_url: str | None,
    extra_index_url: list[str] | None,
    find_links: list[str] | None,
    cache_dir: Path | None,
    offline: bool,
) -> IndexClient:
    return open_client(
        Path.cwd(),
        index_url=index_url,
        extra_index_url=extra_index_url,
        find_links=find_links,
        cache_dir=cache_dir,
        offline=offline,
    )
