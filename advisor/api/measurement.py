"""Measure indicators over stacks on this machine, and store the observations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from advisor.api.option import Option, Scalar, option_group, read_gigabytes, read_pairs, read_scalar
from advisor.api.options import KNOWLEDGE, IndexOptions
from advisor.api.resources import make_client, open_writable_store
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError
from knowledge.domain.workload import ProfiledWorkload

if TYPE_CHECKING:
    from advisor.campaign.stack_lock import StackLocker
    from advisor.index.client import IndexClient
    from knowledge.domain.hardware import HardwareProfile
    from knowledge.domain.observation import Observation
    from pi_runners.execution.campaign import Block

_INDICATOR_SAMPLES = 7


MEMORY_LIMIT = Option(
    "--memory-limit",
    metavar="GB",
    reads=float,
    parse=read_gigabytes,
    minimum=0.01,
    help="Kill a process that holds more memory than this.\nResident memory, with its children.",
)
DISK_BUDGET = Option(
    "--disk-budget",
    metavar="GB",
    reads=float,
    parse=read_gigabytes,
    minimum=0.001,
    help="Refuse blocks that would take more disk than this.",
)


def _read_parameters(text: str) -> dict[str, Scalar]:
    return {name: read_scalar(value) for name, value in read_pairs(text.split(","), "--parameters")}


def _read_axes(texts: Sequence[str]) -> dict[str, Sequence[Scalar]]:
    """Read `threads=1,2` into the values of each setting."""
    return {name: [read_scalar(v) for v in values.split(",")] for name, values in read_pairs(texts, "--settings")}


@option_group
@dataclass(frozen=True, kw_only=True)
class IndicatorOptions:
    """What is measured: indicators, or with ``workload`` the parts of a profiled workload."""

    size: Annotated[str, Option("--size", help="Parameter set: small, medium or large.")] = "small"
    shapes: Annotated[
        str | None, Option("--shapes", metavar="NAME", help="List of shapes instead, such as deepbench.")
    ] = None
    parameters: Annotated[
        Mapping[str, Scalar] | None,
        Option("--parameters", metavar="NAME=VALUE", parse=_read_parameters, help="Parameters of your own instead."),
    ] = None
    settings: Annotated[
        Mapping[str, Sequence[Scalar]],
        Option(
            "--settings",
            metavar="NAME=VALUE",
            reads=list[str],
            parse=_read_axes,
            help="Sweep a run-time setting (repeatable).\n"
            "Every stack is measured without and with each combination of the values.",
        ),
    ] = field(default_factory=dict)
    dtypes: Annotated[tuple[str, ...], Option("--dtype", help="Element type (repeatable).")] = ("float32",)
    device: Annotated[str, Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")] = "auto"
    workload: ProfiledWorkload | None = None


@option_group
@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How often, and for how long, it is measured."""

    rounds: Annotated[int, Option("--rounds", minimum=1, help="Passes over all stacks.")] = 8
    samples: Annotated[
        int | None,
        Option(
            "--samples",
            minimum=1,
            help="Samples in each process.\n"
            "Of an indicator (default: 7, up to three times as many if they vary), or runs of the benchmark "
            "(default: 3).",
        ),
    ] = None
    min_seconds: Annotated[float, Option("--min-time", minimum=0.001, help="Minimum seconds of one sample.")] = 0.05
    timeout_seconds: Annotated[
        float, Option("--timeout", minimum=1, help="Most seconds of a process or benchmark run.")
    ] = 600.0
    memory_limit_bytes: Annotated[float | None, MEMORY_LIMIT] = None
    controls: Annotated[bool, Option("--aa/--no-aa", help="Measure each reference twice (A/A control).")] = True


@option_group
@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """Where stacks are installed."""

    python: Annotated[str, Option("--python", help="Interpreter: path or version.", default_text="the running one")] = (
        sys.executable
    )
    keep: Annotated[
        bool, Option("--keep-environments/--remove-environments", help="Keep environments for the next block.")
    ] = True
    disk_budget_bytes: Annotated[float | None, DISK_BUDGET] = None


@option_group
@dataclass(frozen=True, kw_only=True)
class MeasurementStore:
    """Where observations go; ``cache_directory`` holds the environments and is by default the user's."""

    prometheus: Annotated[
        Path | None, Option("--prometheus", metavar="FILE", help="Write figures to a file for node_exporter.")
    ] = None
    knowledge: Annotated[str | None, KNOWLEDGE] = None
    cache_directory: Path | None = None


def choose_device(choice: str, hardware: HardwareProfile) -> str:
    """Return ``cpu`` or ``cuda``.

    Raises:
        InputError: If there is no such device, here or at all.
    """
    if choice not in ("auto", "cpu", "cuda"):
        raise InputError(f"there is no device `{choice}`", hint="take `auto`, `cpu` or `cuda`")
    if choice == "cuda" and hardware.gpu is None:
        raise InputError("this machine has no NVIDIA GPU that the driver knows", hint="measure with `--device cpu`")
    return choice if choice != "auto" else ("cuda" if hardware.gpu else "cpu")


def plan_block(
    indicators: Sequence[str],
    stacks: Sequence[str],
    client: IndexClient,
    *,
    indicator_options: IndicatorOptions,
    sampling: SamplingOptions,
    python: str = sys.executable,
    name: str | None = None,
) -> Block:
    """Lock stacks for this machine and lay out what to measure.

    Args:
        indicators: Names of indicators.
        stacks: Requirements of each stack, separated by spaces; the first of each framework is its reference.
        client: The package indexes.
        indicator_options: What is measured.
        sampling: How often.
        python: Interpreter: a path or a version.
        name: Name of a block to continue; by default a new one.

    Raises:
        InputError: If an indicator, a size, a setting or a stack does not exist, or memory does not suffice.
        NoStackError: If a stack cannot be resolved.
        UnavailableError: If an index cannot be read.
    """
    import psutil

    from advisor.campaign.plan import lock_loadgen
    from advisor.campaign.stack_lock import StackLocker
    from knowledge.hardware.detect import detect
    from pi_runners.execution.campaign import Block
    from pi_runners.plan.matrix import backends_of, check_fit, choose_cases, expand_settings, plan_arms, workload_cases

    hardware = detect()
    device = choose_device(indicator_options.device, hardware)
    cases = choose_cases(
        indicators,
        size=indicator_options.size,
        shapes=indicator_options.shapes,
        parameters=None if indicator_options.parameters is None else dict(indicator_options.parameters),
    )
    if indicator_options.workload is not None:
        cases = (*cases, *workload_cases(indicator_options.workload)[0])
    axes = {setting: list(values) for setting, values in indicator_options.settings.items()}
    settings = ({}, *expand_settings(axes)) if axes else ({},)
    check_fit(
        cases,
        indicator_options.dtypes,
        hardware,
        device=device,
        backends=backends_of(stacks),
        free_bytes=psutil.virtual_memory().available,
    )
    locker: StackLocker = StackLocker(client, hardware)
    locks = [locker.lock(stack.split(), python) for stack in stacks]
    arms = plan_arms(
        [(lock, setting) for lock in locks for setting in settings],
        cases,
        dtypes=indicator_options.dtypes,
        device=device,
        control=sampling.controls,
    )
    return Block(
        name=name or block_name(arms),
        arms=arms,
        rounds=sampling.rounds,
        hardware=hardware,
        samples=_INDICATOR_SAMPLES if sampling.samples is None else sampling.samples,
        min_seconds=sampling.min_seconds,
        timeout_seconds=sampling.timeout_seconds,
        memory_limit_bytes=sampling.memory_limit_bytes,
        instruments=lock_loadgen(arms, locker),
    )


def run_block(
    block: Block,
    client: IndexClient,
    *,
    environment: EnvironmentOptions,
    store: MeasurementStore,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Observation, ...]:
    """Measure what is missing of a block, and return all its observations, oldest first.

    Args:
        block: The block.
        client: The package indexes.
        environment: Where stacks are installed.
        store: Where observations go.
        progress: Called with a short text before each step.

    Raises:
        InputError: If the environments would exceed the disk budget.
        KnowledgeBaseError: If the knowledge base cannot be opened.
        UnavailableError: If the metrics file cannot be written.
    """
    from advisor.campaign.plan import check_disk, estimate
    from advisor.campaign.prometheus import PrometheusSink
    from pi_runners.execution import campaign
    from pi_runners.execution.campaign import FailureLimit
    from pi_runners.execution.subprocess_runner import FreshProcesses

    environments = cache_directory(store.cache_directory) / "environments"
    if environment.disk_budget_bytes is not None:
        check_disk([estimate(block, client, {})], environments, budget_bytes=environment.disk_budget_bytes)
    with open_writable_store(store.knowledge) as knowledge:
        complete = campaign.measured_cells(block, knowledge.observations(block=block.name))
        limit = FailureLimit(knowledge if store.prometheus is None else PrometheusSink(knowledge, store.prometheus))
        campaign.run_block(
            block,
            sink=limit,
            runner=FreshProcesses(),
            environments=environments,
            is_missing=campaign.not_among(complete),
            keep_environments=environment.keep,
            progress=progress,
            begin=lambda _, arm: limit.reason(arm.number) if block.benchmark else "",
        )
        return tuple(knowledge.observations(block=block.name))


def measure_stacks(
    indicators: Sequence[str],
    stacks: Sequence[str],
    *,
    indicator_options: IndicatorOptions,
    sampling: SamplingOptions,
    environment: EnvironmentOptions,
    indexes: IndexOptions,
    knowledge: str | None = None,
) -> tuple[Observation, ...]:
    """Measure indicators over stacks; see :func:`plan_block` and :func:`run_block`."""
    if not indicators or not stacks or sampling.rounds < 1:
        raise InputError("there is nothing to measure", hint="name an indicator, a stack, and at least one round")
    client = make_client(indexes, Path.cwd())
    try:
        block = plan_block(
            indicators,
            stacks,
            client,
            indicator_options=indicator_options,
            sampling=sampling,
            python=environment.python,
        )
        store = MeasurementStore(knowledge=knowledge, cache_directory=indexes.cache_directory)
        return run_block(block, client, environment=environment, store=store)
    finally:
        client.close()


def block_name(arms: Sequence[Any]) -> str:
    """Name a block by its time and by what it measures."""
    from datetime import UTC, datetime

    from knowledge.domain.identity import content_hash

    content = content_hash([[s.lock.requirements, dict(s.settings), [r.label for r in s.indicators]] for s in arms])
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}"
