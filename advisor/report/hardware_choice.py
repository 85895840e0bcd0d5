"""Reports of machines that are compared for a workload: text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.api.machine_choice import HardwareChoice, MachineChoice, StackOnMachine
from advisor.api.memory_check import MemoryNeed, MemoryQuestion, memory_interval, parts_text, question_text
from advisor.api.options import CHOICE_OBJECTIVES, COST, ENERGY, TIME
from advisor.domain.words import count, memory_text, quoted
from advisor.report.accelerators import REGIMES
from advisor.report.layout import Block, Layout, TextRow, labelled, rendered
from knowledge.domain.ratio import Ratio, exactly
from knowledge.estimate.machine_times import ReferenceTime
from knowledge.evidence.accelerator_rows import TO_QUALITY

_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_MOST_OF_UNIT = 120.0
"""Largest number of a unit of time; beyond it, the next one is used."""
_WATT_HOURS = ((3.6e3, "Wh"), (3.6e6, "kWh"), (3.6e9, "MWh"))
_GRAMS = ((1.0, "g"), (1e3, "kg"), (1e6, "t"))
_NO_PROJECT = "not compared: the directory has no file with requirements; `--requirements FILE` names one"
_UNCLEAR = "~"
"""Mark of a machine that is not certainly worse than the first one."""
UNCLEAR_NOTE = f"{_UNCLEAR} not certainly worse than the first: the interval of their ratio contains 1"


def hardware_choice_text(choice: HardwareChoice, layout: Layout | None = None) -> str:
    """Return the comparison as text."""
    return rendered(_blocks(choice), layout or Layout())


def _blocks(choice: HardwareChoice) -> Iterator[Block]:
    yield [line for label, lines in facts_of(choice) for line in labelled(label, lines)]
    rows: list[TextRow | str] = [
        TextRow(cells=(row.place, row.machine.name, *row.amounts), notes=row.notes) for row in ranked_rows(choice)
    ]
    if any(row.is_unclear for row in ranked_rows(choice)):
        rows.append(UNCLEAR_NOTE)
    yield labelled(f"by {choice.objective}", rows)
    yield labelled("not known", [(machine.name, unknown_text(choice, machine)) for machine in choice.unranked])
    yield labelled("excluded", [(machine.name, machine.obstacle) for machine in choice.impossible])


def facts_of(choice: HardwareChoice) -> list[tuple[str, list[str]]]:
    """Return what is true of all machines: what is computed, what the figures rest on, prices, memory and stack."""
    common = _common_stack(choice)
    stack = [] if common is None else [stack_text(common) if choice.has_project else _NO_PROJECT]
    return [
        ("workload", [f"{choice.workload}: {_work(choice)}"]),
        ("basis", list(_basis(choice))),
        ("prices", list(_prices(choice))),
        ("memory", list(_memory(choice))),
        ("stack", stack),
    ]


def _common_stack(choice: HardwareChoice) -> tuple[StackOnMachine, ...] | None:
    """Return the stack of all machines; ``None`` if they differ."""
    stacks = {machine.stack for machine in (*choice.ranked, *choice.unranked)}
    return next(iter(stacks)) if len(stacks) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """A ranked machine as a row of a table.

    Attributes:
        machine: The machine.
        place: Its place, with a mark if it is not certainly worse than the first one.
        is_unclear: Whether it has the mark.
        amounts: Its amounts with their intervals and units, that of the objective first.
        notes: What else is said about it.
    """

    machine: MachineChoice
    place: str
    is_unclear: bool
    amounts: tuple[str, ...]
    notes: tuple[str, ...]


def ranked_rows(choice: HardwareChoice) -> list[RankedRow]:
    """Return the ranked machines as rows."""
    with_stack = _common_stack(choice) is None
    rows = []
    for number, machine in enumerate(choice.ranked, 1):
        is_unclear = number > 1 and not choice.is_better(choice.ranked[0], machine)
        region = machine.price.region if machine.price is not None and len(_regions(choice)) > 1 else ""
        notes = [
            f"{_device(machine)}{f'; {region}' if region else ''}",
            *_energies(choice, machine),
            *([stack_text(machine.stack)] if with_stack else []),
            *_needs(machine),
            *filter(None, [machine.beyond]),
        ]
        rows.append(
            RankedRow(
                machine=machine,
                place=f"{number}{_UNCLEAR if is_unclear else ''}",
                is_unclear=is_unclear,
                amounts=tuple(amount_text(choice, machine, name) for name in amounts_of(choice)),
                notes=tuple(notes),
            )
        )
    return rows


def _work(choice: HardwareChoice) -> str:
    """Return how much is computed."""
    level = choice.level
    number = f"{choice.items:,.0f}" if choice.items < 1e6 else f"{choice.items / 1e6:g} million"
    if choice.times is not None and level is None:
        return "relative to the first machine: nobody published how long an item takes, or sources disagree"
    if level is None:
        return f"{number} {'item' if choice.items == 1 else 'items'}"
    if level.unit == TO_QUALITY:
        trainings = f"{number} {'training' if choice.items == 1 else 'trainings'}"
        return f"{trainings} of {level.task} to a quality that MLPerf required"
    return f"{number} {level.unit} of {level.task}, {level.mode}"


def _basis(choice: HardwareChoice) -> Iterator[str]:
    """Yield what the predictions rest on."""
    times = choice.times
    if times is None:
        return
    yield f"{count(times.pairs, 'published pair')} of accelerators, {REGIMES[times.regime]}"
    if times.level is not None:
        yield _level(times.level)
    if choice.metered and any(machine.energy is not None for machine in choice.ranked):
        rest = choice.metered - choice.untuned
        metered = f"{count(choice.metered, 'metered machine')} of MLPerf, {rest} of them with lowered limits of power"
        yield f"power at the wall, idle included: {metered}"
    elif choice.carbon_intensity is not None:
        yield "CO2 not known: the energy of an item is not"


def _level(level: ReferenceTime) -> str:
    one = level.seconds.inverse()
    speed = f"{_digits(one.speedup)} {level.unit}/s [{_digits(one.low)}, {_digits(one.high)}]"
    where = f"one {level.reference}" if level.count == 1 else f"{level.count} {level.reference}"
    return (
        f"{with_unit(level.seconds, _UNITS, _MOST_OF_UNIT) if level.unit == TO_QUALITY else speed} on {where}: "
        f"{count(level.rows, 'published time')} in {count(level.configurations, 'configuration')}"
    )


def _prices(choice: HardwareChoice) -> Iterator[str]:
    dates = sorted({machine.price.date for machine in choice.ranked if machine.price is not None})
    if dates:
        kind = "spot instances" if choice.spot else "on demand"
        days = f"{dates[0]}" if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        region = f", {', '.join(_regions(choice))}" if len(_regions(choice)) == 1 else ""
        yield f"{choice.prices.currency} by the hour, {kind}, of {days}{region}"
    for reason, number in sorted(choice.prices.left_out.items()):
        yield f"{count(number, 'row')} not used: {reason}"


def _memory(choice: HardwareChoice) -> Iterator[str]:
    """Yield what must fit into the memory, and each amount that it needs."""
    if choice.question is None:
        return
    yield question_text(choice.question)
    needs = [machine.need for machine in (*choice.ranked, *choice.unranked, *choice.impossible)]
    uses = [(need.use, need.place) for need in needs if need is not None and need.use is not None]
    yield from dict.fromkeys(f"{memory_interval(use)}{place}: {parts_text(use)}" for use, place in uses)


def _needs(machine: MachineChoice) -> Iterator[str]:
    """Yield whether a model fits into the memory, if that is asked."""
    need = machine.need
    if need is None:
        return
    verdict = "the model fits" if need.fits else "the model may not fit"
    yield need.unknown or f"{verdict}{need.place}; {need.largest_text}"


def _regions(choice: HardwareChoice) -> list[str]:
    return sorted({machine.price.region for machine in choice.ranked if machine.price is not None} - {""})


def amounts_of(choice: HardwareChoice) -> list[str]:
    """Return the amounts that are shown, that of the objective first."""
    names = {choice.objective, TIME, COST}
    names = {name for name in names if any(m.amount(name) is not None for m in choice.ranked)}
    return sorted(names, key=lambda name: (name != choice.objective, CHOICE_OBJECTIVES.index(name)))


def amount_text(choice: HardwareChoice, machine: MachineChoice, name: str) -> str:
    """Return an amount of a machine with its interval and its unit."""
    amount = machine.amount(name)
    if amount is None:
        return "not known"
    if choice.level is None:
        ratio = choice.advantage(choice.ranked[0], machine, name)
        return "not known" if ratio is None else f"{_money(ratio)} x {name}"
    if name == COST:
        return f"{_money(amount)} {choice.prices.currency}"
    return with_unit(amount, _UNITS, _MOST_OF_UNIT) if name == TIME else with_unit(amount, _WATT_HOURS)


def with_unit(amount: Ratio, units: Sequence[tuple[float, str]], most: float = 1000.0) -> str:
    """Return an amount with its interval, in the first unit of which it has fewer than the most: ``25 min [15, 41]``.

    Args:
        amount: The amount in the unit of the factors.
        units: Factor and name of each unit, the smallest first.
        most: Largest number of a unit; beyond it, the next one is used.
    """
    factor, unit = next(((f, u) for f, u in units if amount.speedup / f < most), units[-1])
    mean, low, high = (_digits(value / factor) for value in (amount.speedup, amount.low, amount.high))
    return f"{mean} {unit} [{low}, {high}]" if amount.variance else f"{mean} {unit}"


def _energies(choice: HardwareChoice, machine: MachineChoice) -> Iterator[str]:
    """Yield the energy of the items, if it is not shown next to the time, and what it emits."""
    if choice.level is None or machine.seconds is None:
        return
    energy = machine.energy
    if energy is None:
        yield from _bound(machine) if machine.energy_bound is not None else ["power not known"]
        return
    if choice.objective != ENERGY:
        yield with_unit(energy, _WATT_HOURS)
    if choice.carbon_intensity is not None:
        yield f"{with_unit(choice.emissions(energy), _GRAMS)} of CO2"


def _money(amount: Ratio) -> str:
    return f"{_digits(amount.speedup)} [{_digits(amount.low)}, {_digits(amount.high)}]"


def _digits(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _device(machine: MachineChoice) -> str:
    gpus = machine.accelerators
    nodes = f"{machine.nodes} machines with " if machine.nodes > 1 else ""
    rows = count(machine.rows, "published time") if machine.rows else "no published time: from its rates"
    if gpus is None:
        return machine.hardware.cpu.model or machine.hardware.cpu.microarchitecture
    memory = f", {memory_text(gpus.memory_bytes)}" if gpus.memory_bytes else ""
    return f"{nodes}{gpus.count} x {gpus.model}{memory}; {rows}"


def stack_text(stack: Iterable[StackOnMachine]) -> str:
    """Return the frameworks of a stack."""
    return "; ".join(_framework(one) for one in stack) or "no framework that is measured"


def _framework(one: StackOnMachine) -> str:
    build = f" for {one.build}" if one.build is not None else ""
    settings = f" with {quoted(one.settings)}" if one.settings else ""
    return f"{one.framework} {one.version}{build}{settings}"


def unknown_text(choice: HardwareChoice, machine: MachineChoice) -> str:
    """Return why a machine has no place in the ranking, with its time if only the price is missing."""
    need = "".join(f"; {line}" for line in _needs(machine))
    if machine.unknown or machine.seconds is None:
        return (machine.unknown or "its time is not known") + need
    time = f"; {with_unit(machine.seconds, _UNITS, _MOST_OF_UNIT)}" if choice.level is not None else ""
    if choice.objective == ENERGY:
        bound = "".join(f"; {line}" for line in _bound(machine)) if choice.level is not None else ""
        return (bound.removeprefix("; ") or "power not known") + time + need
    return f"its price is not known{time}{need}"


def hardware_choice_document(choice: HardwareChoice) -> dict[str, Any]:
    """Return the comparison as JSON-ready values."""
    level = choice.level
    return {
        "schema_version": 1,
        "workload": choice.workload,
        "items": choice.items,
        "objective": choice.objective,
        "regime": choice.times.regime if choice.times is not None else None,
        "reference": choice.times.reference if choice.times is not None else None,
        "published_pairs": choice.times.pairs if choice.times is not None else 0,
        "level": None
        if level is None
        else {
            "task": level.task,
            "mode": level.mode,
            "unit": level.unit,
            "reference": level.reference,
            "accelerators": level.count,
            "seconds": _interval(level.seconds),
            "published_times": level.rows,
            "configurations": level.configurations,
            "sources": list(level.sources),
        },
        "currency": choice.prices.currency or None,
        "spot": choice.spot,
        "budget": choice.budget,
        "carbon_intensity": choice.carbon_intensity,
        "metered_machines": choice.metered,
        "metered_as_sold": choice.untuned,
        "ranked": [_machine_record(choice, machine) for machine in choice.ranked],
        "not_known": [{**_machine_record(choice, m), "reason": unknown_text(choice, m)} for m in choice.unranked],
        "excluded": [{**_machine_record(choice, m), "reason": m.obstacle} for m in choice.impossible],
        "left_out_prices": dict(choice.prices.left_out),
        **({"memory": _question_record(choice.question)} if choice.question is not None else {}),
    }


def _question_record(question: MemoryQuestion) -> dict[str, Any]:
    shape, run = question.shape, question.run
    return {
        "model": shape.name if shape is not None else None,
        "parameters": shape.parameters if shape is not None else None,
        "source": shape.source or None if shape is not None else None,
        "not_known": question.unknown or None,
        "mode": "training" if run.is_training else "inference",
        "batch": run.batch,
        "length": run.length or None,
        "precision": run.precision,
        "optimizer": run.optimizer if run.is_training else None,
        "checkpointing": run.is_checkpointed,
        "sharded": question.is_sharded,
    }


def _need_record(need: MemoryNeed) -> dict[str, Any]:
    return {
        "bytes": {**(_interval(need.use.ratio) or {}), "low": round(need.use.low)} if need.use is not None else None,
        "parts": {name: round(size) for name, size in need.use.parts.items()} if need.use is not None else None,
        "fits": need.fits,
        "divided_among": need.shares if need.use is not None else None,
        "largest_batch": need.largest_batch if need.use is not None else None,
        "not_known": need.unknown or None,
    }


def _machine_record(choice: HardwareChoice, machine: MachineChoice) -> dict[str, Any]:
    first = choice.ranked[0] if choice.ranked else machine
    price, gpus = machine.price, machine.accelerators
    return {
        "name": machine.name,
        "accelerator": gpus.model if gpus else None,
        "accelerators": gpus.count if gpus else 0,
        "nodes": machine.nodes,
        "memory_bytes": gpus.memory_bytes if gpus else machine.hardware.memory_bytes,
        "stack": [
            {
                "framework": one.framework,
                "version": one.version,
                "build": str(one.build) if one.build is not None else None,
                "settings": list(one.settings),
            }
            for one in machine.stack
        ],
        "seconds": _interval(machine.seconds if choice.level is not None else None),
        "cost": _interval(machine.cost if choice.level is not None else None),
        "joules": _interval(machine.energy if choice.level is not None else None),
        "watts": _interval(machine.power),
        "rated_watts": machine.rated_watts,
        "most_joules_of_accelerators": machine.energy_bound if choice.level is not None else None,
        "grams_co2": _interval(_emissions(choice, machine)),
        "times_of_first": _interval(choice.advantage(first, machine, TIME)),
        "costs_of_first": _interval(choice.advantage(first, machine, COST)),
        "energies_of_first": _interval(choice.advantage(first, machine, ENERGY)),
        "price": None
        if price is None
        else {
            "hourly": price.hourly(spot=choice.spot),
            "region": price.region,
            "date": str(price.date),
            "source": price.source,
        },
        "published_times": machine.rows,
        "beyond_published": machine.beyond or None,
        "first_is_better": machine is not first and choice.is_better(first, machine),
        "is_dominated": choice.is_dominated(machine),
        **({"memory_need": _need_record(machine.need)} if machine.need is not None else {}),
    }


def _bound(machine: MachineChoice) -> Iterator[str]:
    """Yield the most energy that the accelerators alone need, by their rated power."""
    if machine.energy_bound is not None:
        most = exactly(machine.energy_bound)
        text = with_unit(most, _WATT_HOURS)
        yield f"power not known; its accelerators alone need at most {text} by their rated power"


def _emissions(choice: HardwareChoice, machine: MachineChoice) -> Ratio | None:
    is_known = choice.level is not None and machine.energy is not None and choice.carbon_intensity is not None
    return choice.emissions(machine.energy) if is_known and machine.energy is not None else None


def _interval(amount: Ratio | None) -> dict[str, float] | None:
    if amount is None:
        return None
    ends = {"mean": amount.speedup, "low": amount.low, "high": amount.high}
    return {name: float(f"{value:.6g}") for name, value in ends.items()}
