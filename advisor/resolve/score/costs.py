"""Choices of a version for a package, what choices cost, and which of them are excluded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.candidates.problem import Candidate
from knowledge.domain.ratio import RISK, Ratio

SPEED_STEP = 0.01
"""Log speed is compared in steps of 1 %."""
Choice = tuple[NormalizedName, Version]
PairedChoice = tuple[NormalizedName, Version | None]
"""A version of a package, or `None` if the package is absent."""
Candidates = Mapping[NormalizedName, Sequence[Candidate]]
Rename = Callable[[NormalizedName], NormalizedName]
OptionCosts = Mapping[tuple[NormalizedName, int | None], int]
"""Cost of each way to require a package: the place of its extras among the options; `None` without extras."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit of the sum of the costs of a stack, none of which is negative."""

    costs: Mapping[Choice, int]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is excluded.

    Attributes:
        forbidden: Choices that the rules forbid, each with the reason.
        exclusive: Groups of sets of choices, with the reason; a stack must not have one choice of every set of a group.
        budgets: Limits of sums of costs.
    """

    forbidden: Mapping[Choice, str]
    exclusive: tuple[tuple[tuple[frozenset[Choice], ...], str], ...] = ()
    budgets: tuple[Budget, ...] = ()

    def renamed(self, rename: Rename) -> Limits:
        """Return the same limits of packages with other names."""
        return Limits(
            forbidden={(rename(name), version): why for (name, version), why in self.forbidden.items()},
            exclusive=tuple((tuple(_renamed(side, rename) for side in sides), why) for sides, why in self.exclusive),
            budgets=tuple(
                Budget(costs={(rename(name), version): cost for (name, version), cost in b.costs.items()}, most=b.most)
                for b in self.budgets
            ),
        )


class StackCosts(Protocol):
    """What stacks cost, and what is excluded, for the packages that a search has loaded so far."""

    def objectives(self, candidates: Candidates) -> Sequence[Objective]:
        """Return the objectives, in order of importance."""

    def limits(self, candidates: Candidates) -> Limits:
        """Return what is excluded."""

    def compared_beyond(self, stack: Sequence[Candidate]) -> Iterable[NormalizedName]:
        """Return the packages that a stack lacks, and that a search from it must load: they may have negative costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One criterion to minimise.

    Attributes:
        name: Name in the proof.
        costs: Cost of each choice, a whole number; an absent package costs nothing. A negative cost is a reward, which
            counts only if something chosen requires the package; such packages must be loaded from the beginning.
        pairs: Cost of each pair of choices; the second one may be that a package is absent. A cost below the one of the
            absence is a reward as above.
        together: Cost of stacks that have all of some choices, not negative.
        options: Cost of the extras that may be required in addition.
        different: Pairs of packages that cost 1 each if both are in the stack with different releases.
        absent: Cost of the absence of packages, which must be loaded from the beginning: a reward for their presence.
    """

    name: str
    costs: Mapping[Choice, int] = field(default_factory=dict)
    pairs: Mapping[tuple[Choice, PairedChoice], int] = field(default_factory=dict)
    together: Mapping[frozenset[Choice], int] = field(default_factory=dict)
    options: OptionCosts = field(default_factory=dict)
    different: Sequence[tuple[NormalizedName, NormalizedName]] = ()
    absent: Mapping[NormalizedName, int] = field(default_factory=dict)

    def renamed(self, rename: Rename) -> Objective:
        """Return the same costs of packages with other names, without extras and differences."""
        return Objective(
            name=self.name,
            costs={(rename(name), version): cost for (name, version), cost in self.costs.items()},
            pairs={
                ((rename(name), version), (rename(other), other_version)): cost
                for ((name, version), (other, other_version)), cost in self.pairs.items()
            },
            together={_renamed(choices, rename): cost for choices, cost in self.together.items()},
            absent={rename(name): cost for name, cost in self.absent.items()},
        )

    def value(self, stack: Iterable[Candidate]) -> int:
        """Return what a stack costs, without extras that are required in addition."""
        versions: dict[NormalizedName, Version] = {c.name: c.version for c in stack}
        value = sum(self.costs.get(choice, 0) for choice in versions.items())
        for ((name, version), (other, other_version)), cost in self.pairs.items():
            if versions.get(name) == version and versions.get(other) == other_version:
                value += cost
        value += sum(cost for choices, cost in self.together.items() if choices <= versions.items())
        for one, other in self.different:
            if one in versions and other in versions:
                value += versions[one].public != versions[other].public
        value += sum(cost for name, cost in self.absent.items() if name not in versions)
        return value + sum(c for (name, place), c in self.options.items() if place is None and name in versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The proof for one objective: the optimum is between ``bound`` and ``value``."""

    objective: str
    value: int
    bound: int

    @property
    def gap(self) -> int:
        """Difference between the best solution found and the best that may exist."""
        return self.value - self.bound


def _renamed(choices: Iterable[Choice], rename: Rename) -> frozenset[Choice]:
    return frozenset((rename(name), version) for name, version in choices)


def speed_steps(gain: Ratio, comparisons: int = 1) -> int:
    """Return a gain in whole steps, rounded towards zero; 0 if it is not significant among so many comparisons."""
    steps = int(gain.cautious / SPEED_STEP)
    return steps if steps < 0 or gain.is_significant(comparisons) else 0


def counted_steps(gain: Ratio, comparisons: int, min_gain: float) -> int:
    """Return a gain or a loss in whole steps; 0 unless it counts: it must be significant, and at least `min_gain`.

    The penalty for its uncertainty makes a gain smaller, and a loss, too. The number of comparisons corrects the
    significance for the selection.
    """
    size = abs(gain.mean) - RISK / 2 * gain.variance
    if size < math.log1p(min_gain) or not gain.is_significant(comparisons):
        return 0
    return int(math.copysign(size / SPEED_STEP, gain.mean))
