"""Results of a framework's model for people: a predicted ratio, and the contrasts that support it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from knowledge.estimate.gains import PredictedGain
from knowledge.estimate.interface import Evidence
from knowledge.evidence.contrasts import Contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted speed-up and the contrasts that support it.

    Attributes:
        speedup: Predicted speed-up.
        low: Lower end of its interval.
        high: Upper end of its interval.
        confidence: Probability, under the model, that the interval contains the true value.
        measured: Whether both versions were measured.
        weighted_contrasts: Contrasts with their weights, largest contribution first: to first
            order, the log speed-up is the sum of weight times mean.
    """

    speedup: float
    low: float
    high: float
    confidence: float
    measured: bool
    weighted_contrasts: tuple[tuple[float, Contrast], ...]


def interval_of(gain: PredictedGain) -> tuple[float, float, float]:
    """Return a speed-up with the ends of its interval."""
    low, speedup, high = gain.ratios
    return speedup, low, high


def evidence_line(c: Contrast) -> Evidence:
    """Return a contrast as evidence for a report."""
    return Evidence(
        block=c.block,
        indicator=c.label,
        version=c.side.version,
        reference=c.reference.version,
        speedup=math.exp(c.mean),
        low=math.exp(c.low),
        high=math.exp(c.high),
        rounds=c.rounds,
        hardware=c.machine.name,
        source=c.source,
        year=c.year,
    )
