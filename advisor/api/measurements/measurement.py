"""Measure indicators over stacks on this machine, and store the observations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from advisor.api.indexes import open_indexes
from advisor.api.measurements.options import EnvironmentOptions, IndicatorOptions, MeasurementStore, SamplingOptions
from advisor.api.options import IndexOptions, listed
from advisor.api.stores import open_writable_store
from advisor.campaign.plan import check_disk, choose_device, estimate, lock_loadgen
from advisor.campaign.prometheus import prometheus_file
from advisor.campaign.stack_lock import StackLocker
from advisor.index.client import IndexClient
from advisor.user_directories import cache_directory
from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import Observation
from knowledge.hardware.detect import detect
from pi_runners.execution import campaign
from pi_runners.execution.campaign import Block, FailureLimit
from pi_runners.execution.subprocess_runner import FreshProcesses
from pi_runners.plan.matrix import backends_of, check_fit, choose_cases, expand_settings, plan_arms, workload_cases

_INDICATOR_SAMPLES = 7


def plan_block(
    indicators: Sequence[str],
    stacks: Sequence[str],
    client: IndexClient,
    *,
    options: IndicatorOptions,
    sampling: SamplingOptions,
    python: str = sys.executable,
    name: str | None = None,
) -> Block:
    """Lock stacks for this machine and lay out what to measure; see :func:`measure`.

    The interpreter is a path or a version. The name is that of a block to continue, by default a new one.

    Raises:
        InputError: If an indicator, a size, a setting or a stack does not exist, or memory does not suffice.
        NoStackError: If a stack cannot be resolved.
        UnavailableError: If an index cannot be read.
    """
    hardware = detect()
    device = choose_device(options.device, hardware)
    cases = choose_cases(indicators, size=options.size, shapes=options.shapes, parameters=options.parameters)
    if options.workload is not None:
        cases = (*cases, *(case for case, _ in workload_cases(options.workload)))
    settings = ({}, *expand_settings(options.settings)) if options.settings else ({},)
    check_fit(
        cases,
        options.dtypes,
        hardware,
        device=device,
        backends=backends_of(stacks),
        free_bytes=psutil.virtual_memory().available,
    )
    locker = StackLocker(client, hardware)
    locks = [locker.lock(stack.split(), python) for stack in stacks]
    arms = plan_arms(
        [(lock, setting) for lock in locks for setting in settings],
        cases,
        dtypes=options.dtypes,
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

    Raises:
        InputError: If the environments would exceed the disk budget.
        KnowledgeBaseError: If the knowledge base cannot be opened.
        UnavailableError: If the metrics file cannot be written.
    """
    environments = cache_directory(store.cache_directory) / "environments"
    if environment.disk_budget_bytes is not None:
        check_disk([estimate(block, client, {})], environments, budget_bytes=environment.disk_budget_bytes)
    with (
        open_writable_store(store.knowledge) as knowledge,
        prometheus_file(knowledge.add, store.prometheus, store=knowledge) as sink,
    ):
        complete = campaign.measured_cells(block, knowledge.observations(block=block.name))
        limit = FailureLimit(sink)
        campaign.run_block(
            block,
            sink=limit.add,
            runner=FreshProcesses(),
            environments=environments,
            is_missing=lambda number, arm: (number, arm) not in complete,
            keep_environments=environment.keep,
            progress=progress,
            begin=lambda _, arm: limit.reason(arm.number) if block.benchmark else "",
        )
        return tuple(knowledge.observations(block=block.name))


def measure(
    indicators: Sequence[str] | str,
    stacks: Sequence[str] | str,
    *,
    options: IndicatorOptions | None = None,
    sampling: SamplingOptions | None = None,
    environment: EnvironmentOptions | None = None,
    indexes: IndexOptions | None = None,
    knowledge: str | None = None,
) -> tuple[Observation, ...]:
    """Measure indicators over stacks on this machine, and store the observations.

    Each stack is installed in an environment of its own; rounds are interleaved, each in a fresh process.

    Args:
        indicators: Names of indicators.
        stacks: Requirements of each stack, separated by spaces; the first of each framework is its reference.
        options: Sizes, element types, device and settings.
        sampling: Rounds, samples, time and memory limits.
        environment: Interpreter and environments.
        indexes: The package indexes.
        knowledge: Address of the knowledge base; by default the user's own.

    Returns:
        The observations of the block, oldest first; failures are observations, too.

    Raises:
        InputError: If an indicator, a size, a setting or a stack does not exist (exit code 2).
        UnsatisfiableError: If a stack cannot be resolved (exit code 3).
        UnavailableError: If an index or the knowledge base is not available (exit code 4).
    """
    indicators, stacks = listed(indicators), listed(stacks)
    sampling, environment = sampling or SamplingOptions(), environment or EnvironmentOptions()
    indexes = indexes or IndexOptions()
    if not indicators or not stacks or sampling.rounds < 1:
        raise InputError("there is nothing to measure", hint="name an indicator, a stack, and at least one round")
    with open_indexes(indexes, Path.cwd()) as client:
        block = plan_block(
            indicators,
            stacks,
            client,
            options=options or IndicatorOptions(),
            sampling=sampling,
            python=environment.python,
        )
        store = MeasurementStore(knowledge=knowledge, cache_directory=indexes.cache_directory)
        return run_block(block, client, environment=environment, store=store)


def block_name(arms: Sequence[Any]) -> str:
    """Name a block by its time and by what it measures."""
    content = content_hash([[s.lock.requirements, dict(s.settings), [r.label for r in s.indicators]] for s in arms])
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{content[:8]}"
