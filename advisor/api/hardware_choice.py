"""Compare machines for a workload: the best stack on each, and predicted time, cost and energy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from advisor.api.advice_inputs import open_targets
from advisor.api.answer_memory import AnswerMemory, RememberedAnswer
from advisor.api.context import TargetContext, load_project, prepare_target, project_builder, select_targets
from advisor.api.machine_choice import HardwareChoice, MachineChoice, StackOnMachine
from advisor.api.machine_predictions import LazyTimes, Task, with_predictions
from advisor.api.memory_check import MemoryQuestion, read_question
from advisor.api.options import COST, REDUCED_PRECISION, TIME, ChoiceOptions, MemoryOptions, ProjectOptions
from advisor.api.session import AdviceSession
from advisor.api.targets import recommend_each
from advisor.domain.words import memory_text, quoted
from advisor.index.cache import DiskCache
from advisor.index.memo import Memo
from advisor.project.interface import NoRequirementsError
from advisor.resolve.candidates.problem import NoStackError
from advisor.user_directories import cache_directory, readable_address
from knowledge.catalogue.builds import Build
from knowledge.domain.codec import decoded, encoded
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.frameworks import FRAMEWORKS, able_frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.identity import content_hash, plain
from knowledge.domain.ratio import exactly
from knowledge.estimate.catalogue import parameters_of_task
from knowledge.estimate.machine_times import MachineTimes
from knowledge.estimate.workloads import TASKS, Workload, find_workload, workload_catalogue
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, SHORT, TO_QUALITY, AcceleratorRow
from knowledge.hardware.accelerators import model_of
from knowledge.hardware.prices import PriceList, read_prices
from knowledge.hardware.profiles import find_profile
from knowledge.hardware.shipped_machines import cloud_instances, shipped_machines

_HOUR = 3600.0
MOST_NODES = 10_000
"""Largest number of machines; the largest published training has 11 616 accelerators."""
_LEAST_BYTES = 2
"""Bytes of a weight in 16 bits: a training needs gradients, states and activations, too."""


def choose_hardware(
    options: ProjectOptions, choice: ChoiceOptions, memory: MemoryOptions | None = None
) -> HardwareChoice:
    """Compare machines for a workload.

    If the directory has no project, stacks are not compared, and the workload must be selected.

    Args:
        options: The project, whose targets are the machines if nothing else names them, and the workload.
        choice: Which machines are compared, and by what.
        memory: What must fit into their memory.

    Raises:
        InputError: If a file or an option is wrong, or no workload is selected (exit code 2).
        UnavailableError: If an index or the knowledge base cannot be read (exit code 4).
    """
    prices = read_prices(choice.prices, date=choice.price_date)
    _check(choice)
    _check_prices(choice, prices)
    memo = Memo(DiskCache(cache_directory(options.indexes.cache_directory) / "index"), "machine times")
    published = LazyTimes(readable_address(options.resolution.knowledge))
    contexts, workload = _contexts(options, choice, prices, published)
    allowed = {word for context in contexts.values() if context is not None for word in context.options.allow}
    regime = SHORT if REDUCED_PRECISION in allowed.union(options.resolution.allow) else DEFAULT
    # Submitters to MLPerf choose the precision, and train in a shorter one.
    is_reduced = regime == SHORT or choice.to_quality
    question = read_question(memory or MemoryOptions(), workload, is_reduced=is_reduced)
    stacks = _stacks(options, contexts)
    machines = [
        _machine(name, context.target.hardware if context else find_profile(name), choice, stacks.get(name, ()))
        for name, context in contexts.items()
    ]
    if question is not None:
        machines = [_with_need(machine, question) for machine in machines]
    tasks = _tasks(workload)
    if choice.to_quality:
        tasks, regime = _trained_task(workload, published), MLPERF
        machines = [_for_training(machine, tasks[0], published.rows) for machine in machines]
    timed, machines = with_predictions(machines, published, memo, tasks, regime)
    times = timed.times
    if choice.budget is not None and (times is None or times.level is None):
        raise InputError(
            f"`--budget` needs the time of an item, and it is not known for workload `{workload.name}`",
            hint="compare the machines without a budget: costs are relative then",
        )
    priced = [_priced(machine, choice, prices, times) for machine in machines]
    compared = _ranked(priced, workload, choice, prices, times)
    has_project = any(context is not None for context in contexts.values())
    compared = replace(compared, metered=timed.metered, untuned=timed.untuned)
    return replace(compared, question=question, has_project=has_project)


def _check(choice: ChoiceOptions) -> None:
    """Check that the options do not contradict each other.

    Raises:
        InputError: At the first one that does.
    """
    needing = {
        "--budget": choice.budget is not None,
        "--spot": choice.spot,
        "--region": choice.region is not None,
        "--price-date": choice.price_date is not None,
        "--objective cost": choice.objective == COST,
    }
    if choice.nodes > MOST_NODES:
        raise InputError(f"`--nodes {choice.nodes}` is more than {MOST_NODES} machines")
    for name, is_present in needing.items():
        if is_present and not choice.prices:
            raise InputError(f"`{name}` needs prices", hint="name a file of prices: `--prices FILE`")


def _check_prices(choice: ChoiceOptions, prices: PriceList) -> None:
    """Check that the files have a price of the kind and the region that the options name.

    Raises:
        InputError: If there is none.
    """
    if not choice.prices:
        return
    every = [price for listed in prices.prices.values() for price in listed]
    regions = sorted({price.region for price in every})
    if not every:
        raise InputError("the files have no price of a machine that this program knows")
    if choice.region is not None and choice.region not in regions:
        raise InputError(f"the files have no price of region `{choice.region}`", hint=f"there is {quoted(regions, 8)}")
    if all(price.hourly(spot=choice.spot) is None for price in every):
        kind = "spot instances" if choice.spot else "machines on demand"
        raise InputError(f"the files have no price of {kind}", hint="take the prices without or with `--spot`")


def _contexts(
    options: ProjectOptions, choice: ChoiceOptions, prices: PriceList, published: LazyTimes
) -> tuple[dict[str, TargetContext | None], Workload]:
    """Return the compared machines, each with the project for it if there is one, and the workload."""
    try:
        project = load_project(options.files, build=project_builder(options))
    except NoRequirementsError:
        if options.resolution.workload is None:
            raise
        workload = find_workload(options.resolution.workload)
        return dict.fromkeys(_names(choice, prices) or _compared_accelerators(published, workload)), workload
    targets = list(select_targets(options.target, project))
    if choice.machines or not project.settings.get("targets"):
        names = _names(choice, prices)
        if not names:
            names = _compared_accelerators(published, _workload(prepare_target(options, project)))
        targets = [(name, {"hardware": name}) for name in names]
    contexts = {name: prepare_target(options, project, (name, table)) for name, table in targets}
    names = sorted({context.workload or "" for context in contexts.values()} - {""})
    if len(names) > 1:
        raise InputError(
            f"the targets have several workloads: {quoted(names)}", hint="name one with `--workload` to compare them"
        )
    return dict(contexts), _workload(next(iter(contexts.values())))


def _names(choice: ChoiceOptions, prices: PriceList) -> list[str]:
    """Return the machines that the user names, else those with a price; each once, however it is spelled."""
    names: dict[str, str] = {}
    for name in choice.machines or prices.prices:
        profile = find_profile(name)
        is_instance = profile.name in cloud_instances()
        names.setdefault(profile.name if is_instance else profile.identity, name)
    return list(names.values())


def _workload(context: TargetContext) -> Workload:
    """Return the selected workload, else the one that the project's profile or its sources suggest."""
    workload = context.find_workload()
    if workload is None:
        listed = quoted([name for name, w in workload_catalogue().items() if TASKS in w.parts], 4)
        raise InputError(
            "no workload is selected, and the sources of the project suggest none",
            hint=f"add `--workload`, such as {listed}",
        )
    return workload


def _tasks(workload: Workload) -> list[Task]:
    return [(part.parameters["task"], part.parameters["mode"]) for part in workload.parts.get(TASKS, ())]


def _trained_task(workload: Workload, published: LazyTimes) -> list[Task]:
    """Return the first task of a workload that was trained to a quality.

    Raises:
        InputError: If there is none.
    """
    trained = {(row.task, row.mode) for row in published.rows if row.unit == TO_QUALITY}
    tasks = [task for task in _tasks(workload) if task in trained]
    if not tasks:
        every = workload_catalogue().values()
        names = [one.name for one in every if trained.intersection(_tasks(one)) and not one.is_kind]
        raise InputError(
            f"no training of workload `{workload.name}` to a quality is published",
            hint=f"MLPerf has models of {quoted(names, 8)}",
        )
    return tasks[:1]


def _compared_accelerators(published: LazyTimes, workload: Workload) -> list[str]:
    """Return the machines whose accelerators were compared at the workload, sorted."""
    tasks = set(_tasks(workload))
    models = {row.accelerator for row in published.rows if (row.task, row.mode) in tasks}
    # Short names stand for one of these machines.
    names = [name for name, machine in shipped_machines().items() if machine.model and machine.model.name == name]
    names = [name for name in names if name in models]
    if not names:
        raise InputError(
            f"no machine is named, and nothing is published for workload `{workload.name}`",
            hint="name machines with `--hardware NAME`, or files of prices with `--prices FILE`",
        )
    return names


def _stacks(
    options: ProjectOptions, contexts: Mapping[str, TargetContext | None]
) -> dict[str, tuple[StackOnMachine, ...] | AdvisorError]:
    """Return the frameworks of the best stack of each machine, or why there is none."""
    groups: dict[str, list[str]] = {}
    for name, context in contexts.items():
        if context is not None:
            groups.setdefault(_of_one_stack(context), []).append(name)
    first = [context for names in groups.values() if (context := contexts[names[0]]) is not None]
    if not first:
        return {}
    stacks: dict[str, tuple[StackOnMachine, ...] | AdvisorError] = {}
    with open_targets(options, first) as every:
        memories = [AnswerMemory(inputs, format="hardware choice", outputs=()) for inputs in every]
        answers = [memory.recall() for memory in memories]
        unsolved = [AdviceSession(inputs) for inputs, answer in zip(every, answers, strict=True) if answer is None]
        recommended = recommend_each(unsolved, reads_sizes=False) if unsolved else iter(())
        for names, memory, answer in zip(groups.values(), memories, answers, strict=True):
            answer = answer or _solved(*next(recommended), memory, names[0])
            stack = answer.conflict or decoded(tuple[StackOnMachine, ...], json.loads(answer.report))
            stacks |= dict.fromkeys(names, stack)
    return stacks


def _solved(session: AdviceSession, error: AdvisorError | None, memory: AnswerMemory, machine: str) -> RememberedAnswer:
    """Return the answer to the question for the best stack of a machine, and remember it.

    Raises:
        AdvisorError: If the question could not be answered.
    """
    if isinstance(error, NoStackError):
        memory.store_conflict(error)
        return RememberedAnswer(conflict=error)
    if error is not None:
        error.message = f"machine `{machine}`: {error.message}"
        raise error
    answer = RememberedAnswer(report=json.dumps(encoded(_frameworks(session))))
    optimum = session.solved().optimum
    if not (optimum.stopped or optimum.not_compared):
        memory.store(answer, session.loaded_packages, is_final=not session.inputs.client.failed_builds)
    return answer


def _of_one_stack(context: TargetContext) -> str:
    """Return what decides about the stack of a machine: everything but its name, and the size of one with a GPU."""
    hardware = context.target.hardware
    if hardware.gpu is not None:
        sizeless = replace(hardware.cpu, model="", sockets=None, cores=None, threads=None)
        gpus = tuple(replace(a, count=1, interconnect="", numa_nodes=()) for a in hardware.accelerators)
        hardware = replace(hardware, cpu=sizeless, memory_bytes=None, numa_nodes=None, accelerators=gpus)
    return content_hash(
        plain([hardware.identity, context.target.python, context.target.platform, context.workload, context.criteria])
    )


def _frameworks(session: AdviceSession) -> tuple[StackOnMachine, ...]:
    score = session.solved().request.score
    settings = [s for s in session.settings() if s.status == "recommended"]
    return tuple(
        StackOnMachine(
            framework=candidate.name,
            version=str(candidate.version),
            build=score.builds.build_of(candidate.name, candidate.version),
            settings=tuple(f"{s.name}={s.value}" for s in settings if s.package == candidate.name),
        )
        for candidate in session.solved().stack
        if candidate.name in FRAMEWORKS and FRAMEWORKS[candidate.name] not in able_frameworks("arrays")
    )


def _machine(
    name: str, hardware: HardwareProfile, choice: ChoiceOptions, stack: tuple[StackOnMachine, ...] | AdvisorError
) -> MachineChoice:
    """Return a machine with its stack, or why it cannot run one."""
    accelerators = hardware.accelerators[0] if hardware.accelerators else None
    obstacle = ""
    if isinstance(stack, AdvisorError):
        obstacle = f"{stack.message}{f' ({stack.hint})' if stack.hint else ''}"
    memory = accelerators.memory_bytes if accelerators else hardware.memory_bytes
    if not obstacle and accelerators and not isinstance(stack, AdvisorError) and _leaves_idle(stack, hardware):
        obstacle = f"the best stack has no build for its accelerator: {', '.join(map(str, _builds(stack)))}"
    if not obstacle and choice.min_memory is not None and (memory is None or memory < choice.min_memory):
        has = f"it has {memory_text(memory)}" if memory else "its memory is not known"
        obstacle = f"needs {memory_text(choice.min_memory)} of memory; {has}"
    return MachineChoice(
        name=name,
        hardware=hardware,
        model=model_of(accelerators) if accelerators else None,
        nodes=choice.nodes,
        stack=() if isinstance(stack, AdvisorError) else stack,
        obstacle=obstacle,
    )


def _with_need(machine: MachineChoice, question: MemoryQuestion) -> MachineChoice:
    """Return a machine with what the model needs of its memory, and with an obstacle if it does not fit."""
    need = question.need(machine.hardware.accelerators, machine.nodes)
    return replace(machine, need=need, obstacle=machine.obstacle or (need.obstacle if need else ""))


def _for_training(machine: MachineChoice, task: Task, rows: Iterable[AcceleratorRow]) -> MachineChoice:
    """Return a machine for a training to a quality, with an obstacle if its accelerators cannot hold the weights."""
    accelerators = machine.accelerators
    if accelerators is None:
        return machine
    number = accelerators.count * machine.nodes
    parameters, memory = parameters_of_task(task[0]), accelerators.memory_bytes
    least = math.ceil(parameters * _LEAST_BYTES) if parameters is not None else 0
    if not machine.obstacle and memory is not None and memory * number < least:
        reason = (
            f"the weights of `{task[0]}` need {memory_text(least)} in 16 bits; all its accelerators together have "
            f"{memory_text(memory * number)}"
        )
        return replace(machine, obstacle=reason)
    counts = [row.count for row in rows if (row.task, row.mode, row.unit) == (*task, TO_QUALITY)]
    if min(counts) <= number <= max(counts):
        return machine
    return replace(
        machine, beyond=f"beyond the published trainings, of {min(counts):,} to {max(counts):,} accelerators"
    )


def _builds(stack: Sequence[StackOnMachine]) -> list[Build]:
    return [one.build for one in stack if one.build is not None]


def _leaves_idle(stack: Sequence[StackOnMachine], hardware: HardwareProfile) -> bool:
    """Whether no framework of a stack has a build for the accelerators of a machine; false if no build is known."""
    builds = _builds(stack)
    return bool(builds) and all(build.runtime == "cpu" or not build.has_device_on(hardware) for build in builds)


def _priced(
    machine: MachineChoice, choice: ChoiceOptions, prices: PriceList, times: MachineTimes | None
) -> MachineChoice:
    """Return a machine with its time, price, cost and energy, as far as they are known."""
    price = prices.cheapest(machine.hardware.name, spot=choice.spot, region=choice.region)
    price = price or prices.cheapest(machine.name, spot=choice.spot, region=choice.region)
    seconds = times.item(machine.place) if times is not None and machine.place is not None else None
    if seconds is not None and times is not None and times.level is not None:
        seconds = seconds.times(exactly(choice.number))
    hourly = price.hourly(spot=choice.spot) if price is not None else None
    cost = seconds.times(exactly(hourly * machine.nodes / _HOUR)) if seconds is not None and hourly else None
    energy = seconds.times(machine.power) if seconds is not None and machine.power is not None else None
    obstacle = machine.obstacle
    least = cost.low if cost is not None else 0.0
    if not obstacle and choice.budget is not None and least > choice.budget:
        obstacle = f"costs at least {least:.3g} {prices.currency}, more than the budget of {choice.budget:g}"
    return replace(machine, seconds=seconds, price=price, cost=cost, energy=energy, obstacle=obstacle)


def _ranked(
    machines: Iterable[MachineChoice],
    workload: Workload,
    choice: ChoiceOptions,
    prices: PriceList,
    times: MachineTimes | None,
) -> HardwareChoice:
    objective = choice.objective or (COST if choice.prices else TIME)
    possible = [machine for machine in machines if not machine.obstacle]
    amounts = [(amount, machine) for machine in possible if (amount := machine.amount(objective)) is not None]
    ranked = [machine for _, machine in sorted(amounts, key=lambda pair: (pair[0].mean, pair[1].name))]
    return HardwareChoice(
        workload=workload.name,
        items=choice.number,
        objective=objective,
        ranked=tuple(ranked),
        unranked=tuple(machine for machine in possible if machine not in ranked),
        impossible=tuple(machine for machine in machines if machine.obstacle),
        times=times,
        prices=prices,
        spot=choice.spot,
        budget=choice.budget,
        carbon_intensity=choice.carbon_intensity,
    )
