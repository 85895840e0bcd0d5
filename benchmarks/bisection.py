"""Compare ways to isolate slow differences between two stacks, on simulated machines: right answers, runs, stacks.

    python -m benchmarks.bisection [--problems 100] [--differences 12] [--culprits 2] [--loss 0.05] [--deviation 0.01]

`path`: what `advisor bisect` does (`advisor/experiment/bisection.py`). `ddmin`: the minimising delta debugging of
Zeller and Hildebrandt, with the test "is the bad stack without these differences as fast as the good one?". `each`:
the bad stack without each difference alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from advisor.experiment.bisection import GOOD, Bisection, Combination, PathSection
from advisor.experiment.experiment import ArmRun, Laboratory

ROUND_DEVIATION = 0.03


class SimulatedMachine(Laboratory):
    """A machine on which differences have true losses that add up."""

    def __init__(self, losses: Sequence[float], deviation: float, seed: int) -> None:
        self.losses, self.deviation, self.random = losses, deviation, np.random.default_rng(seed)
        self.rounds: dict[int, float] = {}
        self.runs = 0
        self.arms: list[Combination] = []
        self.stacks: set[Combination] = set()

    def run(self, round_number: int, arm: int) -> ArmRun:
        """Run a combination once."""
        combination = self.arms[max(arm, 0)]
        self.runs += 1
        self.stacks.add(combination)
        drift = self.rounds.setdefault(round_number, float(self.random.normal(0, ROUND_DEVIATION)))
        loss = sum(self.losses[difference] for difference in combination)
        return ArmRun(seconds=math.exp(loss + drift + float(self.random.normal(0, self.deviation))))

    def seconds_of(self, arm: int) -> float:
        """Return the duration of a run."""
        return 0.0


def by_path(bisection: Bisection) -> Combination:
    """Return what the bisection explains."""
    bisection.run()
    return frozenset().union(*(culprit.differences for culprit in bisection.culprits))


def by_ddmin(bisection: Bisection) -> Combination:
    """Return a smallest set of differences without which the bad stack is as fast as the good one."""
    bad = bisection.bad

    def recovers(removed: Iterable[int]) -> bool:
        without = bad - frozenset(removed)
        return without == GOOD or bisection.compare(PathSection(GOOD, without)) != "slower"

    if bisection.compare(PathSection(GOOD, bad)) != "slower":
        return frozenset()
    removed, number = sorted(bad), 2
    while len(removed) > 1:
        chunks = [[int(item) for item in chunk] for chunk in np.array_split(removed, number)]
        rests = [[item for item in removed if item not in chunk] for chunk in chunks]
        smaller = next((subset for subset in (*chunks, *rests) if subset and recovers(subset)), None)
        if smaller is not None:
            number = 2 if smaller in chunks else max(number - 1, 2)
            removed = smaller
        elif number == len(removed):
            break
        else:
            number = min(2 * number, len(removed))
    return frozenset(removed)


def by_each(bisection: Bisection) -> Combination:
    """Return the differences without which, each alone, the bad stack is faster."""
    bad = bisection.bad
    if bisection.compare(PathSection(GOOD, bad)) != "slower":
        return frozenset()
    sections = {number: PathSection(bad - {number}, bad) for number in bad}
    return frozenset(number for number, section in sections.items() if bisection.compare(section) == "slower")


METHODS: dict[str, Callable[[Bisection], Combination]] = {"path": by_path, "ddmin": by_ddmin, "each": by_each}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--differences", type=int, default=12)
    parser.add_argument("--culprits", type=int, default=2)
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--deviation", type=float, default=0.01)
    values = parser.parse_args()
    print("| method | right | runs | stacks |\n| --- | --- | --- | --- |")
    for name, method in METHODS.items():
        right, runs, stacks = 0, [], []
        for seed in range(values.problems):
            culprits = np.random.default_rng(seed).choice(values.differences, values.culprits, replace=False)
            losses = np.zeros(values.differences)
            losses[culprits] = math.log1p(values.loss)
            machine = SimulatedMachine(losses.tolist(), values.deviation, seed)
            needs = [GOOD] * values.differences
            bisection = Bisection(needs=needs, laboratory=machine, add=machine.arms.append, budget_seconds=math.inf)
            answer = method(bisection)
            right += answer == frozenset(map(int, culprits))
            runs.append(machine.runs)
            stacks.append(len(machine.stacks))
        print(f"| {name} | {right} of {values.problems} | {np.mean(runs):.0f} | {np.mean(stacks):.1f} |")


if __name__ == "__main__":
    main()
