"""Value of information: how much further measurements are expected to improve decisions about versions and settings.

A decision is a choice between options, of which one has the largest predicted speed now. A measurement has a value
because another option may have it afterwards (Howard, "Information Value Theory", IEEE Transactions on Systems Science
and Cybernetics 2, 1966). Let d be the gain of another option over this one, with the mean m <= 0.
If the measurement explains the variance s^2 of d, its mean afterwards is normal with the mean m and this variance. So
the measurement is expected to gain

    E[max(0, d)] = m P(m / s) + s p(m / s),

with the normal distribution P and its density p: the expected improvement (Jones, Schonlau and Welch, Journal of Global
Optimization 13, 1998). Of several other options, the one with the largest expected gain counts.

Measurements are selected one after the other, by the gain that they add to the earlier ones, divided by the time that
they add: a greedy choice under a budget (Krause and Guestrin, "Near-optimal Nonmyopic Value of Information in Graphical
Models", UAI 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from knowledge.domain.ratio import Ratio
from knowledge.estimate.cases import Case
from knowledge.estimate.gain_space import Array
from knowledge.estimate.gain_terms import Pair
from knowledge.evidence.contrasts import Side

DEFAULT = ""
"""Name of the default among the options of a decision."""
_LEAST_SPREAD = 1e-9
"""Standard deviation instead of 0, by which nothing is divided."""
LEAST_ADDED = 1e-9
"""Smallest expected gain, as a log ratio, for which anything more is measured."""
GainsOf = Callable[[Sequence[Pair]], Sequence[Mapping[Case, Ratio]]]
"""Returns the gain of the first stack of each pair over the second one, in each case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDecision:
    """A choice between versions, or between values of a setting, for programs of one size.

    Attributes:
        case: What the choice is for.
        subject: What is chosen, such as ``version``, or the name of a setting.
        gains: Predicted gain of each option over the default.
        best: The option with the largest predicted speed now; it may be the default.
        rivals: Predicted gain of each other option over the best one.
        sides: The stack of each option.
        weight: Weight of the decision among others.
    """

    case: Case
    subject: str
    gains: Mapping[str, Ratio]
    best: str
    rivals: Mapping[str, Ratio]
    sides: Mapping[str, Side]
    weight: float = 1.0

    @property
    def compared(self) -> list[tuple[Pair, Case]]:
        """The stacks of each rival and the best option, with the case."""
        return [((self.sides[option], self.sides[self.best]), self.case) for option in self.rivals]


def decide(
    subject: str, sides: Mapping[str, Side], gains_of: GainsOf, weight_of: Callable[[Case], float] = lambda _: 1.0
) -> list[CaseDecision]:
    """Return the decision of each case between some options.

    Args:
        subject: What is chosen.
        sides: The stack of each option, and of the default.
        gains_of: Returns the gains of pairs of stacks.
        weight_of: Returns the weight of a case.
    """

    def gains_over(best: str) -> dict[str, Mapping[Case, Ratio]]:
        others = [option for option in sides if option != best]
        return dict(zip(others, gains_of([(sides[option], sides[best]) for option in others]), strict=True))

    over = {DEFAULT: gains_over(DEFAULT)}
    decisions = []
    for case in next(iter(over[DEFAULT].values())):
        gains = {option: by_case[case] for option, by_case in over[DEFAULT].items()}
        best = max(sides, key=lambda option: gains[option].mean if option in gains else 0.0)
        if best not in over:
            over[best] = gains_over(best)
        decisions.append(
            CaseDecision(
                case=case,
                subject=subject,
                gains=gains,
                best=best,
                rivals={option: by_case[case] for option, by_case in over[best].items()},
                sides=sides,
                weight=weight_of(case),
            )
        )
    return decisions


class Step(NamedTuple):
    """A possible extension of a block.

    Attributes:
        gain: What it adds to the expected gain.
        seconds: What it adds to the duration.
        arms: Numbers of the arms of the extended block.
        programs: Numbers of its programs.
    """

    gain: float
    seconds: float
    arms: tuple[int, ...]
    programs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """What the parts of a block take. The reference is measured twice, as an A/A control.

    Attributes:
        rounds: Number of rounds.
        process_seconds: Start of a process, in seconds: one for each arm in each round.
        program_seconds: Seconds of a run of each program.
        arm_seconds: Seconds that each arm takes once, such as for its environment.
        setup_seconds: Seconds that the reference takes once.
    """

    rounds: int
    process_seconds: float
    program_seconds: Sequence[float]
    arm_seconds: Sequence[float]
    setup_seconds: float = 0.0

    def seconds(self, arms: Sequence[int], programs: Sequence[int]) -> float:
        """Return the duration of a block with some arms and programs, which all of them run; 0 for none."""
        if not arms:
            return 0.0
        each = self.process_seconds + sum(self.program_seconds[program] for program in programs)
        once = self.setup_seconds + sum(self.arm_seconds[arm] for arm in arms)
        return self.rounds * (len(arms) + 2) * each + once


@dataclass(kw_only=True, eq=False)
class PossibleBlock:
    """A block that may be measured: some of its arms, each at some of its programs, and what they show.

    Attributes:
        cells: Number of the ratio of each arm and program; a pair may be missing.
        costs: What it takes.
        decisions: The decisions that it is about.
        across: Covariances of the gains of the decisions with the ratios (m, n), in the order of the decisions.
        within: Covariances of the ratios with their noise (n, n).
        arms: Arms that are selected.
        programs: Programs that are selected.
        explained: Variance of the gain of each decision that the selected ratios explain (m,).
    """

    cells: Mapping[tuple[int, int], int]
    costs: BlockCosts
    decisions: Sequence[CaseDecision]
    across: Array
    within: Array
    arms: tuple[int, ...] = ()
    programs: tuple[int, ...] = ()
    explained: Array = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the gains of the decisions as arrays."""
        numbers = [number for number, d in enumerate(self.decisions) for _ in d.rivals]
        self._means = np.array([gain.mean for d in self.decisions for gain in d.rivals.values()])
        self._starts = np.searchsorted(numbers, range(len(self.decisions)))
        self._weights = np.array([d.weight for d in self.decisions])
        self.explained = np.zeros(len(numbers))

    def expected_gains(self, explained: Array) -> Array:
        """Return the expected gain of each decision (d,), if measurements explain some of the variances (m,)."""
        spread = np.sqrt(explained) + _LEAST_SPREAD
        place = self._means / spread
        gains = self._means * ndtr(place) + spread * np.exp(-0.5 * place**2) / math.sqrt(2 * math.pi)
        best: Array = np.maximum.reduceat(gains, self._starts)
        return best

    @property
    def gain(self) -> float:
        """Expected gain of the selected measurements: the weighted sum over the decisions."""
        return self._sum(self.explained)

    def _sum(self, explained: Array) -> float:
        return float(self._weights @ self.expected_gains(explained))

    @property
    def seconds(self) -> float:
        """Duration of the selected measurements."""
        return self.costs.seconds(self.arms, self.programs)

    def extensions(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the arms and programs of each extension by one of them; the first one has one of each."""
        if not self.arms:
            return [((arm,), (program,)) for arm, program in self.cells]
        arms, programs = (sorted({cell[place] for cell in self.cells}) for place in (0, 1))
        sides = [((*self.arms, arm), self.programs) for arm in arms if arm not in self.arms]
        sides += [(self.arms, (*self.programs, program)) for program in programs if program not in self.programs]
        return [side for side in sides if self._new(*side)]

    def steps(self) -> list[Step]:
        """Return every extension with what it adds."""
        now, spent = self.gain, self.seconds
        return [
            Step(
                gain=self._sum(self.explained + self._explained_by(self._new(*side))) - now,
                seconds=self.costs.seconds(*side) - spent,
                arms=side[0],
                programs=side[1],
            )
            for side in self.extensions()
        ]

    def take(self, arms: tuple[int, ...], programs: tuple[int, ...]) -> None:
        """Select an extension; what its ratios show about others is then explained."""
        new = self._new(arms, programs)
        self.explained = self.explained + self._explained_by(new)
        weights = np.linalg.solve(self.within[np.ix_(new, new)], self.within[new])
        self.across = self.across - self.across[:, new] @ weights
        self.within = self.within - self.within[:, new] @ weights
        self.arms, self.programs = arms, programs

    def _new(self, arms: Sequence[int], programs: Sequence[int]) -> list[int]:
        """Return the numbers of the ratios of arms at programs that are not selected yet."""
        old = {(arm, program) for arm in self.arms for program in self.programs}
        pairs = [(arm, program) for arm in arms for program in programs]
        return [self.cells[pair] for pair in pairs if pair in self.cells and pair not in old]

    def _explained_by(self, numbers: Sequence[int]) -> Array:
        """Return the variance of each gain that ratios explain beyond the selected ones (m,)."""
        part = self.across[:, numbers]
        weights = np.linalg.solve(self.within[np.ix_(numbers, numbers)], part.T)
        explained: Array = np.einsum("ij,ji->i", part, weights)
        return np.maximum(0.0, explained)


def select(blocks: Sequence[PossibleBlock], seconds: float) -> None:
    """Extend blocks within a time, always by the step with the largest expected gain per second.

    Args:
        blocks: The blocks, which are independent of each other.
        seconds: The time.
    """
    remaining = seconds
    steps = {number: block.steps() for number, block in enumerate(blocks)}
    while True:
        affordable = [(n, step) for n, listed in steps.items() for step in listed if 0 < step.seconds <= remaining]
        number, best = max(affordable, key=lambda item: item[1].gain / item[1].seconds, default=(0, None))
        if best is None or best.gain <= LEAST_ADDED:
            return
        blocks[number].take(best.arms, best.programs)
        remaining -= best.seconds
        steps[number] = blocks[number].steps()
