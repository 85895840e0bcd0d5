"""How often noise alone changes a lock, on simulated knowledge bases with known true speeds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from packaging.version import Version

from advisor.resolve.score.costs import speed_steps
from knowledge.domain.observation import Observation
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.every_operation import EVERY_OPERATION
from tests.knowledge.samples import MACHINE, RUN, observation

VERSIONS = ("2.3.0", "2.2.0", "2.1.0", "2.0.0", "1.26.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Sources of noise in the time of a process.

    Attributes:
        deviation: Standard deviation of the log time of an indicator in a process.
        disturbed: Share of the processes that other load slows down.
        scale: Mean log factor of that slow-down.
        rounds: Number of rounds of a block.
        blocks: Number of blocks of the knowledge base.
        lasting: Standard deviation of the noise that is constant in a block: for each arm and each of its indicators.
    """

    deviation: float = 0.05
    disturbed: float = 0.0
    scale: float = 1.0
    rounds: int = 8
    blocks: int = 1
    lasting: float = 0.0


def knowledge(seed: int, noise: Noise, gain: float) -> Iterator[Observation]:
    """Yield blocks in which NumPy 2.1 has a given log speed-up over the other versions, which are equal."""
    generator = random.Random(seed)
    for block in range(noise.blocks):
        persistent = [[generator.gauss(0, noise.lasting) for _ in range(4)] for _ in range(len(VERSIONS) + 1)]
        for number in range(noise.rounds):
            drift = generator.gauss(0, 0.1)
            # The last arm is the A/A control.
            for arm, version in enumerate((*VERSIONS, VERSIONS[0])):
                slowed = generator.expovariate(1 / noise.scale) if generator.random() < noise.disturbed else 0.0
                shared = generator.gauss(0, noise.deviation / 2)
                for size in range(3):
                    own = generator.gauss(0, noise.deviation)
                    level = drift + slowed + shared + own + persistent[arm][3] + persistent[arm][size]
                    seconds = math.exp(level - gain * (version == "2.1.0"))
                    one = observation(version, round=number, arm=arm, reference=arm == 0, block=f"b{block}")
                    run = replace(RUN, parameters={"m": 8 * 2**size, "n": 8, "k": 8})
                    yield replace(one, indicator=run, samples=(seconds, seconds))


def leaves_the_baseline(seed: int, noise: Noise, gain: float = 0.0) -> bool:
    """Whether a version scores higher than the newest one with a knowledge base."""
    with open_knowledge_base("sqlite://", shipped=False) as store:
        store.add(knowledge(seed, noise, gain))
        estimator = WorkloadEstimator(
            ModelCache(store), hardware=MACHINE, workload=EVERY_OPERATION, frameworks=("numpy",)
        )
        offered = {"numpy": [Version(version) for version in VERSIONS]}
        terms = estimator.terms(offered, {"numpy": Version(VERSIONS[0])})
    return any(speed_steps(gain, framework.comparisons) > 0 for framework in terms for gain in framework.alone.values())


KINDS = (
    Noise(),
    Noise(disturbed=0.2, rounds=3),
    Noise(disturbed=0.2),
    Noise(deviation=0.1, disturbed=0.3, rounds=6),
    Noise(disturbed=0.1, scale=0.5, blocks=3, rounds=4),
    Noise(deviation=0.01, lasting=0.01),
)


@pytest.mark.parametrize("bases", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_noise_alone_changes_at_most_one_lock_in_twenty(bases: int) -> None:
    changed = {noise: sum(leaves_the_baseline(seed, noise) for seed in range(bases)) for noise in KINDS}

    assert sum(changed.values()) <= len(KINDS) * bases // 20
    # The limit holds for each kind of noise separately.
    assert max(changed.values()) <= bases // 10


def test_a_real_gain_changes_the_recommendation() -> None:
    # Without this test, a program that never leaves the baseline would pass the test above.
    followed = sum(leaves_the_baseline(seed, Noise(disturbed=0.1), gain=0.25) for seed in range(10))

    assert followed >= 8
