"""Coverage of the intervals at each level of noise, on simulated blocks without a true difference."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace

import pytest

from knowledge.domain.observation import Observation
from knowledge.evidence.compare import Comparison, compare_block
from tests.knowledge.samples import RUN, observation

NORMAL_QUANTILE = 1.959964


def alike(seed: int, *, arms: int, rounds: int, deviations: tuple[float, ...], block: str) -> Iterator[Observation]:
    """Yield a block of equal stacks; each indicator has the standard deviation of its own log times."""
    generator = random.Random(seed)
    runs = [replace(RUN, parameters={"m": 8 * (place + 1), "n": 8, "k": 8}) for place in range(len(deviations))]
    stacks = [observation(arm=arm, reference=arm == 0, block=block) for arm in range(arms)]
    for number in range(rounds):
        for stack in stacks:
            for run, deviation in zip(runs, deviations, strict=True):
                seconds = math.exp(generator.gauss(0, deviation))
                yield replace(stack, indicator=run, round=number, samples=(seconds, seconds))


def deviation_of(comparison: Comparison, deviations: tuple[float, ...]) -> float:
    return deviations[int(str(comparison.observation.indicator.parameters["m"])) // 8 - 1]


LEVELS = (0.01, 0.01, 0.01, 0.01, 0.05)


@pytest.mark.parametrize(
    ("arms", "rounds", "blocks"),
    [(2, 8, 200), (2, 3, 300), (3, 4, 160), (3, 8, 120), (6, 6, 120), (8, 3, 160), (8, 8, 100)],
)
def test_intervals_have_their_nominal_coverage_at_every_level_of_noise(arms: int, rounds: int, blocks: int) -> None:
    outside_by_level: dict[float, list[bool]] = {deviation: [] for deviation in LEVELS}
    wrong = 0
    for seed in range(blocks):
        comparisons = compare_block(alike(seed, arms=arms, rounds=rounds, deviations=LEVELS, block="b"))
        wrong += any(c.significant for c in comparisons)
        for c in comparisons:
            outside_by_level[deviation_of(c, LEVELS)].append(abs(c.ratio.mean) > NORMAL_QUANTILE * c.normal_error)

    # 5 % miss the true value, in groups, since arms share a reference. Pooled over indicators, 13 to 19 % would.
    for outside in outside_by_level.values():
        assert sum(outside) <= 0.05 * len(outside) + 3.5 * math.sqrt(0.05 * len(outside))
    # In 95 % of the blocks, all intervals of the block contain the true values.
    assert wrong <= 0.05 * blocks + 2 * math.sqrt(0.05 * blocks)


def test_intervals_of_many_arms_of_one_indicator_are_shorter_than_each_alone() -> None:
    """Without this test, a program that shares no variance between arms would pass: its intervals are wide."""
    few, many = (
        [
            c.normal_error / 0.01
            for seed in range(30)
            for c in compare_block(alike(seed, arms=arms, rounds=3, deviations=(0.01,), block="b"))
        ]
        for arms in (2, 9)
    )

    assert statistics.median(many) < 0.7 * statistics.median(few)
    # The trimmed mean of three ratios, each of two runs.
    assert statistics.median(many) > math.sqrt(2 / 3)
