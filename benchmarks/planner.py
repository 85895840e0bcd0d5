"""Compare policies of experiments: regret after some minutes, minutes until it is certain, wrong statements.

    python -m benchmarks.planner [--problems 200] [--kind mixed|equal|informed|replay] [--uneven] [--arms 12]
        [--policy NAME]
    python -m benchmarks.planner --recorded

Simulated machines: with `mixed`, two of five changes do something, and nothing is known before. `equal`: no change does
anything. `informed`: predictions are as uncertain as they say. With `--uneven`, arms have noise of different sizes, as
in the quarter of the recorded programs where it differs most (`--recorded`). `replay`: whole models of the shipped
campaigns, with at least four arms and six rounds. A round of the experiment is a recorded one, drawn at random; the
truth is the mean of all recorded rounds.

A statement is wrong if the choice is slower than the reference, or if it is certain and another arm is faster by more
than the tolerance.

`--recorded` prints how alike the noise and the gains of arms are in the recorded programs.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from advisor.experiment.belief import prior_belief
from advisor.experiment.change import UNKNOWN_GAIN, Change
from advisor.experiment.experiment import CONTROL, REFERENCE, ArmRun, Experiment, Laboratory, Plan
from advisor.experiment.policy import Policy
from benchmarks.policies import policies
from knowledge.domain.observation import Observation
from knowledge.domain.ratio import Ratio
from knowledge.estimate.programs import PROGRAMS
from knowledge.evidence.paired_ratio import estimate_prior
from knowledge.exchange.files import read_observations
from knowledge.store.shipped_files import shipped_files

MINUTES = (5, 10, 20, 40, 60)
TOLERANCE = 0.02
ROUND_DEVIATION = 0.03
RUN_DEVIATION = 0.01
UNEVEN_DEGREES = 3.6
"""Degrees of freedom of the variances of arms with noise of different sizes."""
BUILD_SECONDS = 40.0


class SimulatedMachine(Laboratory):
    """A machine on which changes have true gains."""

    def __init__(self, kind: str, arms: int, is_uneven: bool, random: np.random.Generator) -> None:
        self.random = random
        count = arms - 1
        gains = np.where(random.random(count) < 0.4, random.normal(0, 0.1, count), 0.0)
        expected, deviations = np.zeros(count), np.full(count, UNKNOWN_GAIN.deviation)
        if kind == "equal":
            gains[:] = 0
        if kind == "informed":
            deviations = np.exp(random.uniform(math.log(0.01), math.log(0.15), count))
            expected = random.normal(0, 0.1, count) * (random.random(count) < 0.5)
        changes = [
            Change(
                name=f"setting{n}" if n >= arms // 2 else "package",
                value=n,
                is_setting=n >= arms // 2,
                numerics="exact" if n >= arms // 2 else "reordered",
                gain=Ratio(mean=float(expected[n]), variance=float(deviations[n]) ** 2),
            )
            for n in range(count)
        ]
        self.arms: list[tuple[Change, ...]] = [(), *((change,) for change in changes)]
        if kind == "informed":
            belief = prior_belief(self.arms)
            gains = random.multivariate_normal(belief.mean, belief.covariance)[1:]
        self.gains = dict(zip(changes, map(float, gains), strict=True))
        self.deviations = [RUN_DEVIATION] * (count + 1)
        if is_uneven:
            variances = UNEVEN_DEGREES / random.chisquare(UNEVEN_DEGREES, count + 1)
            self.deviations = [RUN_DEVIATION * math.sqrt(variance) for variance in variances]
        self.speeds = [sum(self.gains[c] for c in changes) for changes in self.arms]
        self.seconds = float(random.choice([6, 15, 30]))
        self.built = {0}
        self.time = 0.0
        self.level = (-1, 0.0)

    def run(self, round_number: int, arm: int) -> ArmRun:
        """Return a simulated run; time passes."""
        arm = max(arm, REFERENCE)
        self.time += self.seconds_of(arm)
        self.built.add(arm)
        if self.level[0] != round_number:
            self.level = round_number, self.random.normal(0, ROUND_DEVIATION)
        noise = self.random.normal(0, self.deviations[arm])
        return ArmRun(seconds=math.exp(self.level[1] - self.speeds[arm] + noise))

    def seconds_of(self, arm: int) -> float:
        """Return the duration of the next run of an arm."""
        needs_build = arm not in self.built and any(not change.is_setting for change in self.arms[arm])
        return self.seconds * math.exp(-self.speeds[arm]) + (BUILD_SECONDS if needs_build else 0.0)

    def combine(self, changes: Sequence[Change]) -> bool:
        """Add an arm whose gain is the sum of its changes and of a small interaction."""
        self.arms.append(tuple(changes))
        self.deviations.append(max(self.deviations[self.arms.index((change,))] for change in changes))
        interaction = self.random.normal(0, 0.03) if any(self.gains.values()) else 0.0
        self.speeds.append(sum(self.gains[change] for change in changes) + interaction)
        return True

    def now(self) -> float:
        """Return the simulated time."""
        return self.time


Table = dict[int, tuple[float, ...]]
"""Logarithms of the seconds of each arm, one for each recorded round; the reference is arm 0."""


class ReplayedMachine(Laboratory):
    """A machine whose rounds are those of a recorded block, in a random order, with repetitions."""

    def __init__(self, table: Table, new_stacks: Collection[int], random: np.random.Generator) -> None:
        self.random = random
        self.table = table
        self.rounds = len(table[REFERENCE])
        self.speeds = [-float(np.mean(table[arm])) for arm in sorted(table)]
        self.speeds = [speed - self.speeds[REFERENCE] for speed in self.speeds]
        self.arms: list[tuple[Change, ...]] = [
            (),
            *(((Change(name=f"arm{arm}", value="on", is_setting=arm not in new_stacks)),) for arm in sorted(table)[1:]),
        ]
        self.new_stacks = set(new_stacks)
        self.seconds = 15.0
        self.time = 0.0
        self.place: dict[int, int] = {}

    def run(self, round_number: int, arm: int) -> ArmRun:
        """Return a recorded run; time passes."""
        number = max(arm, REFERENCE)
        self.time += self.seconds_of(number)
        self.new_stacks.discard(number)
        place = self.place.setdefault(round_number, int(self.random.integers(self.rounds)))
        # The control is the reference in another recorded round.
        place = (place + 1) % self.rounds if arm == CONTROL else place
        return ArmRun(seconds=math.exp(self.table[number][place]))

    def seconds_of(self, arm: int) -> float:
        """Return the duration of the next run of an arm: that of the reference is always the same."""
        return self.seconds * math.exp(-self.speeds[arm]) + (BUILD_SECONDS if arm in self.new_stacks else 0.0)

    def now(self) -> float:
        """Return the simulated time."""
        return self.time


Machine = SimulatedMachine | ReplayedMachine


def recorded_tables() -> list[tuple[Table, set[int]]]:
    """Return the recorded rounds of each whole model in each shipped block, and the arms with another stack."""
    cells: dict[tuple[str, str], dict[int, dict[int, Observation]]] = defaultdict(lambda: defaultdict(dict))
    for file in shipped_files():
        if file.name.startswith("2026"):
            for o in read_observations(file.lines(), where=file.name):
                if o.status == "ok" and o.indicator.name in PROGRAMS:
                    cells[o.block, o.indicator.label][o.arm][o.round] = o
    tables = []
    for arms in cells.values():
        references = [arm for arm, runs in arms.items() if next(iter(runs.values())).reference]
        if len(references) != 1:
            continue
        first = next(iter(arms[references[0]].values()))
        others = {
            arm: runs
            for arm, runs in arms.items()
            if (o := next(iter(runs.values()))).stack != first.stack or o.settings != first.settings
        }
        shared = set.intersection(*(set(runs) for runs in (arms[references[0]], *others.values())))
        if len(others) < 3 or len(shared) < 6:
            continue
        rows = [arms[references[0]], *others.values()]
        table = {
            number: tuple(math.log(statistics.median(runs[r].samples)) for r in sorted(shared))
            for number, runs in enumerate(rows)
        }
        new = {n for n, runs in enumerate(rows) if next(iter(runs.values())).stack != first.stack}
        tables.append((table, new))
    return tables


def print_recorded() -> None:
    """Print how alike the noise of a program's arms is, and the gains of its stacks."""
    degrees, moments = [], []
    for table, stacks in recorded_tables():
        rows = np.array([np.subtract(table[REFERENCE], table[arm]) for arm in table if arm != REFERENCE])
        prior = estimate_prior([(float(np.var(row, ddof=1)), len(row) - 1) for row in rows])
        degrees += [prior.degrees] if prior.degrees else []
        if len(stacks) > 1:
            rows = rows[[arm - 1 for arm in sorted(stacks)]]
            # The mean products of gains, without those of their errors.
            products = np.outer(rows.mean(axis=1), rows.mean(axis=1)) - np.cov(rows) / rows.shape[1]
            own = np.trace(products)
            moments.append((own / len(rows), (products.sum() - own) / (len(rows) * (len(rows) - 1))))
    quantiles = np.quantile(degrees, (0.1, 0.25, 0.5))
    print(f"noise: {len(degrees)} programs; degrees of freedom: 10 % below {quantiles[0]:.1f}, ", end="")
    print(f"25 % below {quantiles[1]:.1f}, 50 % below {quantiles[2]:.1f}")
    for most in (math.inf, 0.1):
        own, both = np.sum([m for m in moments if m[0] < most], axis=0)
        print(f"gains with mean squares below {most}: correlation {both / own:.2f}")


def play(machine: SimulatedMachine | ReplayedMachine, policy: Policy) -> tuple[list[tuple[float, int]], Experiment]:
    """Return the choice before each run with its time, and the experiment."""
    plan = Plan(budget_seconds=60.0 * MINUTES[-1], tolerance=TOLERANCE, policy=policy)
    history = [(0.0, REFERENCE)]
    experiment = Experiment(plan=plan, arms=[*machine.arms], laboratory=machine)
    experiment.notify = lambda *_: history.append((machine.time, experiment.last_decision().choice))
    experiment.run()
    history.append((machine.time, experiment.decision.choice))
    return history, experiment


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--kind", default="mixed", choices=("mixed", "equal", "informed", "replay"))
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--arms", type=int, default=12)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--policy", choices=policies(0), help="one of them (default: all)")
    options = parser.parse_args()
    if options.uneven and options.kind == "replay":
        parser.error("--uneven is for simulated machines: recorded rounds have their own noise")
    if options.recorded:
        print_recorded()
        return
    tables = recorded_tables() if options.kind == "replay" else []
    if tables:
        print(f"{len(tables)} recorded blocks and models, {sum(len(table) for table, _ in tables)} arms")
    print(f"{'policy':20} " + " ".join(f"{m:>3} min" for m in MINUTES) + "  certain after  never  wrong  changed")
    for name in policies(0):
        if options.policy not in (None, name):
            continue
        regrets: dict[int, list[float]] = defaultdict(list)
        stops, wrong, changed = [], 0, 0
        for seed in range(options.problems):
            random = np.random.default_rng(seed)
            machine: Machine
            if tables:
                machine = ReplayedMachine(*tables[seed % len(tables)], random)
            else:
                machine = SimulatedMachine(options.kind, options.arms, options.uneven, random)
            history, experiment = play(machine, policies(seed)[name])
            best = max(machine.speeds)
            for minutes in MINUTES:
                choice = next(arm for time, arm in reversed(history) if time <= 60 * minutes)
                regrets[minutes].append(1 - math.exp(machine.speeds[choice] - best))
            last = machine.speeds[history[-1][1]]
            is_certain = experiment.decision.is_certain
            wrong += last < 0 or (is_certain and best - last > math.log1p(TOLERANCE))
            changed += history[-1][1] != REFERENCE
            stops += [machine.time / 60] if is_certain else []
        row = " ".join(f"{100 * np.mean(regrets[m]):5.2f} %" for m in MINUTES)
        median = np.median(stops) if stops else math.nan
        never = options.problems - len(stops)
        print(f"{name:20} {row}  {median:9.1f} min  {never:5}  {wrong:5}  {changed:7}", flush=True)


if __name__ == "__main__":
    main()
