"""The criteria of an optimum, the optimum with its proof, and the errors of a search for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.time_limit import INTERRUPTED
from advisor.domain.words import quoted, size_text
from advisor.resolve.choices import Choice, OptionCosts, PairedChoice
from advisor.resolve.problem import Candidate
from knowledge.domain.errors import UnsatisfiableError
from knowledge.domain.ratio import NO_GAIN, Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One criterion to minimise.

    Attributes:
        name: Name in the proof.
        costs: Cost of each choice, a whole number; an absent package costs nothing. A negative cost is a reward, which
            counts only if something chosen requires the package; such packages must be loaded from the beginning.
        pairs: Cost of each pair of choices; the second one may be that a package is absent. A cost below that of the
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

    @property
    def gap_text(self) -> str:
        """The gap with its unit, as far as people need it."""
        return size_text(self.gap) if self.objective == "size" else str(self.gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The chosen stack and the proof of its optimality.

    Attributes:
        stack: Chosen candidates, sorted by name.
        bounds: The bound of each objective, in order of importance.
        unique: Whether it is proven that no other stack with the same score comes first.
        iterations: Number of times the model was solved, each time with more metadata.
        candidates: Number of candidate versions that the optimum covers.
        fetched: Number of candidate versions whose metadata was read.
        stopped: Why the search ended before the proof; empty if it did not.
        options: Place of the extras that are required in addition, by package.
        not_compared: Which other ways to state the problem were not compared; empty if all were.
        failed_builds: Packages of which a build failed. Versions of other packages that nobody read may exclude that
            build, so that an older one would count.
        newest: The newest stack that runs on the target, which its speed was compared with; empty if none was.
        gain: Predicted gain over that stack, each with its best settings.
    """

    stack: tuple[Candidate, ...]
    bounds: tuple[Bound, ...]
    unique: bool
    iterations: int
    candidates: int
    fetched: int
    stopped: str = ""
    options: Mapping[NormalizedName, int] = field(default_factory=dict)
    not_compared: str = ""
    failed_builds: tuple[str, ...] = ()
    newest: tuple[Candidate, ...] = ()
    gain: Ratio = NO_GAIN

    @property
    def proven(self) -> bool:
        """Whether it is proven that no stack has a better score."""
        return not self.doubts

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is not proven: the gap of each criterion, and what was not compared."""
        gaps = (f"{bound.objective} gap {bound.gap_text}" for bound in self.bounds if bound.gap)
        builds = f"builds of {quoted(self.failed_builds)} failed: unread versions of other packages were not tried"
        return (*gaps, *filter(None, (self.not_compared, builds if self.failed_builds else "")))

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the search."""
        return self.stopped == INTERRUPTED


class InfeasibleError(Exception):
    """Raised when it is proven that no stack satisfies the requirements and the rules."""

    message = "no set of versions satisfies both the requirements and the rules"


class StackTooLargeError(InfeasibleError):
    """Raised when it is proven that no stack satisfies the limit of the download.

    Attributes:
        smallest: The smallest stack; not proven if the search for it was stopped.
    """

    message = "every stack is larger than the limit of the download"

    def __init__(self, smallest: Optimum) -> None:
        super().__init__()
        self.smallest = smallest


class SearchLimitError(UnsatisfiableError):
    """Raised when a limit is reached without a stack and without a proof that there is none."""

    code = "search-limit"
