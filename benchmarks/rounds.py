"""Which estimator of a paired ratio holds when something else on the machine slows rounds down?

    python -m benchmarks.rounds               coverage, power, width and error on simulated blocks
    python -m benchmarks.rounds --shipped     how often the A/A controls that ship are called different
    python -m benchmarks.rounds --constants   efficiency and degrees of freedom of the trimmed mean

A simulated block has a reference and four slots, three indicators, drift from round to round, noise that all indicators
of a process share and noise of their own (a standard deviation of about 2 % each round), whose size differs by
indicator. A share of the processes is slowed by a factor whose logarithm is exponential. Coverage and power are at the
5 % level for each comparison, without the correction for their number.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from knowledge.estimate.compare import compare_block
from knowledge.estimate.moderation import estimate_prior
from knowledge.estimate.paired import locate
from knowledge.store.engine import open_knowledge_base

Array = NDArray[np.float64]
Interval = tuple[Array, Array, Array]
"""Estimates with the lower and upper ends of their intervals, each (blocks, comparisons)."""
SLOTS, INDICATORS = 4, 3
NOISE = 0.02
EFFECT = 0.1
TAIL = 0.975
RESAMPLES = 400


def simulate(generator: np.random.Generator, *, blocks: int, rounds: int, disturbed: float, scale: float) -> Array:
    """Return log ratios (blocks, comparisons, rounds) of slots that are as fast as their reference."""
    sizes = NOISE * np.exp(generator.normal(0, 0.5, (blocks, 1, 1, INDICATORS)))
    shape = blocks, rounds, SLOTS + 1
    seconds = generator.normal(size=(*shape, INDICATORS)) * sizes + generator.normal(0, NOISE / 2, (*shape, 1))
    seconds += generator.normal(0, 0.05, (blocks, rounds, 1, 1))
    for share, columns in ((disturbed, 1), (disturbed / 2, INDICATORS)):
        seconds += (generator.random((*shape, columns)) < share) * generator.exponential(scale, (*shape, columns))
    ratios = seconds[:, :, :1] - seconds[:, :, 1:]
    return np.moveaxis(ratios, 1, -1).reshape(blocks, SLOTS * INDICATORS, rounds)


def _student(value: Array, variance: Array, degrees: float, *, moderated: bool) -> Interval:
    """Return Student's intervals, with variances as they are or moderated within each block."""
    every = np.full(value.shape, degrees)
    if moderated:
        priors = [estimate_prior([(float(v), degrees) for v in row]) for row in variance]
        found = [[p.moderate(float(v), degrees) for v in row] for p, row in zip(priors, variance, strict=True)]
        variance, every = np.array([[v for v, _ in row] for row in found]), np.array([[d for _, d in r] for r in found])
    half = np.sqrt(variance) * stdtrit(every, TAIL)
    return value, value - half, value + half


def mean(ratios: Array, *, moderated: bool) -> Interval:
    """The mean with its t interval."""
    rounds = ratios.shape[-1]
    return _student(ratios.mean(-1), ratios.var(-1, ddof=1) / rounds, rounds - 1.0, moderated=moderated)


def trimmed(ratios: Array, *, moderated: bool) -> Interval:
    """What the program does: the trimmed mean with its Winsorised variance."""
    found = [[locate(row) for row in block] for block in ratios.tolist()]
    value = np.array([[one.value for one in row] for row in found])
    variance = np.array([[one.variance for one in row] for row in found]) / ratios.shape[-1]
    return _student(value, variance, found[0][0].degrees, moderated=moderated)


def hodges_lehmann(ratios: Array) -> Interval:
    """The median of the pairwise means with the exact signed-rank interval; without limits where there is none."""
    rounds = ratios.shape[-1]
    i, j = np.triu_indices(rounds)
    walsh = np.sort((ratios[..., i] + ratios[..., j]) / 2, axis=-1)
    place = _signed_rank(rounds)
    value = np.median(walsh, axis=-1)
    if not place:
        return value, np.full_like(value, -np.inf), np.full_like(value, np.inf)
    return value, walsh[..., place - 1], walsh[..., -place]


@cache
def _signed_rank(rounds: int) -> int:
    """Return how many pairwise means lie outside the exact interval at each end."""
    ways = np.ones(1)
    for rank in range(1, rounds + 1):
        wider = np.zeros(len(ways) + rank)
        wider[: len(ways)] += ways
        wider[rank:] += ways
        ways = wider
    return int(np.searchsorted(np.cumsum(ways) / 2.0**rounds, 1 - TAIL, side="right"))


def bootstrapped(ratios: Array) -> Interval:
    """The trimmed mean with its percentile bootstrap."""
    rounds = ratios.shape[-1]
    cut = 1 if rounds == 3 else rounds // 4
    drawn = np.random.default_rng(2).integers(0, rounds, (RESAMPLES, rounds))
    means = np.sort(ratios[..., drawn], axis=-1)[..., cut : rounds - cut].mean(-1)
    low, high = np.quantile(means, [1 - TAIL, TAIL], axis=-1)
    return np.sort(ratios, axis=-1)[..., cut : rounds - cut].mean(-1), low, high


ESTIMATORS: dict[str, Callable[[Array], Interval]] = {
    "mean, t": lambda ratios: mean(ratios, moderated=False),
    "mean, moderated t": lambda ratios: mean(ratios, moderated=True),
    "Hodges-Lehmann, signed rank": hodges_lehmann,
    "trimmed mean, bootstrap": bootstrapped,
    "trimmed mean, Winsorised t": lambda ratios: trimmed(ratios, moderated=False),
    "trimmed mean, moderated t (as shipped)": lambda ratios: trimmed(ratios, moderated=True),
}


def compare_estimators(blocks: int) -> Iterator[str]:
    """Yield the table."""
    yield "| rounds | disturbed | estimator | coverage | 10 % found | median width | RMSE |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for rounds in (3, 4, 6, 8, 12):
        for disturbed, scale in ((0.0, 0.0), (0.1, 0.5), (0.2, 0.5), (0.3, 1.0)):
            ratios = simulate(np.random.default_rng(1), blocks=blocks, rounds=rounds, disturbed=disturbed, scale=scale)
            for name, estimate in ESTIMATORS.items():
                value, low, high = estimate(ratios)
                covered = np.mean((low <= 0) & (high >= 0))
                found = np.mean(low + EFFECT > 0)
                error = math.sqrt(float(np.mean(value**2)))
                yield (
                    f"| {rounds} | {disturbed:.0%} | {name} | {covered:.1%} | {found:.1%} | "
                    f"{np.median(high - low):.3f} | {error:.4f} |"
                )


def controls() -> Iterator[str]:
    """Yield, for each shipped block, how many of its A/A controls are called different at the 5 % level."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        for block in store.blocks():
            found = [c for c in compare_block(store.observations(block=block.name)) if c.twin]
            if found:
                wrong = sum(abs(c.mean) > stdtrit(c.degrees, TAIL) * c.standard_error for c in found)
                yield f"{block.name}: {wrong} of {len(found)} A/A controls, {found[0].rounds} rounds"


def constants() -> Iterator[str]:
    """Yield what the trimmed mean of normal differences costs, and how well its variance is known."""
    generator = np.random.default_rng(0)
    for rounds in range(2, 13):
        found = [locate(row) for row in generator.normal(size=(40_000, rounds)).tolist()]
        values, variances = np.array([f.value for f in found]), np.array([f.variance for f in found])
        yield (
            f"{rounds} rounds: variance over that of the mean {rounds * values.var():.3f}, over its own "
            f"estimate {rounds * values.var() / variances.mean():.3f}; degrees of freedom "
            f"{2 * variances.mean() ** 2 / variances.var():.2f}, taken as {found[0].degrees:.2f}"
        )


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=300, help="simulated blocks of each kind")
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--constants", action="store_true")
    asked = parser.parse_args()
    lines = controls() if asked.shipped else constants() if asked.constants else compare_estimators(asked.blocks)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
