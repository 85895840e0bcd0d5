"""Compare machines for a workload: the best stack on each, and predicted time, cost and energy."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from advisor.api.advice_inputs import open_targets
from advisor.api.answer_memory import AnswerMemory, RememberedAnswer
from advisor.api.context import TargetContext, load_project, prepare_target, project_builder, select_targets
from advisor.api.memory_check import MemoryNeed, MemoryQuestion, read_question
from advisor.api.options import (
    COST,
    ENERGY,
    REDUCED_PRECISION,
    TIME,
    ChoiceOptions,
    MemoryOptions,
    ProjectOptions,
)
from advisor.api.session import AdviceSession
from advisor.api.stores import open_readable_store
from advisor.api.targets import recommend_each
from advisor.domain.progress import activity
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
from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.identity import content_hash, plain
from knowledge.domain.ratio import Ratio
from knowledge.estimate.catalogue import parameters_of_task
from knowledge.estimate.machine_power import LEAST_MACHINES, PowerModel, metered_machines
from knowledge.estimate.machine_times import MachineSize, MachineTimes, PublishedTimes, ReferenceTime
from knowledge.estimate.model_cache import shipped_level_variances, shipped_ratio_variances, shipped_scaling_variances
from knowledge.estimate.scaling_model import ScalingModel
from knowledge.estimate.workloads import TASKS, Workload, find_workload, workload_catalogue
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, SHORT, TO_QUALITY, AcceleratorRow, load_rows
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.power_rows import power_rows
from knowledge.evidence.scaling_pairs import scaling_pairs
from knowledge.exchange.mlperf.results import POWER
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator, model_of
from knowledge.hardware.prices import MachinePrice, PriceList, read_prices
from knowledge.hardware.profiles import find_profile
from knowledge.hardware.shipped_machines import cloud_instances, shipped_machines
from knowledge.store.state_hash import state_hash

_HOUR = 3600.0
_EQUAL = 1e-9
"""Difference of two ratios that is an error of rounding."""
_JOULES = 3.6e6
"""Joules of a kilowatt-hour."""
MOST_NODES = 10_000
"""Largest number of machines; the largest published training has 11 616 accelerators."""
_LEAST_BYTES = 2
"""Bytes of a weight in 16 bits: a training needs gradients, states and activations, too."""
_NOT_IN_REGIME = {
    DEFAULT: "nothing is published in float32 or TF32; `--allow reduced-precision` takes the times of 16 bits",
    SHORT: "nothing is published in mixed precision or 16 bits",
}
Task = tuple[str, str]
"""A whole model, and its mode: ``training`` or ``inference``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOnMachine:
    """A framework of the best stack of a machine.

    Attributes:
        framework: Its distribution.
        version: Its version.
        build: Its build; ``None`` if the catalogue does not know builds of it.
        settings: Recommended run-time settings, as ``name=value``.
    """

    framework: str
    version: str
    build: Build | None
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChoice:
    """One of the compared machines.

    Attributes:
        name: Name of its hardware profile.
        hardware: The profile.
        model: Entry of its accelerators in the catalogue; ``None`` without one.
        nodes: Number of such machines that work together.
        stack: The frameworks of the best stack; empty without a project.
        obstacle: Why it cannot run the workload, or may not be chosen; empty if it can.
        unknown: Why its time is not known; empty if it is known.
        place: Its place in the predicted times; ``None`` if its time is not known.
        seconds: Time of the items in seconds; if nobody published how long one takes, relative to the reference
            accelerator of the times. ``None`` if it is not known.
        price: What an hour costs; ``None`` if the price is not known.
        cost: Cost of the items in units of the currency, or as relative as the time; ``None`` if time or price are not
            known.
        power: What it takes from the wall while its accelerators are busy in watts, all nodes together; ``None`` if it
            is not known.
        energy: Energy of the items in joules, or as relative as the time; ``None`` if time or power are not known.
        rows: Number of published times of its accelerator at the workload.
        need: What the model needs of the memory of each accelerator; ``None`` if no option asks for it.
        beyond: That nobody published a training on so few or so many accelerators; empty if somebody did.
    """

    name: str
    hardware: HardwareProfile
    model: AcceleratorModel | None
    nodes: int
    stack: tuple[StackOnMachine, ...] = ()
    obstacle: str = ""
    unknown: str = ""
    place: int | None = None
    seconds: Ratio | None = None
    price: MachinePrice | None = None
    cost: Ratio | None = None
    power: Ratio | None = None
    energy: Ratio | None = None
    rows: int = 0
    need: MemoryNeed | None = None
    beyond: str = ""

    @property
    def accelerators(self) -> Accelerator | None:
        """Its accelerators; ``None`` without any."""
        return self.hardware.accelerators[0] if self.hardware.accelerators else None

    def amount(self, objective: str) -> Ratio | None:
        """Return what the machine needs of time, money or energy; ``None`` if it is not known."""
        return {TIME: self.seconds, COST: self.cost, ENERGY: self.energy}[objective]

    @property
    def rated_watts(self) -> float | None:
        """Power limit of all its accelerators in watts, all nodes together; ``None`` if it is not known."""
        if self.model is None or self.model.watts is None or self.accelerators is None:
            return None
        return self.model.watts * self.accelerators.count * self.nodes

    @property
    def energy_bound(self) -> float | None:
        """Most that its accelerators alone can need for the items in joules, by the upper end of the time.

        ``None`` if it is not known.
        """
        return None if self.seconds is None or self.rated_watts is None else self.seconds.high * self.rated_watts


@dataclass(frozen=True, kw_only=True)
class HardwareChoice:
    """Machines, compared for a workload.

    Attributes:
        workload: Name of the workload.
        items: Number of items that times and costs are for.
        objective: What the machines are ranked by: ``time``, ``cost`` or ``energy``.
        ranked: Machines whose amount of the objective is known, the smallest first.
        unranked: Other machines that can run the workload.
        impossible: Machines that cannot, or may not be chosen.
        times: The predicted times; ``None`` if nothing is published for the workload.
        prices: The prices that were read.
        spot: Whether the costs are those of spot instances.
        budget: Largest cost; ``None`` for no limit.
        carbon_intensity: Grams of CO2 for a kilowatt-hour; ``None`` if the user states none.
        metered: Number of published machines that powers rest on.
        untuned: Number of these whose limits of power were not lowered.
        has_project: Whether there is a project, whose stacks are compared.
        question: What must fit into the memory; ``None`` if no option asks for it.
    """

    workload: str
    items: float
    objective: str
    ranked: tuple[MachineChoice, ...]
    unranked: tuple[MachineChoice, ...]
    impossible: tuple[MachineChoice, ...]
    times: MachineTimes | None
    prices: PriceList
    spot: bool = False
    budget: float | None = None
    carbon_intensity: float | None = None
    metered: int = 0
    untuned: int = 0
    has_project: bool = False
    question: MemoryQuestion | None = None

    @property
    def level(self) -> ReferenceTime | None:
        """The published time that all times are based on."""
        return self.times.level if self.times is not None else None

    def emissions(self, energy: Ratio) -> Ratio:
        """Return the grams of CO2 of an energy in joules, which needs the intensity."""
        assert self.carbon_intensity is not None
        return energy.times(_exactly(self.carbon_intensity / _JOULES))

    def advantage(self, one: MachineChoice, other: MachineChoice, objective: str = "") -> Ratio | None:
        """Return how many times less one machine needs than another one; ``None`` if it is not known.

        It is less uncertain than the two amounts, whose errors are largely the same.
        """
        objective = objective or self.objective
        if self.times is None or one.place is None or other.place is None:
            return None
        ratio = self.times.speedup(one.place, other.place)
        if objective == TIME:
            return ratio
        if objective == ENERGY:
            return None if one.power is None or other.power is None else ratio.times(_power_ratio(other, one))
        prices = [machine.price.hourly(spot=self.spot) if machine.price else None for machine in (one, other)]
        if prices[0] is None or prices[1] is None or not all(prices):
            return None
        return ratio.times(_exactly(prices[1] * other.nodes / (prices[0] * one.nodes)))

    def is_better(self, one: MachineChoice, other: MachineChoice, objective: str = "") -> bool:
        """Whether one machine certainly needs less than another one: beyond the interval of their ratio."""
        ratio = self.advantage(one, other, objective)
        return ratio is not None and ratio.low > 1

    @property
    def axes(self) -> tuple[str, ...]:
        """The amounts that are compared: time, and cost if prices are known, else energy; and the objective."""
        second = COST if any(machine.cost is not None for machine in self.ranked) else ENERGY
        return tuple(dict.fromkeys((TIME, second, self.objective)))

    def is_dominated(self, machine: MachineChoice) -> bool:
        """Whether another machine is certainly better in one of :attr:`axes`, and certainly not worse in another."""
        return any(self._dominates(other, machine) for other in self.ranked if other is not machine)

    def _dominates(self, one: MachineChoice, other: MachineChoice) -> bool:
        ratios = [ratio for name in self.axes if (ratio := self.advantage(one, other, name)) is not None]
        return all(ratio.low > 1 - _EQUAL for ratio in ratios) and any(ratio.low > 1 + _EQUAL for ratio in ratios)


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
    published = _LazyTimes(readable_address(options.resolution.knowledge))
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
    timed, machines = _timed(machines, published, memo, tasks, regime)
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


class _LazyTimes:
    """What a knowledge base says about times of accelerators, read when it is needed."""

    def __init__(self, address: str) -> None:
        self._address = address

    @cached_property
    def state(self) -> str:
        """Hash of the content of the knowledge base."""
        return state_hash(self._address) or content_hash([asdict(row) for row in self.rows])

    @cached_property
    def rows(self) -> tuple[AcceleratorRow, ...]:
        with activity("reading published times"), open_readable_store(self._address) as store:
            return load_rows(store)

    @cached_property
    def times(self) -> PublishedTimes:
        return PublishedTimes(
            rows=self.rows,
            pairs=accelerator_pairs(self.rows),
            scaling=ScalingModel(scaling_pairs(self.rows), shipped_scaling_variances()),
            variances=shipped_ratio_variances(),
            levels=shipped_level_variances(),
        )

    @cached_property
    def powers(self) -> PowerModel | None:
        """The model of powers; ``None`` if too few machines were published."""
        with open_readable_store(self._address) as store:
            machines = metered_machines(power_rows(store.observations(indicator=POWER)))
        return PowerModel(machines) if len(machines) >= LEAST_MACHINES else None


def _contexts(
    options: ProjectOptions, choice: ChoiceOptions, prices: PriceList, published: _LazyTimes
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


def _trained_task(workload: Workload, published: _LazyTimes) -> list[Task]:
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


def _compared_accelerators(published: _LazyTimes, workload: Workload) -> list[str]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """What is predicted for machines.

    Attributes:
        times: The predicted times of those with an empty reason.
        reasons: For each machine why its time is not known; empty if it is known.
        powers: Power of each machine in watts, all nodes together; ``None`` if it is not known.
        metered: Number of published machines that the powers rest on.
        untuned: Number of these whose limits of power were not lowered.
    """

    times: MachineTimes | None
    reasons: tuple[str, ...]
    powers: tuple[Ratio | None, ...]
    metered: int
    untuned: int


def _timed(
    machines: Sequence[MachineChoice], published: _LazyTimes, memo: Memo, tasks: Sequence[Task], regime: str
) -> tuple[_Timed, list[MachineChoice]]:
    """Return what is predicted, and the machines with their place in it, or the reason why it is not known."""
    facts = [(machine.hardware.accelerators, machine.nodes) for machine in machines]
    record = memo.answer(
        [published.state, facts, tasks, regime, ENERGY], lambda: encoded(_predicted(machines, published, tasks, regime))
    )
    timed = decoded(_Timed, record)
    places = itertools.count()
    results = []
    for machine, reason, power in zip(machines, timed.reasons, timed.powers, strict=True):
        machine = replace(machine, power=power)
        if reason or timed.times is None:
            results.append(replace(machine, unknown=reason or _NOT_IN_REGIME[regime]))
        else:
            place = next(places)
            results.append(replace(machine, place=place, rows=timed.times.direct[place]))
    return timed, results


def _predicted(machines: Sequence[MachineChoice], published: _LazyTimes, tasks: Sequence[Task], regime: str) -> _Timed:
    compared = {(*task, regime) for task in tasks}
    every = {pair.accelerator for pair in published.times.pairs if (pair.task, pair.mode, pair.regime) in compared}
    rows = (row for row in published.rows if (row.task, row.mode, row.regime_of_batch) in compared)
    every |= {row.accelerator for row in rows}
    every = every or {pair.accelerator for pair in published.times.pairs if (pair.task, pair.mode) in set(tasks)}
    vendors = {model.vendor for name in every if (model := find_accelerator(name)) is not None}
    reasons = tuple(_unknown_reason(machine, vendors) for machine in machines)
    sizes = [_as_machine(machine) for machine, reason in zip(machines, reasons, strict=True) if not reason]
    with activity("predicting times"):
        times = published.times.predict(sizes, tasks=tasks, regime=regime) if sizes else None
    metered = published.powers
    powers = tuple(_power(machine, metered) if metered is not None else None for machine in machines)
    return _Timed(
        times=times,
        reasons=reasons,
        powers=powers,
        metered=len(metered.machines) if metered else 0,
        untuned=metered.untuned if metered else 0,
    )


def _power(machine: MachineChoice, powers: PowerModel) -> Ratio | None:
    """Return the power of a machine in watts, all nodes together; ``None`` without published ones of its vendor."""
    rated, model = machine.rated_watts, machine.model
    vendors = {entry.vendor for m in powers.machines if (entry := find_accelerator(m.accelerator)) is not None}
    if rated is None or model is None or model.vendor not in vendors or model.kind == "embedded":
        return None
    return powers.predict(rated / machine.nodes).times(_exactly(machine.nodes))


def _unknown_reason(machine: MachineChoice, vendors: Collection[str]) -> str:
    """Return why the time of a machine is not known; empty if it is known."""
    accelerators, model = machine.accelerators, machine.model
    if not vendors:
        return "nobody published times of this workload on accelerators"
    if accelerators is None:
        return "nobody published times of this workload on processors"
    if len(machine.hardware.accelerators) > 1 or accelerators.partition:
        return "it has different accelerators, or parts of one"
    if model is None or not features_of(model):
        return f"the catalogue does not state the rates of {accelerators.model}"
    if model.vendor not in vendors:
        return f"nobody published times of this workload on accelerators of the vendor {model.vendor}"
    return ""


def _as_machine(machine: MachineChoice) -> MachineSize:
    assert machine.model is not None
    assert machine.accelerators is not None
    return MachineSize(accelerator=machine.model.name, count=machine.accelerators.count, nodes=machine.nodes)


def _priced(
    machine: MachineChoice, choice: ChoiceOptions, prices: PriceList, times: MachineTimes | None
) -> MachineChoice:
    """Return a machine with its time, price, cost and energy, as far as they are known."""
    price = prices.cheapest(machine.hardware.name, spot=choice.spot, region=choice.region)
    price = price or prices.cheapest(machine.name, spot=choice.spot, region=choice.region)
    seconds = times.item(machine.place) if times is not None and machine.place is not None else None
    if seconds is not None and times is not None and times.level is not None:
        seconds = seconds.times(_exactly(choice.number))
    hourly = price.hourly(spot=choice.spot) if price is not None else None
    cost = seconds.times(_exactly(hourly * machine.nodes / _HOUR)) if seconds is not None and hourly else None
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


def _power_ratio(one: MachineChoice, other: MachineChoice) -> Ratio:
    """Return the power of a machine divided by that of another one; machines of one kind differ in nothing."""
    assert one.power is not None
    assert other.power is not None
    if one.accelerators == other.accelerators:
        return _exactly(one.nodes / other.nodes)
    return one.power.over(other.power)


def _exactly(value: float) -> Ratio:
    return Ratio(mean=math.log(value), variance=0.0)
