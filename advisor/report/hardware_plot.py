"""Page of machines that are compared for a workload: a plot of time against cost or energy, and the table behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from advisor.api.machine_choice import HardwareChoice, MachineChoice
from advisor.api.options import ENERGY, TIME
from advisor.report.axes import LogAxis
from advisor.report.hardware_choice import UNCLEAR_NOTE, amount_text, amounts_of, facts_of, ranked_rows, unknown_text
from advisor.report.html import fragment, page
from knowledge.domain.ratio import NO_GAIN, Ratio

_SIZES = {"wide": (720.0, 420.0), "narrow": (360.0, 380.0)}
"""Width and height of the plots in SVG units. The scaled picture of a narrow window must not have tiny letters."""
_LEFT, _BOTTOM, _EDGE = 70.0, 50.0, 20.0
_SCALES = {TIME: 3600.0, ENERGY: 3.6e6}
"""Seconds and joules of the units of the axes."""


def hardware_choice_page(choice: HardwareChoice) -> str:
    """Return the comparison as one HTML page."""
    return page(f"machines for `{choice.workload}`", content(choice))


def content(choice: HardwareChoice) -> Markup:
    """Return the comparison without the page around it."""
    return fragment(
        "hardware_choice.html",
        choice=choice,
        facts=facts_of(choice),
        plots={name: plot for name, size in _SIZES.items() if (plot := _plot(choice, *size))},
        columns=amounts_of(choice),
        rows=[(row, choice.is_dominated(row.machine)) for row in ranked_rows(choice)],
        unclear=UNCLEAR_NOTE,
        unknown=[f"`{machine.name}`: {unknown_text(choice, machine)}" for machine in choice.unranked],
        impossible=[(machine.name, machine.obstacle) for machine in choice.impossible],
    )


def _plot(choice: HardwareChoice, width: float, height: float) -> dict[str, Any] | None:
    """Return the positions of machines by time and by cost, or without costs by energy; ``None`` with neither."""
    name = choice.axes[1]
    machines = [m for m in choice.ranked if m.amount(name) is not None and m.seconds is not None]
    if not machines:
        return None
    first = machines[0]
    across = [_amount(choice, first, machine, TIME) for machine in machines]
    up = [_amount(choice, first, machine, name) for machine in machines]
    x = _axis(across, first=_LEFT, last=width - _EDGE)
    y = _axis(up, first=height - _BOTTOM, last=_EDGE)
    return {
        "first": first.name,
        "width": width,
        "height": height,
        "left": _LEFT,
        "bottom": height - _BOTTOM,
        "edge": _EDGE,
        "x_label": f"time{_unit(choice, TIME)}",
        "y_label": f"{name}{_unit(choice, name)}",
        "x_ticks": x.texts(),
        "y_ticks": y.texts(),
        "points": [
            {
                "number": choice.ranked.index(machine) + 1,
                "label": f"{machine.name}: {amount_text(choice, machine, TIME)}, {amount_text(choice, machine, name)}",
                "is_dominated": choice.is_dominated(machine),
                "x": x.place(one.speedup),
                "y": y.place(two.speedup),
                "x_range": (x.place(one.low), x.place(one.high)),
                "y_range": (y.place(two.low), y.place(two.high)),
            }
            for machine, one, two in zip(machines, across, up, strict=True)
        ],
    }


def _axis(amounts: Sequence[Ratio], *, first: float, last: float) -> LogAxis:
    return LogAxis.of((end for amount in amounts for end in (amount.low, amount.high)), first=first, last=last)


def _amount(choice: HardwareChoice, first: MachineChoice, machine: MachineChoice, name: str) -> Ratio:
    """Return an amount in the unit of the axis, with the interval of its ratio to that of the first machine."""
    ratio = choice.advantage(first, machine, name) if machine is not first else NO_GAIN
    amount = first.amount(name)
    assert ratio is not None
    assert amount is not None
    scale = amount.mean - math.log(_SCALES.get(name, 1.0)) if choice.level is not None else 0.0
    return ratio.times(Ratio(mean=scale, variance=0.0))


def _unit(choice: HardwareChoice, name: str) -> str:
    if choice.level is None:
        return " relative to the first machine"
    return {TIME: " in hours", ENERGY: " in kWh"}.get(name, f" in {choice.prices.currency}")
