"""`advisor pi`: performance indicators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.api.resources import open_readable_store
from advisor.cli import campaign_commands
from advisor.cli.campaign import campaign, plan
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import progress_bar, say, warn
from advisor.cli.measure import (
    EnvironmentGroup,
    MemoryLimitOption,
    ResultGroup,
    interruptible,
    with_workload,
    write_output,
)
from advisor.cli.option_groups import IndexUrlOptions, expand_options
from advisor.cli.options import FormatOption, KnowledgeOption, check_format, read_pairs
from advisor.domain.words import count

if TYPE_CHECKING:
    from advisor.api.measurement import IndicatorOptions, SamplingOptions
    from advisor.index.client import IndexClient
    from knowledge.domain.observation import Observation, Scalar
    from pi_runners.execution.campaign import Block

_LISTED_BLOCKS = 5

app = CommandGroup(help="Measure performance indicators.")
app.command("plan")(plan)
app.command("campaign")(campaign)
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
    from advisor.report.catalogue import indicator_records, indicator_text

    check_format(format)
    if format == "json":
        import json

        typer.echo(json.dumps({"schema_version": 2, "indicators": indicator_records()}, indent=2))
        return
    typer.echo(indicator_text(long=long))


@app.command("settings")
def list_settings() -> None:
    """List the run-time settings, their values, and the backends that know them."""
    from advisor.report.catalogue import settings_text

    typer.echo(settings_text())


@dataclass(frozen=True, kw_only=True)
class _IndicatorGroup:
    """Options of what is measured."""

    size: Annotated[str, typer.Option("--size", help="Parameter set: small, medium or large.")] = "small"
    shapes: Annotated[
        str | None,
        typer.Option("--shapes", metavar="NAME", help="List of shapes instead, such as deepbench."),
    ] = None
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="NAME=VALUE", help="Parameters of your own instead.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--settings", metavar="NAME=VALUE", help="Sweep a run-time setting (repeatable)."),
    ] = None
    dtype: Annotated[list[str] | None, typer.Option("--dtype", help="Element type (repeatable).")] = None
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")] = "auto"

    def options(self) -> IndicatorOptions:
        """Return the options.

        Raises:
            InputError: If one is not written as ``name=value``.
        """
        from advisor.api.measurement import IndicatorOptions

        return IndicatorOptions(
            size=self.size,
            shapes=self.shapes,
            parameters=_parameters(self.parameters),
            dtypes=tuple(self.dtype or ("float32",)),
            device=self.device,
            settings=_axes(self.settings or []),
        )


@dataclass(frozen=True, kw_only=True)
class _SamplingGroup:
    """Options of how often, and for how long, it is measured."""

    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Passes over all stacks.")] = 8
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            min=1,
            help="Samples in each process.\n"
            "Of an indicator (default: 7, up to three times as many if they vary), or runs of the benchmark "
            "(default: 3).",
        ),
    ] = None
    min_time: Annotated[float, typer.Option("--min-time", min=0.001, help="Minimum seconds of one sample.")] = 0.05
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Most seconds of a process or benchmark run.")] = (
        600.0
    )
    memory_limit: MemoryLimitOption = None
    control: Annotated[bool, typer.Option("--aa/--no-aa", help="Measure each reference twice (A/A control).")] = True

    def options(self) -> SamplingOptions:
        """Return the options."""
        from advisor.api.measurement import SamplingOptions

        return SamplingOptions(
            rounds=self.rounds,
            samples=self.samples,
            min_seconds=self.min_time,
            timeout_seconds=self.timeout,
            memory_limit_bytes=None if self.memory_limit is None else self.memory_limit * 1e9,
            controls=self.control,
        )


@dataclass(frozen=True, kw_only=True)
class _BlockGroup:
    """Options of the block: its stacks, and what runs on them."""

    stack: Annotated[
        list[str] | None,
        typer.Option("--stack", metavar="REQUIREMENTS", help="Requirements of a stack (repeatable)."),
    ] = None
    benchmark: Annotated[bool, typer.Option("--benchmark", help="Run the benchmark of the project here.")] = False
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="Measure the parts of a profiled workload.\nOf the project in this directory.",
        ),
    ] = None
    resume: Annotated[str | None, typer.Option("--resume", metavar="BLOCK", help="Continue a block.")] = None


@app.command("run")
@expand_options
def run(
    block_group: _BlockGroup,
    indicator_group: _IndicatorGroup,
    sampling_group: _SamplingGroup,
    environment: EnvironmentGroup,
    results: ResultGroup,
    index_urls: IndexUrlOptions,
    indicators: Annotated[
        list[str] | None, typer.Argument(metavar="INDICATOR...", help="Indicators to run.", show_default=False)
    ] = None,
) -> None:
    """Measure indicators, or a project's benchmark, over stacks in interleaved rounds, and store the observations.

    The first stack of each framework is the reference of its block. With `--settings` every stack is measured once
    without and once with each combination of the settings.

    `--benchmark` runs the command of `[tool.advisor.benchmark]` in `pyproject.toml` in copies of the project. A stack
    is then the project's lock with the requirements of `--stack`; without `--stack`, the baseline and the recommended
    stack are measured. `--settings` are those that an environment variable or a set of processors applies.
    """
    from advisor.api.measurement import run_block
    from advisor.report.measurements import block_table

    if block_group.benchmark:
        _check_benchmark_options(indicators, indicator_group, sampling_group)
        axes = _axes(indicator_group.settings or [])
        planned = _planned_benchmark(block_group, axes, sampling_group, environment, results, index_urls)
    else:
        planned = _planned_indicators(indicators, block_group, indicator_group, sampling_group, environment, index_urls)
    with planned as (block, client):
        say(
            f"block `{block.name}`: {count(len(block.arms), 'arm')}, {count(block.rounds, 'round')}; "
            "continue after an interruption with --resume"
        )
        steps = len(block.arms) * (block.rounds + 1)
        with interruptible(f"continue with `--resume {block.name}`"), progress_bar(steps) as step:
            observations = run_block(
                block,
                client,
                environment=environment.options(),
                store=results.store(index_urls.cache_dir),
                progress=step,
            )
    if results.output is not None:
        write_output(results.output, observations)
    typer.echo(block_table(observations))
    if block_group.benchmark:
        _check_benchmark_result(observations)


@contextmanager
def _planned_indicators(
    indicators: list[str] | None,
    block_group: _BlockGroup,
    indicator_group: _IndicatorGroup,
    sampling_group: _SamplingGroup,
    environment: EnvironmentGroup,
    index_urls: IndexUrlOptions,
) -> Iterator[tuple[Block, IndexClient]]:
    """Plan the block of indicators.

    Raises:
        InputError: If no indicator or no stack is named, or one does not exist.
    """
    from advisor.api.measurement import plan_block
    from advisor.api.resources import open_indexes
    from knowledge.domain.errors import InputError

    options = with_workload(indicator_group.options(), block_group.workload)
    if not indicators and options.workload is None:
        raise InputError(
            "no indicator is named",
            hint="`advisor pi list` lists them; `--benchmark` runs the benchmark of a project, `--workload NAME` the "
            "parts of a profiled workload",
        )
    if not block_group.stack:
        raise InputError("no stack is named", hint="add `--stack 'numpy==2.2.6'`, and more to compare with it")
    sampling = sampling_group.options()
    if sampling.samples == 1:
        raise InputError("an indicator needs at least 2 samples in each process", hint="omit `--samples`")
    with open_indexes(index_urls.indexes(), Path.cwd()) as client:
        block = plan_block(
            indicators or (),
            block_group.stack,
            client,
            indicator_options=options,
            sampling=sampling,
            python=environment.python,
            name=block_group.resume,
        )
        for arm in block.arms:
            if not arm.indicators:
                warn(f"`{arm.lock.label}` is not measured: {arm.backend} has none of these indicators")
        yield block, client


@contextmanager
def _planned_benchmark(
    block_group: _BlockGroup,
    settings: dict[str, list[Scalar]],
    sampling_group: _SamplingGroup,
    environment: EnvironmentGroup,
    results: ResultGroup,
    index_urls: IndexUrlOptions,
) -> Iterator[tuple[Block, IndexClient]]:
    """Plan the block of the benchmark of the project in this directory."""
    from advisor.api.benchmark import plan_benchmark
    from advisor.api.options import ProjectFiles, ResolutionOptions
    from knowledge.domain.errors import InputError

    if block_group.workload:
        raise InputError("`--benchmark` and `--workload` exclude each other", hint="measure them in two commands")

    with plan_benchmark(
        ProjectFiles(),
        block_group.stack or (),
        sampling=sampling_group.options(),
        indexes=index_urls.indexes(),
        resolution=ResolutionOptions(knowledge=results.knowledge),
        python=environment.python,
        name=block_group.resume,
        settings=settings,
    ) as plan:
        size = f"{plan.copied_bytes / 1e6:.1f} MB" if plan.copied_bytes > 1e5 else f"{plan.copied_bytes / 1e3:.1f} kB"
        say(f"each process copies {count(plan.copied_files, 'file')} of the project, {size}")
        yield plan.block, plan.client


def _check_benchmark_options(
    indicators: list[str] | None, indicator_group: _IndicatorGroup, sampling_group: _SamplingGroup
) -> None:
    """Refuse what has no meaning for a benchmark.

    Raises:
        InputError: If an indicator or one of its options is given.
    """
    from knowledge.domain.errors import InputError

    if indicators:
        raise InputError(
            f"`--benchmark` runs the project's own command, not the indicator `{indicators[0]}`",
            hint="measure indicators in another command, without `--benchmark`",
        )
    options = asdict(indicator_group)
    defaults = asdict(_IndicatorGroup())
    changed = [name for name, default in defaults.items() if name != "settings" and options[name] != default]
    if sampling_group.min_time != _SamplingGroup().min_time:
        changed.append("min-time")
    if changed:
        raise InputError(
            f"`--{changed[0]}` is an option of indicators, and `--benchmark` runs the project's own command",
            hint="write sizes into the command, `command` in `[tool.advisor.benchmark]`",
        )


def _check_benchmark_result(observations: Sequence[Observation]) -> None:
    """Report that no run of a benchmark succeeded.

    Raises:
        InputError: If so; the failures are stored.
    """
    from knowledge.domain.errors import InputError
    from pi_runners.execution.benchmark import last_line

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
    from advisor.report.measurements import block_record, block_table
    from knowledge.domain.errors import InputError

    check_format(format)
    with open_readable_store(knowledge) as store:
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
    if format == "json":
        import json

        typer.echo(json.dumps(block_record(observations), indent=2))
        return
    typer.echo(block_table(observations))


def _parameters(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return {name: _scalar(value) for name, value in read_pairs(text.split(","), "--parameters")}


def _axes(texts: list[str]) -> dict[str, list[Scalar]]:
    """Read `threads=1,2` into the values of each setting."""
    return {name: [_scalar(value) for value in values.split(",")] for name, values in read_pairs(texts, "--settings")}


def _scalar(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text
