"""`advisor pi`: performance indicators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli import campaign_commands
from advisor.cli.campaign import campaign, plan
from advisor.cli.console import progress_bar, say, warn
from advisor.cli.measure import (
    BudgetOption,
    KeepOption,
    MemoryLimitOption,
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
    FormatOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    check_format,
    open_client,
    open_to_read,
)

if TYPE_CHECKING:
    from knowledge.domain.observation import Scalar
    from pi_runners.matrix import Arm

_LISTED_BLOCKS = 5

app = typer.Typer(help="Measure performance indicators.", no_args_is_help=True, rich_markup_mode=None)
app.command("plan")(plan)
app.command("campaign")(campaign)
for command in (
    campaign_commands.status,
    campaign_commands.cancel,
    campaign_commands.retry,
    campaign_commands.collect,
    campaign_commands.work,
):
    app.command(command.__name__)(command)


@app.command("list")
def list_indicators(
    long: Annotated[bool, typer.Option("--long", help="Also formulae, parameters and sources.")] = False,
    format: FormatOption = "text",
) -> None:
    """List the indicators with their sizes and backends."""
    from advisor.report.indicators import indicator_records, indicator_text

    check_format(format)
    if format == "json":
        import json

        typer.echo(json.dumps({"schema_version": 2, "indicators": indicator_records()}, indent=2))
        return
    typer.echo(indicator_text(long=long))


@app.command("settings")
def list_settings() -> None:
    """List the run-time switches, their values, and the backends that know them."""
    from advisor.report.indicators import settings_text

    typer.echo(settings_text())


@app.command("run")
def run(
    indicators: Annotated[list[str], typer.Argument(metavar="INDICATOR...", help="Indicators to run.")],
    stack: Annotated[
        list[str],
        typer.Option("--stack", metavar="REQUIREMENTS", help="Requirements of one stack, with spaces (repeatable)."),
    ],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Passes over all stacks.")] = 8,
    size: Annotated[str, typer.Option("--size", help="Parameter set: small, medium or large.")] = "small",
    shapes: Annotated[
        str | None, typer.Option("--shapes", metavar="NAME", help="Published shapes instead: deepbench.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="NAME=VALUE,...", help="Parameters of your own instead.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--settings", metavar="NAME=VALUE,...", help="Sweep a run-time switch (repeatable)."),
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option("--dtype", help="Element type (repeatable).")] = None,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            min=2,
            help="Samples of an indicator in each process; up to three times as many where they vary.",
        ),
    ] = 7,
    min_time: Annotated[float, typer.Option("--min-time", min=0.001, help="Least seconds of one sample.")] = 0.05,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest seconds of one process.")] = 600.0,
    memory_limit: MemoryLimitOption = None,
    python: Annotated[
        str, typer.Option("--python", help="Interpreter: path or version.", show_default="the running one")
    ] = sys.executable,
    control: Annotated[bool, typer.Option("--aa/--no-aa", help="Measure each reference twice (A/A control).")] = True,
    resume: Annotated[str | None, typer.Option("--resume", metavar="BLOCK", help="Go on with a block.")] = None,
    keep_environments: KeepOption = True,
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
    """Measure indicators over stacks, interleaved in rounds, and store the observations.

    The first stack of each framework is the reference of its block. With `--settings` every stack is measured once
    without and once with each combination of the switches.
    """
    import psutil

    from advisor.campaign.plan import lock_instruments
    from advisor.campaign.stack_lock import StackLocker
    from knowledge.hardware.detect import detect
    from pi_runners.campaign import Block
    from pi_runners.matrix import backends_of, check_fit, choose_cases, expand_settings, plan_arms

    hardware = detect()
    place = choose_device(device, hardware)
    dtypes = tuple(dtype or ("float32",))
    cases = choose_cases(indicators, size=size, shapes=shapes, parameters=_parameters(parameters))
    axes = _axes(settings or [])
    switches = ({}, *expand_settings(axes)) if axes else ({},)
    check_fit(
        cases, dtypes, hardware, device=place, backends=backends_of(stack), free_bytes=psutil.virtual_memory().available
    )
    client = open_client(
        Path.cwd(),
        index_url=index_url,
        extra_index_url=extra_index_url,
        find_links=find_links,
        cache_dir=cache_dir,
        offline=offline,
    )
    locker = StackLocker(client, hardware)
    locks = [locker.lock(text.split(), python) for text in stack]
    stacks = [(lock, chosen) for lock in locks for chosen in switches]
    arms = plan_arms(stacks, cases, dtypes=dtypes, device=place, control=control)
    for arm in arms:
        if not arm.indicators:
            warn(f"`{arm.lock.label}` is not measured: {arm.backend} has none of these indicators")
    block = Block(
        name=resume or _block_name(arms),
        arms=arms,
        rounds=rounds,
        hardware=hardware,
        samples=samples,
        min_seconds=min_time,
        timeout_seconds=timeout,
        memory_limit_bytes=None if memory_limit is None else memory_limit * 1e9,
        instruments=lock_instruments(arms, locker),
    )
    say(f"block `{block.name}`: {len(arms)} arms, {rounds} rounds; go on after an interruption with --resume")
    with interruptible(f"go on with `--resume {block.name}`"), progress_bar(len(arms) * (rounds + 1)) as step:
        observations = run_and_report(
            [block],
            client=client,
            knowledge=knowledge,
            cache_dir=cache_dir,
            keep_environments=keep_environments,
            budget_bytes=disk_budget(budget),
            prometheus=prometheus,
            output=output,
            progress=step,
        )
    from advisor.report.measurements import block_table

    typer.echo(block_table(observations))


@app.command("show")
def show(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="Name of a block, or a unique prefix of it.")],
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the comparisons of a block that was measured before."""
    from advisor.report.measurements import block_record, block_table
    from knowledge.domain.errors import InputError

    check_format(format)
    with open_to_read(knowledge) as store:
        names = sorted(held.name for held in store.blocks())
        matching = [block] if block in names else [name for name in names if name.startswith(block)]
        if len(matching) != 1:
            listed = ", ".join((matching or names)[-_LISTED_BLOCKS:]) or "none"
            raise InputError(
                f"`{block}` is a prefix of {len(matching)} blocks"
                if matching
                else f"the knowledge base holds no block `{block}`",
                hint=f"write more of the name: {listed}" if matching else f"its last blocks: {listed}",
            )
        observations = tuple(store.observations(block=matching[0]))
    if format == "json":
        import json

        typer.echo(json.dumps(block_record(observations), indent=2))
        return
    typer.echo(block_table(observations))


def _pairs(text: str, option: str) -> list[tuple[str, str]]:
    from knowledge.domain.errors import InputError

    found = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InputError(f"`{option} {text}` is not understood", hint=f"write it as `{option} name=value`")
        found.append((name.strip(), value.strip()))
    return found


def _parameters(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return {name: _scalar(value) for name, value in _pairs(text, "--parameters")}


def _axes(texts: list[str]) -> dict[str, list[Scalar]]:
    """Read `threads=1,2` into the values of each switch."""
    axes: dict[str, list[Scalar]] = {}
    for text in texts:
        name, values = _pairs(text.replace(",", "\0"), "--settings")[0]
        axes[name] = [_scalar(value) for value in values.split("\0")]
    return axes


def _scalar(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def _block_name(arms: tuple[Arm, ...]) -> str:
    """Name a block by its time and by what it measures."""
    from datetime import UTC, datetime

    from knowledge.domain.identity import content_hash

    content = content_hash([[s.lock.requirements, dict(s.settings), [r.label for r in s.indicators]] for s in arms])
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}"
