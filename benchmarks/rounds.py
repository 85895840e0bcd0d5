"""Compare estimators of a paired ratio on blocks in which other load of the machine slows some processes down.

    python -m benchmarks.rounds               coverage, power, width and error on simulated blocks
    python -m benchmarks.rounds --levels      coverage at each level of noise, with the comparison of whole blocks
    python -m benchmarks.rounds --shipped     how many A/A controls of the shipped blocks differ significantly
    python -m benchmarks.rounds --constants   efficiency and degrees of freedom of the trimmed mean

A simulated block has a reference and eight arms, three indicators, drift from round to round, noise that all
indicators of a process share, and noise of each indicator (a standard deviation of about 2 % per round, different for
each indicator). A share of the processes is slowed by a factor whose logarithm is exponential. Coverage and power are
at the 5 % level for each comparison, without the correction for their number. `--levels` has five indicators, four of
them with a noise of 1 % and one with 5 %; or arms of which one is three times as noisy as the others.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.hardware import Cpu, HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation
from knowledge.domain.ratio import NORMAL_QUANTILE
from knowledge.domain.stack import make_stack
from knowledge.evidence.compare import compare_block
from knowledge.evidence.paired_ratio import estimate_prior, locate
from knowledge.store.engine import open_knowledge_base

Array = NDArray[np.float64]
Interval = tuple[Array, Array, Array]
"""Estimates with the lower and upper ends of their intervals, each (blocks, comparisons)."""
ARMS, INDICATORS = 8, 3
NOISE = 0.02
EFFECT = 0.1
TAIL = 0.975
RESAMPLES = 400
INDICATORS_AT_LEVELS = 5
_RUN = Observation(
    indicator=IndicatorRun(name="0", version=1, backend="numpy", device="cpu", dtype="float32", parameters={}),
    framework="numpy",
    stack=make_stack([], python="3.11.7", platform="linux_x86_64"),
    hardware=HardwareProfile(name="simulated", cpu=Cpu(architecture="x86_64", microarchitecture="x86_64")),
    block="simulated",
    round=0,
    arm=0,
    reference=True,
    started_at="2026-01-01T00:00:00Z",
    status="ok",
    samples=(1.0,),
    loops=1,
    failure="",
)


def simulate(generator: np.random.Generator, *, blocks: int, rounds: int, disturbed: float, scale: float) -> Array:
    """Return log ratios (blocks, comparisons, rounds) of arms that are as fast as their reference."""
    sizes = NOISE * np.exp(generator.normal(0, 0.5, (blocks, 1, 1, INDICATORS)))
    shape = blocks, rounds, ARMS + 1
    seconds = generator.normal(size=(*shape, INDICATORS)) * sizes + generator.normal(0, NOISE / 2, (*shape, 1))
    seconds += generator.normal(0, 0.05, (blocks, rounds, 1, 1))
    for share, columns in ((disturbed, 1), (disturbed / 2, INDICATORS)):
        seconds += (generator.random((*shape, columns)) < share) * generator.exponential(scale, (*shape, columns))
    ratios = seconds[:, :, :1] - seconds[:, :, 1:]
    return np.moveaxis(ratios, 1, -1).reshape(blocks, ARMS * INDICATORS, rounds)


def _student(value: Array, variance: Array, degrees: float, *, moderated: bool) -> Interval:
    """Return Student's intervals, with variances as they are or moderated within each indicator of a block."""
    every = np.full(value.shape, degrees)
    if moderated:
        # The arms of each indicator share a prior of their variance.
        of_indicators = variance.reshape(-1, ARMS, INDICATORS).swapaxes(1, 2).reshape(-1, ARMS)
        priors = [estimate_prior([(float(v), degrees) for v in row]) for row in of_indicators]
        moderated_rows = [
            [p.moderate(float(v), degrees) for v in row] for p, row in zip(priors, of_indicators, strict=True)
        ]
        spread = np.array(moderated_rows).reshape(-1, INDICATORS, ARMS, 2).swapaxes(1, 2).reshape(*value.shape, 2)
        variance, every = spread[..., 0], spread[..., 1]
    half = np.sqrt(variance) * stdtrit(every, TAIL)
    return value, value - half, value + half


def mean(ratios: Array, *, moderated: bool) -> Interval:
    """Return the mean with its t interval."""
    rounds = ratios.shape[-1]
    return _student(ratios.mean(-1), ratios.var(-1, ddof=1) / rounds, rounds - 1.0, moderated=moderated)


def trimmed(ratios: Array, *, moderated: bool) -> Interval:
    """Return the estimate of the program: the trimmed mean with its Winsorised variance."""
    estimates = [[locate(row) for row in block] for block in ratios.tolist()]
    value = np.array([[estimate.value for estimate in row] for row in estimates])
    variance = np.array([[estimate.variance for estimate in row] for row in estimates]) / ratios.shape[-1]
    return _student(value, variance, estimates[0][0].degrees, moderated=moderated)


def hodges_lehmann(ratios: Array) -> Interval:
    """Return the median of the pairwise means with the exact signed-rank interval; infinite if there is none."""
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
    """Return the number of pairwise means outside the exact interval at each end."""
    ways = np.ones(1)
    for rank in range(1, rounds + 1):
        wider = np.zeros(len(ways) + rank)
        wider[: len(ways)] += ways
        wider[rank:] += ways
        ways = wider
    return int(np.searchsorted(np.cumsum(ways) / 2.0**rounds, 1 - TAIL, side="right"))


def bootstrapped(ratios: Array) -> Interval:
    """Return the trimmed mean with its percentile bootstrap interval."""
    rounds = ratios.shape[-1]
    cut = 1 if rounds == 3 else rounds // 4
    resamples = np.random.default_rng(2).integers(0, rounds, (RESAMPLES, rounds))
    means = np.sort(ratios[..., resamples], axis=-1)[..., cut : rounds - cut].mean(-1)
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
    yield "| rounds | disturbed | estimator | coverage | 10 % detected | median width | RMSE |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for rounds in (3, 4, 6, 8, 12):
        for disturbed, scale in ((0.0, 0.0), (0.1, 0.5), (0.2, 0.5), (0.3, 1.0)):
            ratios = simulate(np.random.default_rng(1), blocks=blocks, rounds=rounds, disturbed=disturbed, scale=scale)
            for name, estimate in ESTIMATORS.items():
                value, low, high = estimate(ratios)
                covered = np.mean((low <= 0) & (high >= 0))
                detected = np.mean(low + EFFECT > 0)
                error = math.sqrt(float(np.mean(value**2)))
                yield (
                    f"| {rounds} | {disturbed:.0%} | {name} | {covered:.1%} | {detected:.1%} | "
                    f"{np.median(high - low):.3f} | {error:.4f} |"
                )


def levels(blocks: int) -> Iterator[str]:
    """Yield how often intervals miss the truth at each level of noise, and how often a block has such an interval."""
    yield "| arms | rounds | noise | outside their own 95 % interval | blocks with a significant comparison |"
    yield "| --- | --- | --- | --- | --- |"
    even = {arms: [[noise] * arms for noise in (0.01, 0.01, 0.01, 0.01, 0.05)] for arms in (2, 3, 8)}
    uneven = {8: [[0.01] * 7 + [0.03]] * 5}
    for cases, rounds in ((cases, rounds) for cases in (even, uneven) for rounds in (3, 4, 8)):
        for arms, deviations in cases.items():
            generator = np.random.default_rng(arms)
            outside: dict[float, list[bool]] = {}
            wrong = 0
            for _ in range(blocks):
                logs = generator.normal(size=(rounds, INDICATORS_AT_LEVELS, arms)) * np.array(deviations)
                comparisons = compare_block(_observations(logs))
                wrong += any(c.significant for c in comparisons)
                for c in comparisons:
                    noise = deviations[int(c.observation.indicator.name)][c.arm]
                    outside.setdefault(noise, []).append(abs(c.ratio.mean) > NORMAL_QUANTILE * c.normal_error)
            for noise, misses in outside.items():
                yield f"| {arms} | {rounds} | {noise:.0%} | {np.mean(misses):.1%} | {wrong / blocks:.1%} |"


def _observations(logs: Array) -> Iterator[Observation]:
    """Yield a block with the given log seconds (rounds, indicators, arms) of equal stacks."""
    for (number, indicator, arm), value in np.ndenumerate(logs):
        run = replace(_RUN.indicator, name=str(indicator))
        seconds = math.exp(value)
        yield replace(_RUN, indicator=run, round=number, arm=arm, reference=arm == 0, samples=(seconds, seconds))


def controls() -> Iterator[str]:
    """Yield, for each shipped block, how many of its A/A controls differ significantly at the 5 % level."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        for block in store.blocks():
            comparisons = [c for c in compare_block(store.observations(block=block.name)) if c.is_control]
            if comparisons:
                wrong = sum(abs(c.ratio.mean) > stdtrit(c.degrees, TAIL) * c.ratio.deviation for c in comparisons)
                yield f"{block.name}: {wrong} of {len(comparisons)} A/A controls, {comparisons[0].rounds} rounds"


def constants() -> Iterator[str]:
    """Yield the efficiency of the trimmed mean of normal differences, and the degrees of freedom of its variance."""
    generator = np.random.default_rng(0)
    for rounds in range(2, 13):
        estimates = [locate(row) for row in generator.normal(size=(40_000, rounds)).tolist()]
        values, variances = np.array([f.value for f in estimates]), np.array([f.variance for f in estimates])
        yield (
            f"{rounds} rounds: variance over that of the mean {rounds * values.var():.3f}, over its own "
            f"estimate {rounds * values.var() / variances.mean():.3f}; degrees of freedom "
            f"{2 * variances.mean() ** 2 / variances.var():.2f}, taken as {estimates[0].degrees:.2f}"
        )


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=300, help="simulated blocks of each kind")
    parser.add_argument("--levels", action="store_true")
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--constants", action="store_true")
    options = parser.parse_args()
    if options.levels:
        lines = levels(options.blocks)
    else:
        lines = (
            controls() if options.shipped else constants() if options.constants else compare_estimators(options.blocks)
        )
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
