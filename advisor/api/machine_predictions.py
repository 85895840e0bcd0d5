"""Predicted times and powers of machines, from the published results of a knowledge base."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from advisor.api.machine_choice import MachineChoice
from advisor.api.options import ENERGY
from advisor.api.stores import open_readable_store
from advisor.domain.progress import activity
from advisor.index.memo import Memo
from knowledge.domain.codec import decoded, encoded
from knowledge.domain.identity import content_hash
from knowledge.domain.ratio import Ratio, exactly
from knowledge.estimate.machine_power import LEAST_MACHINES, PowerModel, metered_machines
from knowledge.estimate.machine_times import MachineSize, MachineTimes, PublishedTimes
from knowledge.estimate.model_cache import shipped_level_variances, shipped_ratio_variances, shipped_scaling_variances
from knowledge.estimate.scaling_model import ScalingModel
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, SHORT, AcceleratorRow, load_rows
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.power_rows import power_rows
from knowledge.evidence.scaling_pairs import scaling_pairs
from knowledge.exchange.mlperf.results import POWER
from knowledge.hardware.accelerators import find_accelerator
from knowledge.store.state_hash import state_hash

_NOT_IN_REGIME = {
    DEFAULT: "nothing is published in float32 or TF32; `--allow reduced-precision` takes the times of 16 bits",
    SHORT: "nothing is published in mixed precision or 16 bits",
}
Task = tuple[str, str]
"""A whole model, and its mode: ``training`` or ``inference``."""


class LazyTimes:
    """What a knowledge base says about times of accelerators, read when it is needed."""

    def __init__(self, address: str) -> None:
        self._address = address

    @cached_property
    def state(self) -> str:
        """Hash of the content of the knowledge base."""
        return state_hash(self._address) or content_hash([asdict(row) for row in self.rows])

    @cached_property
    def rows(self) -> tuple[AcceleratorRow, ...]:
        """The published results."""
        with activity("reading published times"), open_readable_store(self._address) as store:
            return load_rows(store)

    @cached_property
    def times(self) -> PublishedTimes:
        """The model of times."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMachines:
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


def with_predictions(
    machines: Sequence[MachineChoice], published: LazyTimes, memo: Memo, tasks: Sequence[Task], regime: str
) -> tuple[PredictedMachines, list[MachineChoice]]:
    """Return what is predicted, and the machines with their place in it, or the reason why it is not known."""
    facts = [(machine.hardware.accelerators, machine.nodes) for machine in machines]
    record = memo.answer(
        [published.state, facts, tasks, regime, ENERGY], lambda: encoded(_predicted(machines, published, tasks, regime))
    )
    timed = decoded(PredictedMachines, record)
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


def _predicted(
    machines: Sequence[MachineChoice], published: LazyTimes, tasks: Sequence[Task], regime: str
) -> PredictedMachines:
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
    return PredictedMachines(
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
    return powers.predict(rated / machine.nodes).times(exactly(machine.nodes))


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
