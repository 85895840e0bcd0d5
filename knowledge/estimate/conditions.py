"""Under which conditions observations were made, and what made them unstable."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from knowledge.domain.observation import Observation, Scalar

_COMPARED = ("cpus_allowed", "cpu_governor", "kernel", "python")
_SPREAD_WITHIN = 0.05
_SPREAD_BETWEEN = 0.05
_BUSY_PERCENT = 10.0
_STOLEN_PERCENT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instability:
    """Why timings are less sure than they could be, and what helps.

    Attributes:
        code: Short name of the reason.
        reason: What was seen.
        remedy: What to do.
    """

    code: str
    reason: str
    remedy: str


def differing_conditions(a: Observation, b: Observation) -> tuple[str, ...]:
    """Return what differs between two runs that must not, for their ratio to speak of stacks and settings alone."""
    found = [
        f"{name} {_shown(a.environment.get(name))} against {_shown(b.environment.get(name))}"
        for name in _COMPARED
        if a.environment.get(name) != b.environment.get(name)
        # Threads are set through the processors that a process may use, where there is no other way.
        and not (name == "cpus_allowed" and ({"threads", "numa"} & {*a.settings, *b.settings}))
    ]
    if a.hardware.identity != b.hardware.identity:
        found.insert(0, "another machine")
    return tuple(found)


def instabilities(observations: Iterable[Observation]) -> tuple[Instability, ...]:
    """Return the reasons to trust the timings of one arm and indicator less, the weightiest first.

    Args:
        observations: Of one arm and indicator, one a round.
    """
    runs = [o for o in observations if o.status == "ok" and o.samples]
    if not runs:
        return ()
    found: list[Instability] = []
    if any(o.telemetry.get("throttled") for o in runs):
        found.append(
            Instability(
                code="throttled",
                reason="the accelerator slowed itself down for power or heat",
                remedy="let it cool, raise its power limit, or lock its clocks below the throttling point",
            )
        )
    if jumps := [o for o in runs if "clock_jump_seconds" in o.environment]:
        found.append(
            Instability(
                code="clock-jump",
                reason=f"the machine's time was set during {len(jumps)} runs (samples come from a clock that was not)",
                remedy="measure again if the machine was suspended meanwhile",
            )
        )
    if unsteady := sum(not o.steady for o in runs):
        found.append(
            Instability(
                code="unsteady",
                reason=f"{unsteady} of {len(runs)} warm-ups reached no steady state",
                remedy="take longer samples (`--min-time`), or look for what else runs",
            )
        )
    stolen = _mean(runs, "stolen_cpu_percent_mean")
    if stolen > _STOLEN_PERCENT:
        found.append(
            Instability(
                code="stolen",
                reason=f"other machines on the host took {stolen:.0f} % of the processors",
                remedy="measure on a dedicated machine, or take more rounds",
            )
        )
    busy = _mean(runs, "other_cpu_percent_mean")
    if busy > _BUSY_PERCENT:
        found.append(
            Instability(
                code="busy",
                reason=f"other processes took {busy:.0f} % of the processors",
                remedy="stop them, or take more rounds",
            )
        )
    if any(o.environment.get("cpu_governor") not in (None, "performance") for o in runs):
        found.append(
            Instability(
                code="governor",
                reason=f"the processors' governor is `{runs[0].environment.get('cpu_governor')}`",
                remedy="set it to `performance` while measuring (`cpupower frequency-set -g performance`)",
            )
        )
    within = statistics.median(spread(o.samples) for o in runs)
    between = spread([statistics.median(o.samples) for o in runs])
    if within > _SPREAD_WITHIN:
        found.append(
            Instability(
                code="spread-within",
                reason=f"samples of one process vary by {within:.1%}",
                remedy="take longer samples (`--min-time`)",
            )
        )
    if between > _SPREAD_BETWEEN:
        found.append(
            Instability(
                code="spread-between",
                reason=f"medians of processes vary by {between:.1%}",
                remedy="take more rounds (`--rounds`): each is a fresh process",
            )
        )
    return tuple(found)


def spread(values: Iterable[float]) -> float:
    """Return the coefficient of variation; 0 for fewer than two values."""
    values = list(values)
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def _mean(runs: list[Observation], name: str) -> float:
    values = [o.telemetry[name] for o in runs if name in o.telemetry]
    return statistics.fmean(values) if values else 0.0


def _shown(value: Scalar) -> str:
    return "unknown" if value is None else str(value)
