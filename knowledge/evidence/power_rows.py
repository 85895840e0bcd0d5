"""Published power of whole machines at work: one row for each result of MLPerf with a power meter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from knowledge.domain.observation import Observation
from knowledge.exchange.mlperf.results import POWER
from knowledge.hardware.accelerators import model_of

LEAST_WATTS, MOST_WATTS = 1.0, 1e6
"""Smallest and largest power of one machine: beyond them, a row is a mistake. The bounds are a judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Mean power of one machine while it runs a benchmark.

    Attributes:
        submitter: Who published it.
        system: The system's name in the results.
        round_: MLPerf round.
        accelerator: Name of the model in the catalogue.
        count: Number of accelerators.
        rated: Power limit of all accelerators together in watts, by the catalogue.
        is_tuned: Whether the submitter lowered limits of power to need less energy for a result.
        benchmark: Name of the benchmark.
        watts: Power of the whole machine in watts, idle power included: of one machine if there are several.
    """

    submitter: str
    system: str
    round_: str
    accelerator: str
    count: int
    rated: float
    is_tuned: bool
    benchmark: str
    watts: float


def power_rows(observations: Iterable[Observation]) -> tuple[PowerRow, ...]:
    """Return the rows of machines with one kind of accelerator, whose power limit is known, in order of system.

    Latencies are left out: their energy is that of a query, and their time a percentile, so they have no mean power.
    Embedded modules are left out, too: the catalogue's power is that of the whole module.
    """
    rows = []
    for o in observations:
        gpus = o.hardware.accelerators
        if o.indicator.name != POWER or len(gpus) != 1 or gpus[0].partition:
            continue
        model = model_of(gpus[0])
        watts = _watts(o)
        if model is None or model.watts is None or model.kind == "embedded":
            continue
        if watts is None or not LEAST_WATTS <= watts <= MOST_WATTS:
            continue
        text = f"{o.environment['system']} {o.environment.get('notes', '')}".lower()
        rows.append(
            PowerRow(
                submitter=str(o.environment["submitter"]),
                system=str(o.environment["system"]),
                round_=str(o.environment["mlperf_round"]),
                accelerator=model.name,
                count=gpus[0].count,
                rated=model.watts * gpus[0].count,
                is_tuned="maxq" in text,
                benchmark=str(o.indicator.parameters["benchmark"]),
                watts=watts,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.system, row.round_, row.benchmark, row.watts)))


def _watts(o: Observation) -> float | None:
    """Return the mean power of one machine; ``None`` for a latency."""
    if "watts" in o.metrics:
        return o.metrics["watts"] / (o.hardware.nodes or 1)
    if o.indicator.parameters["mode"] == "training":
        return o.metrics["joules"] / o.samples[0] / (o.hardware.nodes or 1)
    return None
