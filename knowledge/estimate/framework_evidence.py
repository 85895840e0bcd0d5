"""Results of a framework's model for people: a predicted ratio, and the contrasts that support it."""

from __future__ import annotations

from dataclasses import dataclass

from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.estimate.interface import Evidence
from knowledge.evidence.contrasts import Contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(WithRatio):
    """A predicted speed-up and the contrasts that support it.

    Attributes:
        ratio: Predicted speed-up.
        confidence: Probability, under the model, that the interval contains the true value.
        measured: Whether both versions were measured.
        weighted_contrasts: Contrasts with their weights, largest contribution first: to first
            order, the log speed-up is the sum of weight times mean.
    """

    ratio: Ratio
    confidence: float
    measured: bool
    weighted_contrasts: tuple[tuple[float, Contrast], ...]


def evidence_line(c: Contrast) -> Evidence:
    """Return a contrast as evidence for a report."""
    return Evidence(
        block=c.block,
        indicator=c.label,
        version=c.side.version,
        reference=c.reference.version,
        ratio=c.ratio,
        rounds=c.rounds,
        hardware=c.machine.name,
        source=c.source,
        year=c.year,
    )
