"""The exact optimum over all candidates; metadata is fetched only where it can change the result.

The solved model is a relaxation (see :mod:`advisor.resolve.optimum.encode`), so its optimum is at least as good as that
of the problem. The metadata of the chosen candidates (and of the next versions of the same packages) is fetched, the
model is refined, and the solver runs again, until the metadata of everything chosen is known. Then the solution
satisfies the problem and is its optimum, over all candidates, with or without fetched metadata. At a limit, or if the
user interrupts the search, the stack that it started from is the result, with the best bound that was proven.

Objectives are lexicographic: each is solved to optimality, and its value is fixed before the next. Of the stacks that
are optimal by all of them, the one with the newest version of the first package that differs, by name, is chosen; an
absent package counts as newest. So the result is unique and does not depend on the solver or the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName

from advisor.domain.progress import progress
from advisor.resolve.candidates.problem import Candidate, CandidateSource, CandidateStack, ResolutionProblem
from advisor.resolve.optimum.baseline import VerificationError, verify
from advisor.resolve.optimum.encode import INITIAL_EXPLICIT, Encoding
from advisor.resolve.optimum.result import Optimum, SearchLimitError
from advisor.resolve.optimum.search import Search, reached_by
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.optimum.stages import Stages
from advisor.resolve.score.costs import Bound, Limits, StackCosts

MAX_ITERATIONS = 200


def optimise(
    problem: ResolutionProblem,
    source: CandidateSource,
    costs: StackCosts,
    *,
    start: Sequence[Candidate],
    effort: Effort | None = None,
    explicit: int = INITIAL_EXPLICIT,
) -> Optimum:
    """Return the best stack.

    The packages of the stack to start from, such as the baseline, are loaded first, and it is the first hint. Of each
    package, `explicit` candidates are explicit from the beginning. The effort limits the work for each objective of
    each iteration, and the time of the search.

    Raises:
        InfeasibleError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a proof is found, and the stack to start from is no solution.
        KeyboardInterrupt: If the user interrupts the search, and the time limit does not keep results or the rules
            exclude the stack to start from.
    """
    encoding = Encoding(problem, source, costs.limits, explicit=explicit)
    return _Optimisation(costs, start, effort or Effort(), encoding).optimum()


@dataclass
class _Optimisation:
    """One search for the best stack."""

    _costs: StackCosts
    _start: Sequence[Candidate]
    _effort: Effort
    _encoding: Encoding
    _iteration: int = 0
    _best: Optimum | None = None
    """The last stack that is optimal, but perhaps not the first of those with its score."""

    def __post_init__(self) -> None:
        self._stages = Stages(self._encoding, self._effort, self._start)

    def optimum(self) -> Optimum:
        """Return the best stack, or at a limit the best one so far."""
        try:
            search = Search(self._encoding, self._start)
            search.add_packages(self._costs.compared_beyond(self._start))
            while self._iteration < MAX_ITERATIONS:
                self._iteration += 1
                progress("searching for the best stack: iteration %d", self._iteration)
                if (optimum := self._iterate(search)) is not None:
                    return optimum
            raise SearchLimitError(
                f"the search did not end within {MAX_ITERATIONS} iterations",
                hint="constrain the packages that have many versions",
            )
        except (SearchLimitError, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                if not self._effort.limit.keeps_result:
                    raise
                self._effort.limit.interrupt()
            if (optimum := self._best or self._optimum_of_start()) is None:
                raise
            return optimum

    def _iterate(self, search: Search) -> Optimum | None:
        """Solve the model, and refine it; return the best stack if the metadata of everything chosen is known."""
        stages = self._stages
        budgets = self._costs.limits(self._encoding.candidates).budgets
        objectives = self._costs.objectives(self._encoding.candidates)
        bounds, selection = stages.solve(objectives, budgets)
        # With a limit of a sum, or the size as the only criterion, to break ties takes as long as to solve: only once,
        # at the end. With rewards, the first solution must be known to deserve them.
        breaks_ties_at_end = bool(budgets) or bool(stages.rewarded) or len(objectives) == 1
        if not breaks_ties_at_end:
            selection = stages.prefer_newest()
        stack = self._refined(search, selection)
        if stack is not None and breaks_ties_at_end:
            self._best = self._optimum(stack, bounds)
            stack = self._refined(search, stages.prefer_newest())
        return None if stack is None else self._optimum(stack, bounds)

    def _refined(self, search: Search, selection: Mapping[NormalizedName, Candidate]) -> Sequence[Candidate] | None:
        """Refine the model by a choice; return its stack if it is known to be a solution."""
        extras = self._stages.extras
        stack = search.refine(selection, self._stages.unexpanded, extras=extras)
        if stack is None or not self._stages.rewards_are_justified(stack):
            return None
        return stack if search.excludes_failed_builds(stack, extras) else None

    def _optimum(self, stack: Sequence[Candidate], bounds: tuple[Bound, ...], stopped: str = "") -> Optimum:
        return Optimum(
            stack=CandidateStack(stack),
            bounds=bounds,
            unique=self._stages.unique and not stopped,
            iterations=self._iteration,
            candidates=sum(len(offered) for offered in self._encoding.candidates.values()),
            fetched=len(self._encoding.source.fetched),
            stopped=stopped,
            options={} if stopped else self._stages.options,
            failed_builds=self._encoding.failed_builds,
        )

    def _optimum_of_start(self) -> Optimum | None:
        """Return the stack to start from with what is proven so far; `None` if it is not known to be a solution."""
        if not self._is_solution(self._start):
            return None
        reason = self._effort.limit.reason or (
            f"stopped after {MAX_ITERATIONS} iterations"
            if self._iteration == MAX_ITERATIONS
            else "stopped at the work limit"
        )
        bounds = self._stages.bounds_of(self._start, self._costs.objectives(self._encoding.candidates))
        return self._optimum(self._start, bounds, reason)

    def _is_solution(self, stack: Sequence[Candidate]) -> bool:
        """Whether a stack is known to satisfy the problem; its packages may not have been loaded before the end."""
        problem, source = self._encoding.problem, self._encoding.source
        selection, loaded = {c.name: c for c in stack}, self._encoding.candidates
        if not stack or not selection.keys() <= loaded.keys() or _is_excluded(stack, self._costs.limits(loaded)):
            return False
        if reached_by(problem, source, selection).unknown:
            return False
        try:
            verify(problem, source, stack)
        except VerificationError:
            return False
        return True


def _is_excluded(stack: Sequence[Candidate], limits: Limits) -> bool:
    choices = {(c.name, c.version) for c in stack}
    for budget in limits.budgets:
        if sum(budget.costs.get(choice, 0) for choice in choices) > budget.most:
            return True
    return not choices.isdisjoint(limits.forbidden) or any(
        all(not choices.isdisjoint(side) for side in sides) for sides, _ in limits.exclusive
    )
