"""What the runs of one arm and indicator say: median, interval, variation, rates, and the share of the roof."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knowledge.domain.observation import Observation
from knowledge.estimate.conditions import Instability, instabilities, spread

_RESAMPLES = 1000
_SEED = 20201


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What a machine attains at most, in one element type on one device.

    Attributes:
        flops: Floating-point operations a second; none where it was not measured.
        bytes: Bytes a second; none where it was not measured.
    """

    flops: float | None
    bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The runs of one arm and indicator in a block.

    Attributes:
        observation: The first run, for stack, settings and indicator.
        runs: How many runs succeeded.
        samples: How many samples they took together.
        median: Median over rounds of the median seconds per call.
        low: Lower end of the 95 % bootstrap interval of the median.
        high: Upper end of it.
        variation: Coefficient of variation over the rounds' medians.
        flops: Floating-point operations a second at the median; 0 where that says nothing.
        bytes: Bytes a second at the median; 0 where that says nothing.
        items: Items (images, samples) a second at the median; 0 where that says nothing.
        items_uncertainty: Standard error of the items a second, as tf_cnn_benchmarks prints after the `+/-`.
        items_jitter: Median absolute deviation of the items a second, scaled to a standard deviation, as
            tf_cnn_benchmarks prints it.
        intensity: Operations a byte; 0 where that says nothing.
        roof_share: Share of the roof at that intensity; none where the roof was not measured.
        instabilities: Why it is less sure than it could be.
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
    known = roofs(observations)
    groups: dict[tuple[str, int], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.status == "ok":
            groups[o.indicator.label, o.arm].append(o)
    return tuple(_summarise(runs, known) for _, runs in sorted(groups.items()))


def _summarise(runs: Sequence[Observation], known: Mapping[RoofKey, Roof]) -> Summary:
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
        roof_share=_share(first, median, known.get(_key(first))),
        instabilities=instabilities(runs),
    )


def _share(o: Observation, median: float, roof: Roof | None) -> float | None:
    """Return the attained rate over what the roofline model allows (Williams et al. 2009)."""
    if roof is None or not (o.flops or o.bytes):
        return None
    at_least = [amount / rate for amount, rate in ((o.flops, roof.flops), (o.bytes, roof.bytes)) if rate and amount]
    return max(at_least) / median if at_least else None


def bootstrap(rounds: Sequence[Sequence[float]], *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median over rounds of the median within them.

    Rounds are drawn with replacement, and samples within each drawn round: processes differ more than the samples of
    one process, so that both must vary (Davison and Hinkley, Bootstrap Methods and their Application, 1997, 3.8).

    Args:
        rounds: Samples of every round.
        confidence: Of the interval.
    """
    import numpy as np

    generator = np.random.default_rng(_SEED)
    drawn = generator.integers(0, len(rounds), size=(_RESAMPLES, len(rounds)))
    found = np.empty(drawn.shape)
    for number, samples in enumerate(rounds):
        places = drawn == number
        within = generator.integers(0, len(samples), size=(int(places.sum()), len(samples)))
        found[places] = np.median(np.array(samples)[within], axis=1)
    medians = np.median(found, axis=1)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)
