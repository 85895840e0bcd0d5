"""Choices of a version for a package, what choices cost, and which of them are excluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.problem import Candidate

Choice = tuple[NormalizedName, Version]
PairedChoice = tuple[NormalizedName, Version | None]
"""A version of a package, or none if the package is absent."""
Candidates = Mapping[NormalizedName, Sequence[Candidate]]
OptionCosts = Mapping[tuple[NormalizedName, int | None], int]
"""Cost of each way to require a package of the stack: the place of the extras in its options, or none for no extras."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit of the sum of the costs of a stack.

    Attributes:
        costs: Cost of each choice, not negative.
        most: The largest admissible sum.
    """

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


NO_LIMITS = Limits(forbidden={})
