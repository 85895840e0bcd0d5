"""Cases of a workload: programs that stand for it, at the sizes that its users have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.gain_terms import OWN as OWN_PROGRAM
from knowledge.estimate.gain_terms import Blend
from knowledge.estimate.programs import (
    PROGRAMS,
    Program,
    architecture_of_shares,
    program_of_model,
    program_of_run,
    shares_of_kinds,
    sizes_of,
    with_groups,
)
from knowledge.estimate.workloads import (
    INDICATOR,
    MODELS,
    OPERATIONS,
    OWN,
    PROFILE,
    STEPS,
    TASKS,
    UNATTRIBUTED,
    Workload,
)
from knowledge.evidence.contrasts import Contrast, Machine
from knowledge.evidence.timm import timm_tables

_BATCHES = {"small": 1, "medium": 32, "large": 256}
"""Batch sizes of models of timm, by the name of the size: a judgement."""
_UNKNOWN_SIZES = {"small": 1e9, "medium": 3e10, "large": 1e12}
"""Floating-point operations of a step of a profiled program whose trace does not contain them: a judgement."""
AS_MEASURED = "measured"
"""Name of the sizes that the user measured of a workload's models on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Programs of which one is the user's, as far as is known: all of them are equally likely.

    Attributes:
        workload: Name of the workload.
        basis: List of the workload's parts that the programs come from.
        size: Name of the size, if the workload has several.
        programs: The programs.
    """

    workload: str
    basis: str
    programs: tuple[Blend, ...]
    size: str = ""

    def __hash__(self) -> int:
        """Cases are keys of many tables, and differ in few other things."""
        return hash((self.workload, self.basis, self.size))

    @property
    def flops(self) -> float:
        """Geometric mean of the floating-point operations of a step; 0 if they are unknown."""
        every = [program.flops for blend in self.programs for _, program in blend]
        return math.exp(sum(map(math.log, every)) / len(every)) if all(value > 0 for value in every) else 0.0


def cases_of(workload: Workload, contrasts: Sequence[Contrast], machine: Machine, own: Collection[str]) -> list[Case]:
    """Return the cases of a workload, the smallest size first; ``None`` if nothing that was measured stands for it.

    Args:
        workload: The workload.
        contrasts: Measured ratios of one framework on one kind of device.
        machine: The machine that predictions are for.
        own: Names of the blocks that do not ship with the program.
    """
    listed = [c for c in contrasts if not workload.backends or c.backend in workload.backends]
    families = {c.family for c in listed}
    for basis in workload.parts:
        if basis == PROFILE and families & {*PROGRAMS, PUBLISHED}:
            return _of_profile(workload)
        if basis == MODELS and families & set(PROGRAMS):
            return _of_models(workload)
        if basis == TASKS and workload.timm_model and listed:
            return _of_timm(workload, listed, machine)
        if basis == TASKS and (tasks := _tasks_of(workload, listed)):
            return [Case(workload=workload.name, basis=TASKS, programs=tuple(((1.0, task),) for task in tasks))]
        if basis in (STEPS, OPERATIONS, INDICATOR, PROFILE) and (blend := _operations(workload, basis, listed, own)):
            return [Case(workload=workload.name, basis=basis, programs=(blend,))]
    return []


def own_ratios(contrasts: Iterable[Contrast], machine: Machine, own: Collection[str]) -> list[Contrast]:
    """Return the ratios that the user measured at programs on a machine.

    Args:
        contrasts: Measured ratios.
        machine: The machine.
        own: Names of the blocks that do not ship with the program.
    """
    return [c for c in contrasts if c.block in own and c.machine.identity == machine.identity and c.family in PROGRAMS]


def is_program(c: Contrast) -> bool:
    """Whether a ratio was measured at a whole program, or published."""
    return c.family in PROGRAMS or c.family == PUBLISHED


def case_of_benchmark(contrasts: Sequence[Contrast], otherwise: Iterable[Case]) -> tuple[Case, Program]:
    """Return the case of a project's own benchmark, and its program.

    It is a program of its own, at the usual size of the workload that it is said to be.

    Args:
        contrasts: Its measured ratios.
        otherwise: Cases of this workload; ``None`` if it is unknown.
    """
    label = contrasts[0].label
    like = [program for case in otherwise for blend in case.programs for _, program in blend]
    middle = like[len(like) // 2] if like else Program(label="", model=(), architecture=(OWN,))
    program = replace(middle, label=label, model=(OWN, label), own=OWN_PROGRAM)
    return Case(workload=OWN, basis=OWN, programs=(((1.0, program),),)), program


def _of_models(workload: Workload) -> list[Case]:
    """Return a case for each size of the workload's models; a kind of workload has models that nobody measured."""
    models = [(p.parameters["model"], p.parameters["mode"]) for p in workload.parts[MODELS]]
    sizes = dict.fromkeys(size for name, mode in models for size in sizes_of(name, mode))
    cases = []
    for size in sizes:
        programs = [p for name, mode in models if (p := program_of_model(name, mode, size)) is not None]
        if workload.is_kind or workload.is_similar:
            programs = [replace(p, model=(f"new {workload.name}", *p.model)) for p in programs]
        programs = [replace(p, label=f"new {p.label}") for p in programs]
        blends = tuple(((1.0, program),) for program in programs)
        cases.append(Case(workload=workload.name, basis=MODELS, programs=blends, size=size))
    return cases


def measured_here(
    workload: Workload,
    contrasts: Sequence[Contrast],
    machine: Machine,
    own: Collection[str],
    programs: Mapping[str, Program],
) -> tuple[Case, tuple[Contrast, ...]] | None:
    """Return the case of the sizes that the user measured of a workload's own models on a machine, with the ratios.

    A size whose operations are unknown counts as the usual one: all indicators of whole models state them.

    Args:
        workload: The workload.
        contrasts: Measured ratios of one framework on one kind of device.
        machine: The machine.
        own: Names of the blocks that do not ship with the program.
        programs: The program of each label, as in the model.

    Returns:
        None if the user measured none of them.
    """
    if workload.is_kind or workload.is_similar:
        return None
    here = [
        c
        for c in own_ratios(contrasts, machine, own)
        if c.label in programs and any(part.matches(c.label, c.family) for part in workload.parts.get(MODELS, ()))
    ]
    blends = tuple(((1.0, programs[label]),) for label in sorted({c.label for c in here}))
    case = Case(workload=workload.name, basis=MODELS, programs=blends, size=AS_MEASURED)
    return (case, tuple(here)) if here else None


def _of_profile(workload: Workload) -> list[Case]:
    """Return the case of a profiled program; one for each usual size if the operations of a step are unknown."""
    parts = [part for part in workload.parts[PROFILE] if part.indicator != UNATTRIBUTED]
    shares: dict[str, float] = {}
    for part in parts:
        name = with_groups(part.indicator, part.parameters.get("groups", ""))
        shares[name] = shares.get(name, 0.0) + part.share
    trains = any(part.parameters.get("direction") == "backward" for part in parts)
    kinds = shares_of_kinds(shares)
    program = Program(
        label=f"profile {workload.name}",
        model=(PROFILE, workload.name),
        architecture=architecture_of_shares(kinds, "training" if trains else "inference"),
        flops=workload.flops,
        bytes=workload.bytes,
        launches=workload.launches,
        training=trains,
        shares=kinds,
    )
    if 0 < program.flops < math.inf:
        return [Case(workload=workload.name, basis=PROFILE, programs=(((1.0, program),),))]
    return [
        Case(workload=workload.name, basis=PROFILE, programs=(((1.0, replace(program, flops=flops)),),), size=size)
        for size, flops in _UNKNOWN_SIZES.items()
    ]


def _of_timm(workload: Workload, contrasts: Sequence[Contrast], machine: Machine) -> list[Case]:
    """Return a case for each usual batch of a model of timm; one if the operations of the model are not known.

    The case nearest to the batch of the model's own ratios is the measured program.
    """
    (part,) = workload.parts[TASKS]
    words = ",".join(f"{name}={value}" for name, value in sorted(part.parameters.items()))
    label = f"{part.indicator}@1[{words}] as-published torch/{'cpu' if machine.is_processor else 'cuda'}"
    model, trains = timm_tables().models[workload.timm_model], part.parameters["mode"] == "training"
    amounts = {size: model.amounts(batch, training=trains) for size, batch in _BATCHES.items()}
    amounts = amounts if all(flops > 0 for flops, _ in amounts.values()) else {"": (0.0, 0.0)}
    measured = max((c.flops for c in contrasts if c.label == label), default=0.0)
    nearest = min(amounts, key=lambda size: abs(math.log(amounts[size][0] / measured))) if measured else ""
    cases = []
    for size, (flops, moved) in amounts.items():
        own = label if size == nearest else f"{label} {size}"
        program = program_of_run(own, part.indicator, flops=flops, bytes=moved)
        # Predictions for processors also use what this program measured itself.
        basis = MODELS if machine.is_processor else TASKS
        cases.append(Case(workload=workload.name, basis=basis, programs=(((1.0, program),),), size=size))
    return cases


def _tasks_of(workload: Workload, contrasts: Sequence[Contrast]) -> list[Program]:
    """Return the published tasks of a workload at which anything was compared, at no batch or number of devices."""
    programs = []
    for part in workload.parts[TASKS]:
        measured = [c.label for c in contrasts if part.matches(c.label, c.family)]
        if measured:
            words = ",".join(f"{name}={value}" for name, value in sorted(part.parameters.items()))
            programs.append(program_of_run(f"{part.indicator}@0[{words}]", part.indicator))
    return programs


def _operations(workload: Workload, basis: str, contrasts: Sequence[Contrast], own: Collection[str]) -> Blend:
    """Return the measured sizes of a workload's operations, with their shares of its time.

    The time of a part is divided evenly among its sizes that ship with the program; among all, if none ships. A part of
    a profile that was not measured is a program of its own, of which nothing is known.
    """
    shares: dict[Program, float] = {}
    for part in workload.parts[basis]:
        measured = [c for c in contrasts if part.matches(c.label, c.family)]
        shipped = [c for c in measured if c.block not in own] or measured
        programs = {
            program_of_run(c.label, c.family, flops=c.flops, bytes=c.bytes)
            for c in sorted(shipped, key=lambda c: c.label)
        }
        if basis == PROFILE and not programs:
            programs = {program_of_run(f"{part.indicator}@0[not=measured]", part.indicator)}
        for program in programs:
            shares[program] = shares.get(program, 0.0) + part.share / len(programs)
    if not any(c.label == program.label for program in shares for c in contrasts):
        return ()
    total = sum(shares.values())
    return tuple((share / total, program) for program, share in sorted(shares.items(), key=lambda item: item[0].label))
