"""Reports of machines that are compared for a workload: text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from advisor.api.hardware_choice import HardwareChoice, MachineChoice, StackOnMachine
from advisor.api.memory_check import MemoryNeed, MemoryQuestion, memory_interval, parts_text, question_text
from advisor.api.options import COST, TIME
from advisor.domain.words import count, memory_text, quoted
from advisor.report.accelerators import REGIMES
from advisor.report.layout import Block, Layout, TextRow, labelled, rendered
from knowledge.domain.ratio import Ratio
from knowledge.estimate.machine_times import ReferenceTime

_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_MOST_OF_UNIT = 120.0
"""Largest number of a unit of time; beyond it, the next one is used."""
_NO_PROJECT = "not compared: the directory has no file with requirements; `--requirements FILE` names one"
_UNCLEAR = "~"
"""Mark of a machine that is not certainly worse than the first one."""


def hardware_choice_text(choice: HardwareChoice, layout: Layout | None = None) -> str:
    """Return the comparison as text."""
    return rendered(_blocks(choice), layout or Layout())


def _blocks(choice: HardwareChoice) -> Iterator[Block]:
    stacks = {machine.stack for machine in (*choice.ranked, *choice.unranked)}
    common = next(iter(stacks)) if len(stacks) == 1 else ()
    yield [
        *labelled("workload", [f"{choice.workload}: {_work(choice)}"]),
        *labelled("basis", list(_basis(choice))),
        *labelled("prices", list(_prices(choice))),
        *labelled("memory", list(_memory(choice))),
        *labelled("stack", [] if len(stacks) != 1 else [_stack(common) if choice.has_project else _NO_PROJECT]),
    ]
    yield _ranking(choice, with_stack=len(stacks) > 1)
    yield labelled("not known", [(machine.name, _unknown(choice, machine)) for machine in choice.unranked])
    yield labelled("excluded", [(machine.name, machine.obstacle) for machine in choice.impossible])


def _work(choice: HardwareChoice) -> str:
    """Return how much is computed."""
    level = choice.level
    items = f"{choice.items:,.0f}" if choice.items < 1e6 else f"{choice.items / 1e6:g} million"
    if choice.times is not None and level is None:
        return "relative to the first machine: nobody published how long an item takes, or sources disagree"
    if level is None:
        return f"{items} items"
    return f"{items} {level.unit} of {level.task}, {level.mode}"


def _basis(choice: HardwareChoice) -> Iterator[str]:
    times = choice.times
    if times is None:
        return
    yield f"{count(times.pairs, 'published pair')} of accelerators, {REGIMES[times.regime]}"
    if times.level is not None:
        yield _level(times.level)


def _level(level: ReferenceTime) -> str:
    one = level.seconds.inverse()
    return (
        f"{_digits(one.speedup)} {level.unit}/s [{_digits(one.low)}, {_digits(one.high)}] on one {level.reference}: "
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
    uses = [need.use for need in needs if need is not None and need.use is not None]
    yield from dict.fromkeys(f"{memory_interval(use)}: {parts_text(use)}" for use in uses)


def _need_text(need: MemoryNeed | None) -> str:
    """Return whether a model fits; empty if nobody asks."""
    if need is None:
        return ""
    if need.unknown:
        return need.unknown
    verdict = "the model fits" if need.fits else "the model may not fit"
    return f"{verdict}; {need.largest_text}"


def _regions(choice: HardwareChoice) -> list[str]:
    return sorted({machine.price.region for machine in choice.ranked if machine.price is not None} - {""})


def _ranking(choice: HardwareChoice, *, with_stack: bool) -> Block:
    rows: list[TextRow | str] = []
    for number, machine in enumerate(choice.ranked, 1):
        unclear = number > 1 and not choice.is_better(choice.ranked[0], machine)
        amounts = [_amount(choice, machine, name) for name in _shown(choice)]
        region = machine.price.region if machine.price is not None and len(_regions(choice)) > 1 else ""
        notes = [
            f"{_device(machine)}{f'; {region}' if region else ''}",
            *([_stack(machine.stack)] if with_stack else []),
            *filter(None, [_need_text(machine.need)]),
        ]
        cells = (f"{number}{_UNCLEAR if unclear else ''}", machine.name, *amounts)
        rows.append(TextRow(cells=cells, notes=tuple(notes)))
    if any(not choice.is_better(choice.ranked[0], machine) for machine in choice.ranked[1:]):
        rows.append(f"{_UNCLEAR} not certainly worse than the first: the interval of their ratio contains 1")
    return labelled(f"by {choice.objective}", rows)


def _shown(choice: HardwareChoice) -> list[str]:
    """Return the amounts that are shown, that of the objective first."""
    names = [name for name in (TIME, COST) if any(m.amount(name) is not None for m in choice.ranked)]
    return sorted(names, key=lambda name: name != choice.objective)


def _amount(choice: HardwareChoice, machine: MachineChoice, name: str) -> str:
    amount = machine.amount(name)
    if amount is None:
        return "not known"
    if choice.level is None:
        ratio = choice.advantage(choice.ranked[0], machine, name)
        return "not known" if ratio is None else f"{_money(ratio)} x {name}"
    return duration_interval(amount) if name == TIME else f"{_money(amount)} {choice.prices.currency}"


def duration_interval(seconds: Ratio) -> str:
    """Return a time with its interval, in the unit that suits it: ``25 min [15, 41]``."""
    factor, unit = next(
        ((f, u) for f, u in _UNITS if seconds.speedup / f < _MOST_OF_UNIT or u == _UNITS[-1][1]), _UNITS[-1]
    )
    mean, low, high = (_digits(value / factor) for value in (seconds.speedup, seconds.low, seconds.high))
    return f"{mean} {unit} [{low}, {high}]"


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
    return f"{nodes}{gpus.count} x {gpus.model}, {memory_text(gpus.memory_bytes)}; {rows}"


def _stack(stack: Iterable[StackOnMachine]) -> str:
    return "; ".join(_framework(one) for one in stack) or "no framework that is measured"


def _framework(one: StackOnMachine) -> str:
    build = f" for {one.build}" if one.build is not None else ""
    settings = f" with {quoted(one.settings)}" if one.settings else ""
    return f"{one.framework} {one.version}{build}{settings}"


def _unknown(choice: HardwareChoice, machine: MachineChoice) -> str:
    """Return why a machine has no place in the ranking, with its time if only the price is missing."""
    need = f"; {text}" if (text := _need_text(machine.need)) else ""
    if machine.unknown or machine.seconds is None:
        return (machine.unknown or "its time is not known") + need
    time = f"; {duration_interval(machine.seconds)}" if choice.level is not None else ""
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
            "seconds": _interval(level.seconds),
            "published_times": level.rows,
            "configurations": level.configurations,
            "sources": list(level.sources),
        },
        "currency": choice.prices.currency or None,
        "spot": choice.spot,
        "budget": choice.budget,
        "ranked": [_machine_record(choice, machine) for machine in choice.ranked],
        "not_known": [{**_machine_record(choice, m), "reason": m.unknown} for m in choice.unranked],
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
    }


def _need_record(need: MemoryNeed) -> dict[str, Any]:
    return {
        "bytes": _interval(need.use.ratio if need.use is not None else None),
        "parts": {name: round(size) for name, size in need.use.parts.items()} if need.use is not None else None,
        "fits": need.fits,
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
        "times_of_first": _interval(choice.advantage(first, machine, TIME)),
        "costs_of_first": _interval(choice.advantage(first, machine, COST)),
        "price": None
        if price is None
        else {
            "hourly": price.hourly(spot=choice.spot),
            "region": price.region,
            "date": str(price.date),
            "source": price.source,
        },
        "published_times": machine.rows,
        "first_is_better": machine is not first and choice.is_better(first, machine),
        "is_dominated": choice.is_dominated(machine),
        **({"memory_need": _need_record(machine.need)} if machine.need is not None else {}),
    }


def _interval(amount: Ratio | None) -> dict[str, float] | None:
    if amount is None:
        return None
    ends = {"mean": amount.speedup, "low": amount.low, "high": amount.high}
    return {name: float(f"{value:.6g}") for name, value in ends.items()}
