"""Measurement conditions: whether two runs are comparable, and why timings are unstable."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from knowledge.domain.observation import BENCHMARK, Observation, Scalar

_COMPARED = ("cpus_allowed", "cpu_governor", "kernel", "python")
_SPREAD_WITHIN = 0.05
_SPREAD_BETWEEN = 0.05
BUSY_PERCENT = 10.0
STOLEN_PERCENT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instability:
    """A reason why timings are less certain than they could be.

    Attributes:
        code: Short name of the reason.
        reason: What was observed.
        remedy: What to do about it.
    """

    code: str
    reason: str
    remedy: str


def differing_conditions(a: Observation, b: Observation) -> tuple[str, ...]:
    """Return the differing conditions of two runs, because of which their ratio does not depend on the stacks alone."""
    differences = [
        f"{name} {_text(a.environment.get(name))} against {_text(b.environment.get(name))}"
        for name in _COMPARED
        if a.environment.get(name) != b.environment.get(name)
        # If a framework has no setting for threads, they are limited by the processors that the process may use.
        and not (name == "cpus_allowed" and ({"threads", "numa"} & {*a.settings, *b.settings}))
    ]
    if a.hardware.identity != b.hardware.identity:
        differences.insert(0, "another machine")
    return tuple(differences)


def instabilities(observations: Iterable[Observation]) -> tuple[Instability, ...]:
    """Return why the timings of one arm and indicator, one per round, are unstable, the most important reason first."""
    runs = [o for o in observations if o.status == "ok" and o.samples]
    return (*_of_machine(runs), *_of_timings(runs)) if runs else ()


def _of_machine(runs: list[Observation]) -> Iterator[Instability]:
    if any(o.telemetry.get("throttled") for o in runs):
        yield Instability(
            code="throttled",
            reason="the accelerator reduced its clocks because of power or heat",
            remedy="let it cool, raise its power limit, or lock its clocks below the throttling point",
        )
    if any(o.telemetry.get("on_battery") for o in runs):
        yield Instability(
            code="battery",
            reason="the machine ran on its battery, for which it reduces its clocks",
            remedy="connect the power supply",
        )
    if jumps := [o for o in runs if "clock_jump_seconds" in o.environment]:
        yield Instability(
            code="clock-jump",
            reason=f"the system time was changed during {len(jumps)} runs (samples use a monotonic clock)",
            remedy="measure again if the machine was suspended during the run",
        )
    if unsteady := sum(not o.steady for o in runs):
        yield Instability(
            code="unsteady",
            reason=f"{unsteady} of {len(runs)} warm-ups did not reach a steady state",
            remedy="take longer samples (`--min-time`), or stop other processes",
        )
    stolen = _mean(runs, "stolen_cpu_percent_mean")
    if stolen > STOLEN_PERCENT:
        yield Instability(
            code="stolen",
            reason=f"other virtual machines on the host used {stolen:.0f} % of the processor time",
            remedy="measure on a dedicated machine, or take more rounds",
        )
    busy = _mean(runs, "other_cpu_percent_mean")
    if busy > BUSY_PERCENT:
        yield Instability(
            code="busy",
            reason=f"other processes used {busy:.0f} % of the processor time",
            remedy="stop them, or take more rounds",
        )
    if any(o.environment.get("cpu_governor") not in (None, "performance") for o in runs):
        yield Instability(
            code="governor",
            reason=f"the clock governor of the processors is `{runs[0].environment.get('cpu_governor')}`",
            remedy="set it to `performance` while measuring (`cpupower frequency-set -g performance`)",
        )


def _of_timings(runs: list[Observation]) -> Iterator[Instability]:
    is_benchmark = runs[0].indicator.name == BENCHMARK
    within = statistics.median(spread(o.samples) for o in runs)
    between = spread([statistics.median(o.samples) for o in runs])
    if within > _SPREAD_WITHIN:
        yield Instability(
            code="spread-within",
            reason=f"samples of one process vary by {within:.1%}",
            remedy="let the program run longer" if is_benchmark else "take longer samples (`--min-time`)",
        )
    if between > _SPREAD_BETWEEN:
        yield Instability(
            code="spread-between",
            reason=f"medians of processes vary by {between:.1%}",
            remedy="take more rounds (`--rounds`): each is a fresh process",
        )


def spread(values: Iterable[float]) -> float:
    """Return the coefficient of variation; 0 for fewer than two values."""
    values = list(values)
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def _mean(runs: list[Observation], name: str) -> float:
    values = [o.telemetry[name] for o in runs if name in o.telemetry]
    return statistics.fmean(values) if values else 0.0


def _text(value: Scalar) -> str:
    return "unknown" if value is None else str(value)
