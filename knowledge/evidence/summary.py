"""Summary of the runs of one arm at one indicator: median, interval, variation, rates, share of the roofline."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.domain.observation import ENERGY_WINDOW, Observation
from knowledge.evidence.conditions import Instability, instabilities, spread

_RESAMPLES = 1000
_SEED = 20201


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Highest measured rates of a machine, for one element type on one device.

    Attributes:
        flops: Floating-point operations per second; ``None`` if not measured.
        bytes: Bytes per second; ``None`` if not measured.
    """

    flops: float | None
    bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The runs of one arm and indicator in a block.

    Attributes:
        observation: The first run, for stack, settings and indicator.
        runs: Number of successful runs.
        samples: Number of samples of all runs together.
        median: Median over rounds of the median seconds per call.
        low: Lower end of the 95 % bootstrap interval of the median.
        high: Upper end of it.
        variation: Coefficient of variation over the rounds' medians.
        flops: Floating-point operations per second at the median; 0 if not applicable.
        bytes: Bytes per second at the median; 0 if not applicable.
        items: Items (images, samples) per second at the median; 0 if not applicable.
        items_uncertainty: Standard error of the items per second, as tf_cnn_benchmarks prints after the `+/-`.
        items_jitter: Median absolute deviation of the items per second, scaled to a standard deviation, as
            tf_cnn_benchmarks prints it.
        intensity: Operations per byte; 0 if not applicable.
        roof_share: Share of the roofline at that intensity; ``None`` if the roofline was not measured.
        instabilities: Reasons why the timings are unstable.
        joules_per_call: Median over rounds of the energy of a call, by kind (``gpu``, ``cpu``, ``dram``), with idle
            power and other programs; without the rounds in which it was not measured.
        energy_seconds: Total length of the periods over which it was measured.
    """

    observation: Observation
    runs: int
    samples: int
    median: float
    low: float
    high: float
    variation: float
    flops: float
    bytes: float
    items: float
    items_uncertainty: float
    items_jitter: float
    intensity: float
    roof_share: float | None
    instabilities: tuple[Instability, ...]
    joules_per_call: Mapping[str, float]
    energy_seconds: float


RoofKey = tuple[str, str, str]
"""Hardware identity, device, element type."""


def roofs(observations: Iterable[Observation]) -> dict[RoofKey, Roof]:
    """Return the highest rates that any stack attained in the ``roofline`` indicator, by machine, device and type."""
    flops: dict[RoofKey, float] = defaultdict(float)
    moved: dict[RoofKey, float] = defaultdict(float)
    for o in observations:
        if o.indicator.name == "roofline" and o.status == "ok" and (median := o.median):
            kind = flops if o.indicator.parameters.get("roof") == "flops" else moved
            kind[_key(o)] = max(kind[_key(o)], (o.flops if kind is flops else o.bytes) / median)
    return {key: Roof(flops=flops.get(key), bytes=moved.get(key)) for key in {*flops, *moved}}


def _key(o: Observation) -> RoofKey:
    return o.hardware.identity, o.indicator.device, o.indicator.dtype


def summarise_block(observations: Iterable[Observation]) -> tuple[Summary, ...]:
    """Summarise every arm and indicator of one block, in order of indicator and arm."""
    observations = tuple(observations)
    rooflines = roofs(observations)
    groups: dict[tuple[str, int], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.status == "ok":
            groups[o.indicator.label, o.arm].append(o)
    return tuple(_summarise(runs, rooflines) for _, runs in sorted(groups.items()))


def _summarise(runs: Sequence[Observation], rooflines: Mapping[RoofKey, Roof]) -> Summary:
    first = runs[0]
    medians = [statistics.median(o.samples) for o in runs]
    median = statistics.median(medians)
    low, high = bootstrap([o.samples for o in runs])
    items = first.metrics.get("items", 0.0)
    speeds = [items / s for o in runs for s in o.samples]
    centre = statistics.median(speeds)
    return Summary(
        observation=first,
        runs=len(runs),
        samples=len(speeds),
        median=median,
        low=low,
        high=high,
        variation=spread(medians),
        flops=first.flops / median,
        bytes=first.bytes / median,
        items=items / median,
        items_uncertainty=statistics.stdev(speeds) / len(speeds) ** 0.5 if len(speeds) > 1 else 0.0,
        # https://github.com/tensorflow/benchmarks: 1.4826 times the median absolute deviation.
        items_jitter=1.4826 * statistics.median(abs(s - centre) for s in speeds),
        intensity=first.flops / first.bytes if first.bytes else 0.0,
        roof_share=_share(first, median, rooflines.get(_key(first))),
        instabilities=instabilities(runs),
        joules_per_call=_joules_per_call(runs),
        energy_seconds=sum(o.telemetry.get(ENERGY_WINDOW, 0.0) for o in runs),
    )


def _joules_per_call(runs: Iterable[Observation]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for o in runs:
        for kind, joules in o.joules_per_call.items():
            values[kind].append(joules)
    return {kind: statistics.median(joules) for kind, joules in sorted(values.items())}


def _share(o: Observation, median: float, roof: Roof | None) -> float | None:
    """Return the measured rate as a share of the rate that the roofline model permits (Williams et al. 2009)."""
    if roof is None or not (o.flops or o.bytes):
        return None
    bounds = [amount / rate for amount, rate in ((o.flops, roof.flops), (o.bytes, roof.bytes)) if rate and amount]
    return max(bounds) / median if bounds else None


def bootstrap(rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the median over rounds of the median of their samples.

    Rounds are drawn with replacement, and samples within each drawn round: processes differ more than
    the samples of one process, so both are resampled (Davison and Hinkley, Bootstrap Methods and their Application,
    1997, 3.8).
    """
    import numpy as np

    generator = np.random.default_rng(_SEED)
    sampled_rounds = generator.integers(0, len(rounds), size=(_RESAMPLES, len(rounds)))
    round_medians = np.empty(sampled_rounds.shape)
    for number, samples in enumerate(rounds):
        places = sampled_rounds == number
        within = generator.integers(0, len(samples), size=(int(places.sum()), len(samples)))
        round_medians[places] = np.median(np.array(samples)[within], axis=1)
    medians = np.median(round_medians, axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)
