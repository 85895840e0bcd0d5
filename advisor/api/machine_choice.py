"""Machines that are compared for a workload, and what each needs of time, money and energy."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.api.memory_check import MemoryNeed, MemoryQuestion
from advisor.api.options import COST, ENERGY, TIME
from knowledge.catalogue.builds import Build
from knowledge.domain.hardware import Accelerator, HardwareProfile
from knowledge.domain.ratio import Ratio, exactly
from knowledge.estimate.machine_times import MachineTimes, ReferenceTime
from knowledge.hardware.accelerators import AcceleratorModel
from knowledge.hardware.prices import MachinePrice, PriceList

_EQUAL = 1e-9
"""Difference of two ratios that is an error of rounding."""
_JOULES = 3.6e6
"""Joules of a kilowatt-hour."""


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
        return energy.times(exactly(self.carbon_intensity / _JOULES))

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
        return ratio.times(exactly(prices[1] * other.nodes / (prices[0] * one.nodes)))

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


def _power_ratio(one: MachineChoice, other: MachineChoice) -> Ratio:
    """Return the power of a machine divided by that of another one; machines of one kind differ in nothing."""
    assert one.power is not None
    assert other.power is not None
    if one.accelerators == other.accelerators:
        return exactly(one.nodes / other.nodes)
    return one.power.over(other.power)
