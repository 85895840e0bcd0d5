"""The criteria of an optimum, the optimum with its proof, and the errors of a search for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.utils import NormalizedName

from advisor.domain.time_limit import INTERRUPTED
from advisor.domain.words import quoted, size_text
from advisor.resolve.candidates.problem import NO_PACKAGES, CandidateStack
from advisor.resolve.score.costs import Bound
from knowledge.domain.errors import UnsatisfiableError
from knowledge.domain.ratio import NO_GAIN, Ratio


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
        failed_builds: Packages with a failed build. Versions of other packages that nobody read may exclude that
            build, so that an older one would count.
        newest: The newest stack that runs on the target, which its speed was compared with; empty if none was.
        gain: Predicted gain over that stack, each with its best settings.
    """

    stack: CandidateStack
    bounds: tuple[Bound, ...]
    unique: bool
    iterations: int
    candidates: int
    fetched: int
    stopped: str = ""
    options: Mapping[NormalizedName, int] = field(default_factory=dict)
    not_compared: str = ""
    failed_builds: tuple[str, ...] = ()
    newest: CandidateStack = NO_PACKAGES
    gain: Ratio = NO_GAIN

    @property
    def proven(self) -> bool:
        """Whether it is proven that no stack has a better score."""
        return not self.doubts

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is not proven: the gap of each criterion, and what was not compared."""
        gaps = ((b.objective, b.gap) for b in self.bounds if b.gap)
        texts = (f"{name} gap {size_text(gap) if name == 'size' else gap}" for name, gap in gaps)
        builds = f"builds of {quoted(self.failed_builds)} failed: unread versions of other packages were not tried"
        return (*texts, *filter(None, (self.not_compared, builds if self.failed_builds else "")))

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the search."""
        return self.stopped == INTERRUPTED


class InfeasibleError(Exception):
    """Raised when it is proven that no stack satisfies the requirements and the rules."""

    message = "no set of versions satisfies both the requirements and the rules"


class StackTooLargeError(InfeasibleError):
    """Raised when it is proven that no stack satisfies the limit of the download, with the smallest stack.

    That is not proven to be the smallest if the search for it was stopped.
    """

    message = "every stack is larger than the limit of the download"

    def __init__(self, smallest: Optimum) -> None:
        super().__init__()
        self.smallest = smallest


class SearchLimitError(UnsatisfiableError):
    """Raised when a limit is reached without a stack and without a proof that there is none."""

    code = "search-limit"
