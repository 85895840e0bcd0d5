"""`advisor pi`: performance indicators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import EnvironmentOptions, IndicatorOptions, MeasurementStore, SamplingOptions
from advisor.api.option import Option, option_fields
from advisor.api.options import IndexOptions, ProjectOptions, ResolutionOptions
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import progress_bar, say, warn
from advisor.cli.options import FormatOption, IndexPlaces, KnowledgeOption, expand_options, print_either, typer_option
from advisor.cli.pi import campaign_commands
from advisor.cli.pi.campaign import OUTPUT_FILE, campaign, plan, write_output
from advisor.cli.pi.history import history
from advisor.domain.words import count
from advisor.index.client import IndexClient
from advisor.project.workload.file import select_workload
from advisor.report.catalogue import indicator_records, indicator_text, settings_text
from advisor.report.measurements import block_record, block_table
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from pi_runners.execution.benchmark import last_line
from pi_runners.execution.campaign import Block
from pi_runners.plan.matrix import workload_cases

_LISTED_BLOCKS = 5

app = CommandGroup(help="Measure performance indicators.")
app.command("plan")(plan)
app.command("campaign")(campaign)
app.command("history")(history)
for command in (
    campaign_commands.status,
    campaign_commands.cancel,
    campaign_commands.retry,
    campaign_commands.collect,
    campaign_commands.forget,
    campaign_commands.work,
):
    app.command(command.__name__)(command)


@app.command("list")
def list_indicators(
    long: Annotated[bool, typer.Option("--long", help="Also formulae, parameters and sources.")] = False,
    format: FormatOption = "text",
) -> None:
    """List the indicators with their sizes and backends."""
    print_either(format, {"schema_version": 2, "indicators": indicator_records()}, indicator_text(long=long))


@app.command("settings")
def list_settings() -> None:
    """List the run-time settings, their values, and the backends that know them."""
    typer.echo(settings_text())


@dataclass(frozen=True, kw_only=True)
class _BlockGroup:
    """Options of the block: its stacks, and what runs on them."""

    stack: Annotated[
        list[str] | None,
        Option("--stack", metavar="REQUIREMENTS", help="Requirements of a stack (repeatable)."),
    ] = None
    benchmark: Annotated[bool, Option("--benchmark", help="Run the benchmark of the project here.")] = False
    workload: Annotated[
        str | None,
        Option(
            "--workload",
            metavar="NAME",
            help="Measure the parts of a profiled workload.\nOf the project in this directory.",
        ),
    ] = None
    resume: Annotated[str | None, Option("--resume", metavar="BLOCK", help="Continue a block.")] = None


@app.command("run")
@expand_options
def run(
    block_group: _BlockGroup,
    measured: IndicatorOptions,
    sampling: SamplingOptions,
    environment: EnvironmentOptions,
    store: MeasurementStore,
    indexes: IndexPlaces,
    indicators: Annotated[
        list[str] | None, typer.Argument(metavar="INDICATOR...", help="Indicators to run.", show_default=False)
    ] = None,
    output: Annotated[Path | None, typer_option(OUTPUT_FILE)] = None,
) -> None:
    """Measure indicators, or a project's benchmark, over stacks in interleaved rounds, and store the observations.

    The first stack of each framework is the reference of its block. With `--settings` every stack is measured once
    without and once with each combination of the settings.

    `--benchmark` runs the command of `[tool.advisor.benchmark]` in `pyproject.toml` in copies of the project. A stack
    is then the project's lock with the requirements of `--stack`; without `--stack`, the baseline and the recommended
    stack are measured. `--settings` are those that an environment variable or a set of processors applies.
    """
    if block_group.benchmark:
        _check_benchmark_options(indicators, measured, sampling)
        project = ProjectOptions(indexes=indexes, resolution=ResolutionOptions(knowledge=store.knowledge))
        planned = _planned_benchmark(block_group, project, measured, sampling, environment.python)
    else:
        planned = _planned_indicators(indicators, block_group, measured, sampling, environment.python, indexes)
    with planned as (block, client):
        say(
            f"block `{block.name}`: {count(len(block.arms), 'arm')}, {count(block.rounds, 'round')}; "
            "continue after an interruption with --resume"
        )
        steps = len(block.arms) * (block.rounds + 1)
        with _interruptible(f"continue with `--resume {block.name}`"), progress_bar(steps) as step:
            observations = api.measurement.run_block(
                block,
                client,
                environment=environment,
                store=replace(store, cache_directory=indexes.cache_directory),
                progress=step,
            )
    if output is not None:
        write_output(output, observations)
    typer.echo(block_table(observations))
    if block_group.benchmark:
        _check_benchmark_result(observations)


@contextmanager
def _interruptible(how_to_continue: str) -> Iterator[None]:
    """Report how to continue after an interruption."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: the observations so far are stored; {how_to_continue}")
        raise


def _with_workload(options: IndicatorOptions, name: str | None) -> IndicatorOptions:
    """Add a profiled workload of the project in this directory to options, and report how much of it is measured."""
    if name is None:
        return options
    workload = select_workload(Path.cwd(), name)
    cases = workload_cases(workload)
    if not cases:
        raise InputError(
            f"no part of the workload `{name}` can be measured",
            hint="parts need parameters: profile the program with shapes, see `advisor workload show`",
        )
    say(f"measuring {count(len(cases), 'part')} of `{name}`: {sum(share for _, share in cases):.0%} of its time")
    return replace(options, workload=workload)


@contextmanager
def _planned_indicators(
    indicators: list[str] | None,
    block_group: _BlockGroup,
    measured: IndicatorOptions,
    sampling: SamplingOptions,
    python: str,
    indexes: IndexOptions,
) -> Iterator[tuple[Block, IndexClient]]:
    """Plan the block of indicators."""
    options = _with_workload(measured, block_group.workload)
    if not indicators and options.workload is None:
        raise InputError(
            "no indicator is named",
            hint="`advisor pi list` lists them; `--benchmark` runs the benchmark of a project, `--workload NAME` the "
            "parts of a profiled workload",
        )
    if not block_group.stack:
        raise InputError("no stack is named", hint="add `--stack 'numpy==2.2.6'`, and more to compare with it")
    if sampling.samples == 1:
        raise InputError("an indicator needs at least 2 samples in each process", hint="omit `--samples`")
    with api.indexes.open_indexes(indexes, Path.cwd()) as client:
        block = api.measurement.plan_block(
            indicators or (),
            block_group.stack,
            client,
            options=options,
            sampling=sampling,
            python=python,
            name=block_group.resume,
        )
        for arm in block.arms:
            if not arm.indicators:
                warn(f"`{arm.lock.label}` is not measured: {arm.backend} has none of these indicators")
        yield block, client


@contextmanager
def _planned_benchmark(
    block_group: _BlockGroup,
    project: ProjectOptions,
    measured: IndicatorOptions,
    sampling: SamplingOptions,
    python: str,
) -> Iterator[tuple[Block, IndexClient]]:
    """Plan the block of the benchmark of the project in this directory."""
    if block_group.workload:
        raise InputError("`--benchmark` and `--workload` exclude each other", hint="measure them in two commands")
    with api.benchmark.plan_benchmark(
        project,
        block_group.stack or (),
        sampling=sampling,
        python=python,
        name=block_group.resume,
        settings=measured.settings,
    ) as plan:
        size = f"{plan.copied_bytes / 1e6:.1f} MB" if plan.copied_bytes > 1e5 else f"{plan.copied_bytes / 1e3:.1f} kB"
        say(f"each process copies {count(plan.copied_files, 'file')} of the project, {size}")
        yield plan.block, plan.client


def _check_benchmark_options(
    indicators: list[str] | None, measured: IndicatorOptions, sampling: SamplingOptions
) -> None:
    """Refuse what has no meaning for a benchmark."""
    if indicators:
        raise InputError(
            f"`--benchmark` runs the project's own command, not the indicator `{indicators[0]}`",
            hint="measure indicators in another command, without `--benchmark`",
        )
    changed = [
        field.option.names[0]
        for field in option_fields(IndicatorOptions)
        if field.name != "settings" and getattr(measured, field.name) != field.default
    ]
    if sampling.min_seconds != SamplingOptions().min_seconds:
        changed.append("--min-time")
    if changed:
        raise InputError(
            f"`{changed[0]}` is an option of indicators, and `--benchmark` runs the project's own command",
            hint="write sizes into the command, `command` in `[tool.advisor.benchmark]`",
        )


def _check_benchmark_result(observations: Sequence[Observation]) -> None:
    """Report that no run of a benchmark succeeded."""
    if not any(o.status == "ok" for o in observations):
        raise InputError(
            f"the benchmark gave no result on any stack: {last_line(observations[0].failure)}",
            hint="try the command in a copy of the project; it contains only files that git does not ignore",
        )


@app.command("show")
def show(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="Name of a block, or a unique prefix of it.")],
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the comparisons of a block that was measured before."""
    with api.stores.open_readable_store(knowledge) as store:
        # The names of blocks of `pi run` begin with the time: they come last, the newest at the end.
        names = sorted((stored.name for stored in store.blocks()), key=lambda name: (name[:8].isdigit(), name))
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
    print_either(format, block_record(observations), block_table(observations))
