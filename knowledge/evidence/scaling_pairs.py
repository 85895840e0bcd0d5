"""Pairs of published rows that differ in the number of accelerators only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from knowledge.evidence.accelerator_rows import REQUESTS, TO_QUALITY, AcceleratorRow

WIDEST_LOSS = math.log(4)
"""Largest log ratio of the work of an accelerator alone to its work with others: beyond it, a table has mixed up the
batch of one accelerator with that of all. The bound is a judgement."""
MOST_GAIN = math.log(1.25)
"""Largest log ratio in the other direction: an accelerator does more work with others only by a larger total batch, or
because a smaller part of the model fits better into its memory. The bound is a judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPair:
    """Two rows of one configuration and one model of accelerators, with the same batch size for each accelerator.

    Attributes:
        source: Who published them.
        configuration: What is the same in both.
        regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.
        batch: Batch size of each accelerator; empty if it is not stated.
        task: The whole model.
        mode: ``training`` or ``inference``.
        is_to_quality: Whether the time is that of a training to a required quality, which takes more items if the batch
            of all accelerators is larger.
        accelerator: Name of the model in the catalogue.
        few: The smaller number of accelerators.
        many: The larger number.
        seconds: Time on the few, of an item or of the whole training.
        mean: Log efficiency: work of each of many accelerators, divided by that of each of the few.
    """

    source: str
    configuration: str
    regime: str
    batch: str
    task: str
    mode: str
    is_to_quality: bool
    accelerator: str
    few: int
    many: int
    seconds: float
    mean: float


def scaling_pairs(rows: Iterable[AcceleratorRow]) -> tuple[ScalingPair, ...]:
    """Return the pairs of each configuration, accelerator and batch size, all with the smallest number.

    Submitters to MLPerf do not state the batch size; there, it is chosen for each number of accelerators.
    """
    groups: dict[tuple[str, ...], dict[int, AcceleratorRow]] = defaultdict(dict)
    for row in rows:
        if row.regime_of_batch == REQUESTS:
            # More accelerators answer more requests, and none of them in less time.
            continue
        key = (row.source, row.configuration, row.task, row.mode, row.regime, row.accelerator, row.batch)
        groups[key][row.count] = row
    pairs = []
    for _, listed in sorted(groups.items()):
        first, *others = (listed[count] for count in sorted(listed))
        for row in others:
            mean = math.log(first.seconds * first.count / (row.seconds * row.count))
            if -WIDEST_LOSS <= mean <= MOST_GAIN:
                pairs.append(_pair(first, row, mean))
    return tuple(pairs)


def _pair(first: AcceleratorRow, row: AcceleratorRow, mean: float) -> ScalingPair:
    return ScalingPair(
        source=row.source,
        configuration=row.configuration,
        regime=row.regime,
        batch=row.batch,
        task=row.task,
        mode=row.mode,
        is_to_quality=row.unit == TO_QUALITY,
        accelerator=row.accelerator,
        few=first.count,
        many=row.count,
        seconds=first.seconds,
        mean=mean,
    )
