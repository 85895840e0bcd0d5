"""Measure the benchmark of a project: lock the project for each stack, and plan the block."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from advisor.api.context import (
    AdviceInputs,
    TargetContext,
    load_project,
    open_predictor,
    prepare_target,
    project_builder,
)
from advisor.api.indexes import open_indexes
from advisor.api.measurements.measurement import block_name, run_block
from advisor.api.measurements.options import EnvironmentOptions, MeasurementStore, SamplingOptions
from advisor.api.options import IndexOptions, Project, ProjectOptions, ResolutionOptions, TargetOptions, listed
from advisor.api.session import AdviceSession
from advisor.campaign.stack_lock import StackLocker
from advisor.index.client import IndexClient
from advisor.project.benchmark import benchmark_of, read_benchmark
from advisor.project.interface import parse_root
from advisor.project.metadata.copy import copy_files, list_files
from advisor.resolve.candidates.problem import Candidate
from knowledge.catalogue.fit import contradictions
from knowledge.catalogue.settings import code_of, shipped_settings
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, able_frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation, Scalar
from knowledge.hardware.detect import detect
from pi_runners.execution.benchmark import Benchmark
from pi_runners.execution.campaign import Block
from pi_runners.execution.environment import StackLock
from pi_runners.plan.matrix import Arm, expand_settings

_RUNS = 3


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """A benchmark with its stacks, to be measured while the copy of the project exists.

    Attributes:
        block: What is measured.
        client: The package indexes.
        copied_files: Number of files in the copy.
        copied_bytes: Their size in bytes.
    """

    block: Block
    client: IndexClient
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True, kw_only=True)
class MachineSetup:
    """A project, prepared for this machine.

    Attributes:
        context: The project; stacks of it have wheels only.
        client: The package indexes.
        locker: Locks stacks for environments.
        hardware: This machine.
        python: Interpreter: a path or a version.
    """

    context: TargetContext
    client: IndexClient
    locker: StackLocker
    hardware: HardwareProfile
    python: str


@dataclass(frozen=True, kw_only=True)
class BenchmarkSetup(MachineSetup):
    """A project with a benchmark, prepared for this machine while its copy exists.

    Attributes:
        benchmark: The benchmark, in the copy of the project.
        copied_files: Number of files in the copy.
        copied_bytes: Their size in bytes.
    """

    benchmark: Benchmark
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectStack:
    """A lock of the project, and the packages that its requirements name."""

    lock: StackLock
    packages: frozenset[str] = frozenset()


@contextmanager
def plan_benchmark(
    options: ProjectOptions,
    stacks: Sequence[str],
    *,
    sampling: SamplingOptions,
    python: str,
    name: str | None = None,
    settings: Mapping[str, Sequence[Scalar]] = MappingProxyType({}),
) -> Iterator[BenchmarkPlan]:
    """Copy a project, lock it for each stack, and plan the block of its benchmark.

    Args:
        options: The project, its indexes, and what the best stack is: each lock is the best stack that satisfies its
            requirements.
        stacks: Requirements of each stack, separated by spaces, in addition to the project's; without any, the
            recommended stack is compared with the baseline.
        sampling: How often the command is run.
        python: Interpreter: a path or a version.
        name: Name of a block to continue; by default a new one.
        settings: Values of each run-time setting; every stack is measured without and with each combination.

    Raises:
        InputError: If the project has no benchmark, the benchmark, a stack or a setting is wrong, a setting needs code
            in the program, or the stacks are equal and there are no settings.
        NoStackError: If the project cannot be resolved with the requirements of a stack.
        UnavailableError: If an index cannot be read.
    """
    combinations = ({}, *expand_settings(settings)) if settings else ({},)
    with open_benchmark(options, python) as setup:
        stacks_of_arms = _lock_stacks(setup, stacks, can_be_equal=len(combinations) > 1)
        arms = _plan_arms(stacks_of_arms, combinations, setup, control=sampling.controls)
        block = Block(
            name=name or block_name(arms),
            arms=arms,
            rounds=sampling.rounds,
            hardware=setup.hardware,
            samples=_RUNS if sampling.samples is None else sampling.samples,
            timeout_seconds=sampling.timeout_seconds,
            memory_limit_bytes=sampling.memory_limit_bytes,
            benchmark=setup.benchmark,
        )
        yield BenchmarkPlan(
            block=block, client=setup.client, copied_files=setup.copied_files, copied_bytes=setup.copied_bytes
        )


@contextmanager
def open_machine(options: ProjectOptions, python: str, *, is_remote: bool = False) -> Iterator[MachineSetup]:
    """Prepare a project for this machine; its indexes are open until the end of the block.

    Args:
        options: The project, its indexes, and what the best stack is.
        python: Interpreter: a path or a version.
        is_remote: Whether other machines look up the interpreter.

    Raises:
        InputError: If the project or an option is wrong, or there is no such interpreter.
    """
    directory, hardware = options.files.directory, detect()
    project = load_project(options.files, build=project_builder(options))
    with open_indexes(options.indexes, directory, project, [hardware]) as client:
        locker = StackLocker(client, hardware, is_remote=is_remote)
        target = locker.target(python)
        # The project's settings may describe another machine; it is measured on this one, with wheels.
        options = replace(
            options,
            target=TargetOptions(hardware="detect", python=str(target.python), platform=target.platform),
            resolution=replace(options.resolution, only_binary=(":all:",)),
        )
        context = prepare_target(options, project)
        yield MachineSetup(context=context, client=client, locker=locker, hardware=hardware, python=python)


@contextmanager
def open_benchmark(
    options: ProjectOptions, python: str, *, table: Mapping[str, Any] | None = None
) -> Iterator[BenchmarkSetup]:
    """Copy a project with a benchmark, and prepare it for this machine; the copy exists until the end of the block.

    For options and interpreter see :func:`open_machine`.

    Args:
        options: The project.
        python: Interpreter.
        table: Benchmark that the project could have; by default the one that it has.

    Raises:
        InputError: If the project has no benchmark, or the benchmark or an option is wrong.
    """
    directory = options.files.directory
    with open_machine(options, python) as machine, copied_benchmark(directory, table) as copy:
        benchmark, files, size = copy
        yield BenchmarkSetup(**vars(machine), benchmark=benchmark, copied_files=files, copied_bytes=size)


@contextmanager
def copied_benchmark(directory: Path, table: Mapping[str, Any] | None = None) -> Iterator[tuple[Benchmark, int, int]]:
    """Yield the benchmark of a project, or of a table, in a copy of it, with the number of copied files and bytes.

    Raises:
        InputError: If the project has no benchmark, or it is wrong.
    """
    benchmark = read_benchmark(directory) if table is None else benchmark_of(directory, table)
    with tempfile.TemporaryDirectory(prefix="advisor-benchmark-") as scratch:
        names, copy = list_files(directory), Path(scratch) / "project"
        size = copy_files(directory, names, copy)
        yield replace(benchmark, directory=copy), len(names), size


def lock_baseline(setup: BenchmarkSetup) -> StackLock:
    """Lock the baseline of a project, or, if it has none, the recommended stack.

    It is the first stack that a benchmark runs on without `--stack`.

    Raises:
        NoStackError: If the project cannot be resolved.
        UnavailableError: If an index cannot be read.
    """
    with open_predictor(setup.context, setup.client) as estimator:
        inputs = AdviceInputs(context=setup.context, client=setup.client, estimator=estimator)
        advice = AdviceSession(inputs).recommend()
    label = "baseline" if advice.baseline else "recommended"
    return setup.locker.lock_of(advice.baseline or advice.optimum.stack, [label], setup.python)


def measure_benchmark(
    project: Project = ".",
    stacks: Sequence[str] | str = (),
    *,
    sampling: SamplingOptions | None = None,
    environment: EnvironmentOptions | None = None,
    indexes: IndexOptions | None = None,
    resolution: ResolutionOptions | None = None,
) -> tuple[Observation, ...]:
    """Measure the benchmark of a project on this machine, and store the observations.

    The command in ``[tool.advisor.benchmark]`` of ``pyproject.toml`` runs in copies of the project; this executes the
    project's own code. The stacks take turns in rounds, as in :func:`measure`.

    Args:
        project: The project's directory, or its files.
        stacks: Requirements of each stack, separated by spaces: a stack is the project's lock that also satisfies
            them. The first is the reference. Without any, the baseline and the recommended stack are measured.
        sampling: Rounds, runs in each round, time limit of a run, memory limit.
        environment: Interpreter and environments.
        indexes: The package indexes.
        resolution: What the best stack is, and the knowledge base.

    Returns:
        The observations of the block, oldest first; failures are observations, too.

    Raises:
        InputError: If the project has no benchmark, or the benchmark or a stack is wrong (exit code 2).
        UnsatisfiableError: If the project cannot be resolved with the requirements of a stack (exit code 3).
        UnavailableError: If an index or the knowledge base is not available (exit code 4).
    """
    sampling, environment = sampling or SamplingOptions(), environment or EnvironmentOptions()
    if sampling.rounds < 1:
        raise InputError("there is nothing to measure", hint="request at least one round")
    options = ProjectOptions.of(project, None, indexes, resolution)
    store = MeasurementStore(knowledge=options.resolution.knowledge, cache_directory=options.indexes.cache_directory)
    with plan_benchmark(options, listed(stacks), sampling=sampling, python=environment.python) as plan:
        return run_block(plan.block, plan.client, environment=environment, store=store)


def _lock_stacks(setup: BenchmarkSetup, stacks: Sequence[str], *, can_be_equal: bool) -> list[_ProjectStack]:
    """Lock the project for each stack; without stacks, lock the baseline and the recommended stack.

    If these may be equal and are, the recommended stack alone is locked.
    """
    context, client, locker, python = setup.context, setup.client, setup.locker, setup.python
    with open_predictor(context, client) as estimator:
        if not stacks:
            advice = AdviceSession(AdviceInputs(context=context, client=client, estimator=estimator)).recommend()
            compared = [("baseline", advice.baseline), ("recommended", advice.optimum.stack)]
            if not advice.baseline or advice.baseline.versions == advice.optimum.stack.versions:
                if not can_be_equal:
                    raise _equal_stacks_error(advice.baseline)
                compared = compared[1:]
            packages = frozenset[str](root.name for root in context.problem.roots if not root.constraint)
            return [
                _ProjectStack(lock=locker.lock_of(stack, [label], python), packages=packages)
                for label, stack in compared
            ]
        locked = []
        for text in stacks:
            pinned, packages = _with_requirements(context, text)
            advice = AdviceSession(AdviceInputs(context=pinned, client=client, estimator=estimator)).recommend()
            lock = locker.lock_of(advice.optimum.stack, text.split(), python)
            locked.append(_ProjectStack(lock=lock, packages=packages))
    keys = [stack.lock.key for stack in locked]
    for number, stack in enumerate(locked):
        if stack.lock.key in keys[:number]:
            other = locked[keys.index(stack.lock.key)].lock.label
            raise InputError(
                f"`--stack '{other}'` and `--stack '{stack.lock.label}'` give the same lock of the project",
                hint="name stacks that differ; the first one is measured twice anyway (A/A control)",
            )
    return locked


def _with_requirements(context: TargetContext, text: str) -> tuple[TargetContext, frozenset[str]]:
    """Return a project that also has the requirements of a stack, and the names of these packages."""
    origin = f"--stack '{text}'"
    roots = tuple(parse_root(word, origin, Path()) for word in text.split())
    if not roots:
        raise InputError(f"`{origin}` contains no requirement", hint="write it as `--stack 'numpy==2.2.6'`")
    problem = replace(context.problem, roots=(*context.problem.roots, *roots))
    return replace(context, problem=problem), frozenset(root.name for root in roots)


def _equal_stacks_error(baseline: Sequence[Candidate]) -> InputError:
    """Return the error for a project with only one stack to measure."""
    return InputError(
        "the recommended stack is the baseline, so there is nothing to compare"
        if baseline
        else "the project has no baseline that the recommended stack could be compared with",
        hint="name stacks, such as `--stack 'numpy==1.26.4' --stack 'numpy==2.2.6'`, or settings, such as "
        "`--settings allocator=jemalloc`",
    )


def _compared_package(stacks: Sequence[_ProjectStack]) -> str:
    """Return the package that the ratios are evidence for, and that tables name the stacks by.

    It is one whose version differs between the stacks: a framework, if one differs, a library of arrays (NumPy) only if
    the stacks name it or nothing else differs; otherwise one that the stacks name.
    """
    versions = [{p.package.name: p.package.version for p in stack.lock.packages} for stack in stacks]
    common = set.intersection(*(set(listed) for listed in versions))
    differing = {name for name in common if len({listed[name] for listed in versions}) > 1}
    packages = frozenset[str]().union(*(stack.packages for stack in stacks))
    frameworks = {name for name, framework in FRAMEWORKS.items() if framework not in able_frameworks("arrays")}
    return min(differing or common, key=lambda name: (name not in frameworks, name not in packages, name))


def _plan_arms(
    stacks: Sequence[_ProjectStack],
    combinations: Sequence[Mapping[str, Scalar]],
    setup: BenchmarkSetup,
    *,
    control: bool,
) -> tuple[Arm, ...]:
    """Return the arms of the locks with each combination of settings; the first is the reference, and the control."""
    package, run = _compared_package(stacks), setup.benchmark.indicator_run(setup.hardware)
    arms: list[Arm] = []
    for stack in stacks:
        for settings in combinations:
            arm = Arm(
                number=len(arms),
                lock=stack.lock,
                framework=package,
                reference=not arms,
                indicators=(run,),
                settings=settings,
            )
            _check_settings(arm, setup.benchmark)
            arms.append(arm)
    if control:
        arms.append(replace(arms[0], number=len(arms), reference=False))
    return tuple(arms)


def _check_settings(arm: Arm, benchmark: Benchmark) -> None:
    """Refuse settings that contradict each other, that no framework of an arm has, or that need code in the program."""
    by_option = benchmark.options_of(arm.settings)
    if contradiction := next(iter(contradictions(arm.settings)), ""):
        raise InputError(contradiction, hint="measure them in separate blocks")
    for name, value in sorted(arm.settings.items()):
        setting = shipped_settings()[name]
        choices = [choice for backend in arm.program_backends if (choice := setting.choice(backend, value))]
        if not choices:
            raise InputError(
                f"no framework of the stack `{arm.lock.label}` has the setting `{name}={value}`",
                hint="`advisor pi settings` lists all settings and their frameworks",
            )
        if name not in by_option and not all(choice.is_measurable for choice in choices):
            code = [line for backend in arm.program_backends for line in code_of({name: value}, backend)]
            raise InputError(
                f"`{name}={value}` needs code in the program",
                hint="if the program has an option for it, name it in `[tool.advisor.benchmark]`, such as "
                f'`options = {{ "{name}={value}" = "--{name}" }}`; the code is `{"; ".join(code)}`',
            )
