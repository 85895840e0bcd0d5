"""Whether an observation can be what a run gave: against physics, itself, and the program's own formulae."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation

MLPERF = "mlperf_training"
"""Runs of others, imported from published results: no indicator of this program."""
_EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
_SKEW = timedelta(minutes=5)
_LONGEST_SECONDS = 7 * 86400.0
_FORMULA_TOLERANCE = 1e-6
_SHORT = ("float16", "bfloat16", "int8")


class IndicatorCatalogue(Protocol):
    """What the program knows of indicators."""

    def version_of(self, name: str) -> int | None:
        """Return the newest version of an indicator's definition, or none where there is no such indicator."""

    def amounts(self, run: IndicatorRun) -> tuple[float, float] | None:
        """Return floating-point operations and bytes of a call, by the formulae; none where they do not apply."""


def implausibilities(o: Observation, catalogue: IndicatorCatalogue, *, now: datetime) -> Iterator[str]:
    """Yield what speaks against an observation, one sentence each; nothing where nothing does.

    Args:
        o: The observation; its form is sound.
        catalogue: The program's indicators.
        now: When it came.
    """
    yield from _of_time(o, now)
    yield from _of_samples(o)
    if o.indicator.name != MLPERF:
        yield from _of_indicator(o, catalogue)
        yield from _of_speed(o)


def _of_time(o: Observation, now: datetime) -> Iterator[str]:
    try:
        started = datetime.fromisoformat(o.started_at)
    except ValueError:
        yield f"it started at `{o.started_at}`, which is no time"
        return
    started = started if started.tzinfo else started.replace(tzinfo=UTC)
    if started > now + _SKEW:
        yield f"it started at {o.started_at}, which is still to come: the clock of its machine is wrong"
    elif started < _EARLIEST and o.indicator.name != MLPERF:
        # Ten published logs of MLPerf v0.7 count from 1970; their durations are sound.
        yield f"it started at {o.started_at}, before there was anything to measure: the clock of its machine is wrong"


def _of_samples(o: Observation) -> Iterator[str]:
    """Look at samples and what is told of them."""
    if o.status == "ok" and o.indicator.name != MLPERF and o.loops < 1:
        yield f"its samples are means over {o.loops} calls"
    if sum(o.samples) * max(1, o.loops) > _LONGEST_SECONDS and o.indicator.name != MLPERF:
        yield f"its samples take {sum(o.samples) * max(1, o.loops):.3g} seconds, longer than a week"
    if len(o.samples) >= 5 and len(set(o.samples)) == 1:
        yield f"all {len(o.samples)} samples are the same number: its clock does not resolve them"
    told = [(name, o.metrics[name]) for name in ("p50_seconds", "p90_seconds", "p99_seconds") if name in o.metrics]
    for (lower, less), (higher, more) in pairwise(told):
        if less > more:
            yield f"`{lower}` is {less:.3g} and `{higher}` {more:.3g}: percentiles do not fall"
    if (o.error is None) != (o.tolerance is None) and o.status in ("ok", "wrong-result"):
        return
    if o.status == "ok" and o.error is not None and o.tolerance is not None and not o.error <= o.tolerance:
        yield f"its result is off by {o.error:.3g}, more than the {o.tolerance:.3g} that it accepts, and yet `ok`"


def _of_indicator(o: Observation, catalogue: IndicatorCatalogue) -> Iterator[str]:
    newest = catalogue.version_of(o.indicator.name)
    if newest is None:
        yield f"there is no indicator `{o.indicator.name}`: it was measured by another program, or a newer one"
    elif not 1 <= o.indicator.version <= newest:
        yield f"version {o.indicator.version} of `{o.indicator.name}` is not known, the newest is {newest}"
    elif o.indicator.version == newest and (amounts := catalogue.amounts(o.indicator)) is not None:
        for name, told, formula in zip(("flops", "bytes"), (o.flops, o.bytes), amounts, strict=True):
            if told and abs(told - formula) > _FORMULA_TOLERANCE * max(told, formula):
                yield f"`{name}` is {told:.6g}, the indicator's formula gives {formula:.6g}"


def _of_speed(o: Observation) -> Iterator[str]:
    peak = peak_flops(o.hardware, o.indicator.device, o.indicator.dtype)
    if peak is None or not o.flops or not o.samples:
        return
    found = _peaks()
    saving = float(found["saving"].get(o.indicator.name, 1))
    rate = o.flops / min(o.samples)
    if rate > peak * saving * float(found["tolerance"]):
        yield f"{rate:.3g} FLOP/s are above the {peak * saving:.3g} that its hardware can do"


def peak_flops(hardware: HardwareProfile, device: str, dtype: str) -> float | None:
    """Return the most floating-point operations a second that hardware can do, from above; none where not known.

    Args:
        hardware: The machine.
        device: ``cpu``, or ``cuda`` for all of its GPUs together.
        dtype: Element type.
    """
    found = _peaks()
    if device == "cuda":
        gpu = hardware.gpu
        entry = found["gpu"].get(gpu.compute_capability) if gpu is not None else None
        if gpu is None or entry is None:
            return None
        factor = float(found["gpu"]["int8_factor"]) if dtype == "int8" else 1.0
        return float(entry["flops"]) * gpu.count * factor
    cores = hardware.cpu.cores or hardware.cpu.threads
    cycle = next((c["flops"] for c in found["cpu"]["cycle"] if c["feature"] in hardware.cpu.features), None)
    if device != "cpu" or cores is None or cycle is None:
        return None
    factor = float(found["cpu"]["short_factor"]) if dtype in _SHORT else 1.0
    return float(cycle) * cores * float(found["cpu"]["hertz"]) * factor


@cache
def _peaks() -> dict[str, Any]:
    import yaml

    text = importlib.resources.files("knowledge.admission").joinpath("peaks.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found
