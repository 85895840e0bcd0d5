"""`advisor pi`: performance indicators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import progress_bar, say, warn
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    FormatOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    cache_directory,
    check_format,
    open_client,
)

if TYPE_CHECKING:
    from advisor.index.client import IndexClient
    from knowledge.domain.hardware import HardwareProfile
    from pi_runners.environment import StackLock
    from pi_runners.matrix import Slot

app = typer.Typer(help="Measure performance indicators.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_indicators(format: FormatOption = "text") -> None:
    """List the indicators with their sizes and backends."""
    from pi_runners.indicators import INDICATORS

    check_format(format)
    if format == "json":
        import json

        entries = [
            {
                "name": i.name,
                "version": i.version,
                "summary": i.summary,
                "flops": i.flops_formula,
                "backends": i.backends,
                "sizes": i.sizes,
            }
            for i in INDICATORS.values()
        ]
        typer.echo(json.dumps({"schema_version": 1, "indicators": entries}, indent=2))
        return
    for indicator in INDICATORS.values():
        typer.echo(f"{indicator.name} (version {indicator.version}): {indicator.summary}")
        typer.echo(f"  backends: {', '.join(indicator.backends)}; flops: {indicator.flops_formula}")
        for size, parameters in indicator.sizes.items():
            typer.echo(f"  {size}: {', '.join(f'{k}={v}' for k, v in parameters.items())}")


@app.command("run")
def run(
    indicators: Annotated[list[str], typer.Argument(metavar="INDICATOR...", help="Indicators to run.")],
    stack: Annotated[
        list[str],
        typer.Option("--stack", metavar="REQUIREMENTS", help="Requirements of one stack, with spaces (repeatable)."),
    ],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Passes over all stacks.")] = 5,
    size: Annotated[str, typer.Option("--size", help="Parameter set: small, medium or large.")] = "small",
    dtype: Annotated[str, typer.Option("--dtype", help="Element type.")] = "float32",
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    samples: Annotated[int, typer.Option("--samples", min=2, help="Samples of an indicator in each process.")] = 20,
    min_time: Annotated[float, typer.Option("--min-time", min=0.001, help="Least seconds of one sample.")] = 0.05,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Longest seconds of one process.")] = 600.0,
    python: Annotated[str, typer.Option("--python", help="Interpreter path; by default this one.")] = sys.executable,
    twins: Annotated[bool, typer.Option("--aa/--no-aa", help="Measure each reference twice: the noise floor.")] = True,
    resume: Annotated[str | None, typer.Option("--resume", metavar="BLOCK", help="Go on with a block.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the observations to a file.")
    ] = None,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Measure indicators over stacks, interleaved in rounds, and store the observations.

    The first stack of each framework is the reference of its block.
    """
    from knowledge.hardware.detect import detect
    from knowledge.store.engine import default_address, open_knowledge_base
    from pi_runners.campaign import Block, run_block
    from pi_runners.executors.local import LocalExecutor
    from pi_runners.matrix import plan_slots

    hardware = detect()
    client = open_client(
        Path.cwd(),
        index_url=index_url,
        extra_index_url=extra_index_url,
        find_links=find_links,
        cache_dir=cache_dir,
        offline=offline,
    )
    locks = _lock(client, stack, python=python, hardware=hardware)
    slots = plan_slots(locks, tuple(indicators), size=size, dtype=dtype, device=_device(device, hardware), again=twins)
    for slot in slots:
        if not slot.indicators:
            warn(f"`{slot.lock.label}` is not measured: {slot.backend} has none of these indicators")
    block = Block(
        name=resume or _block_name(slots),
        slots=slots,
        rounds=rounds,
        hardware=hardware,
        samples=samples,
        min_seconds=min_time,
        timeout_seconds=timeout,
        settings={},
    )
    say(f"block `{block.name}`: {len(slots)} slots, {rounds} rounds; go on after an interruption with --resume")
    with open_knowledge_base(knowledge or default_address()) as store:
        done = frozenset((o.round, o.slot) for o in store.observations(block=block.name))
        with progress_bar(len(slots) * (rounds + 1)) as step:
            run_block(
                block,
                sink=store,
                executor=LocalExecutor(),
                environments=cache_directory(cache_dir) / "environments",
                done=done,
                progress=step,
            )
        observations = tuple(store.observations(block=block.name))
    if output is not None:
        from advisor.lock.write import write_atomically
        from knowledge.exchange.files import write_observations

        write_atomically(output, "".join(f"{line}\n" for line in write_observations(observations)))
    from advisor.report.measurements import block_table

    typer.echo(block_table(observations))


@app.command("show")
def show(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="Name of a block, as `pi run` printed it.")],
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the comparisons of a block that was measured before."""
    from advisor.report.measurements import block_table
    from knowledge.domain.errors import InputError
    from knowledge.store.engine import default_address, open_knowledge_base

    with open_knowledge_base(knowledge or default_address()) as store:
        observations = tuple(store.observations(block=block))
    if not observations:
        raise InputError(
            f"the knowledge base holds no block `{block}`", hint="`advisor knowledge export` lists what it holds"
        )
    typer.echo(block_table(observations))


def _lock(client: IndexClient, stacks: list[str], *, python: str, hardware: HardwareProfile) -> tuple[StackLock, ...]:
    import subprocess

    from advisor.resolve.stacks import lock_stack
    from advisor.resolve.target import make_target
    from knowledge.domain.errors import InputError

    try:
        program = "import platform; print(platform.python_version())"
        done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"the interpreter `{python}` does not run: {error}") from None
    target = make_target(python=done.stdout.strip(), platform=None, hardware=hardware)
    return tuple(lock_stack(text, client=client, target=target, python=python) for text in stacks)


def _device(choice: str, hardware: HardwareProfile) -> str:
    from knowledge.domain.errors import InputError

    if choice not in ("auto", "cpu", "cuda"):
        raise InputError(f"there is no device `{choice}`", hint="take `auto`, `cpu` or `cuda`")
    if choice == "cuda" and hardware.gpu is None:
        raise InputError("this machine has no NVIDIA GPU that the driver knows", hint="measure with `--device cpu`")
    return choice if choice != "auto" else ("cuda" if hardware.gpu else "cpu")


def _block_name(slots: tuple[Slot, ...]) -> str:
    """Name a block by its time and by what it measures."""
    from datetime import UTC, datetime

    from knowledge.domain.identity import content_hash

    content = content_hash([[s.lock.requirements, [r.label for r in s.indicators]] for s in slots])
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}"
