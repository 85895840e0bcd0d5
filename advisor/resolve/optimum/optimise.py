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

from packaging.utils import NormalizedName

from advisor.domain.progress import progress
from advisor.resolve.candidates.problem import Candidate, CandidateSource, CandidateStack, ResolutionProblem
from advisor.resolve.optimum.baseline import VerificationError, verify
from advisor.resolve.optimum.encode import INITIAL_EXPLICIT, Encoding
from advisor.resolve.optimum.result import Optimum, SearchLimitError
from advisor.resolve.optimum.search import Search, needed_by
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.optimum.stages import Stages
from advisor.resolve.score.costs import Bound, Candidates, Limits, StackCosts

MAX_ITERATIONS = 200


def optimise(
    problem: ResolutionProblem,
    source: CandidateSource,
    score: StackCosts,
    *,
    start: Sequence[Candidate],
    effort: Effort | None = None,
    explicit: int = INITIAL_EXPLICIT,
) -> Optimum:
    """Return the best stack.

    Args:
        problem: The problem.
        source: The candidates.
        score: What stacks cost, and what is excluded.
        start: A stack to start from, such as the baseline: its packages are loaded first, and it is the first hint.
        effort: Work limit for each objective of each iteration, and time limit of the search.
        explicit: Number of candidates of each package that are explicit from the beginning.

    Raises:
        InfeasibleError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a proof is found, and the stack to start from is no solution.
        KeyboardInterrupt: If the user interrupts the search, and the time limit does not keep results or the rules
            exclude the stack to start from.
    """
    effort = effort or Effort()
    encoding = Encoding(problem, source, score.limits, explicit=explicit)
    iteration = 0
    best: Optimum | None = None
    """The last stack that is optimal, but perhaps not the first of those with its score."""

    def extras_of(options: Mapping[NormalizedName, int]) -> dict[NormalizedName, frozenset[str]]:
        return {name: problem.extra_options[name][place].extras for name, place in options.items()}

    def required_names(
        selection: Mapping[NormalizedName, Candidate], options: Mapping[NormalizedName, int]
    ) -> set[NormalizedName]:
        return needed_by(problem, source, selection, extras=extras_of(options))[0]

    stages = Stages(encoding, effort, start, required_names)

    def optimum(stack: Sequence[Candidate], bounds: tuple[Bound, ...], stopped: str) -> Optimum:
        return Optimum(
            stack=CandidateStack(stack),
            bounds=bounds,
            unique=stages.unique and not stopped,
            iterations=iteration,
            candidates=sum(len(offered) for offered in encoding.candidates.values()),
            fetched=len(source.fetched),
            stopped=stopped,
            options={} if stopped else stages.options,
            failed_builds=encoding.failed_builds,
        )

    try:
        search = Search(problem, source, encoding, start)
        search.add_packages(score.compared_beyond(start))

        def is_admitted(stack: Sequence[Candidate]) -> bool:
            return stages.rewards_are_justified(stack) and search.excludes_failed_builds(
                stack, extras_of(stages.options)
            )

        while iteration < MAX_ITERATIONS:
            iteration += 1
            progress("searching for the best stack: iteration %d", iteration)
            budgets = score.limits(encoding.candidates).budgets
            criteria = score.objectives(encoding.candidates)
            bounds, selection = stages.solve(criteria, budgets)
            breaks_ties_at_end = bool(budgets) or stages.has_rewards or len(criteria) == 1
            if not breaks_ties_at_end:
                selection = stages.prefer_newest()
            stack = search.refine(selection, stages.unexpanded, extras=extras_of(stages.options))
            if stack is not None and is_admitted(stack):
                best = optimum(stack, bounds, "")
                if not breaks_ties_at_end:
                    return best
                # With a limit of a sum, or the size as the only criterion, to break ties takes as long as to solve:
                # only once, at the end. With rewards, the first solution must be known to deserve them.
                selection = stages.prefer_newest()
                stack = search.refine(selection, stages.unexpanded, extras=extras_of(stages.options))
                if stack is not None and is_admitted(stack):
                    return optimum(stack, bounds, "")
        raise SearchLimitError(
            f"the search did not end within {MAX_ITERATIONS} iterations",
            hint="constrain the packages that have many versions",
        )
    except (SearchLimitError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            if not effort.limit.keeps_result:
                raise
            effort.limit.interrupt()
        if best is not None:
            return best
        if not _is_solution(start, problem, source, encoding.candidates, score):
            raise
        reason = effort.limit.reason or (
            f"stopped after {MAX_ITERATIONS} iterations" if iteration == MAX_ITERATIONS else "stopped at the work limit"
        )
        return optimum(start, stages.bounds_of(start, score.objectives(encoding.candidates)), reason)


def _is_solution(
    stack: Sequence[Candidate],
    problem: ResolutionProblem,
    source: CandidateSource,
    loaded: Candidates,
    score: StackCosts,
) -> bool:
    """Whether a stack is known to satisfy a problem: the search may have ended before its packages were loaded."""
    selection = {c.name: c for c in stack}
    if not stack or not selection.keys() <= loaded.keys() or _is_excluded(stack, score.limits(loaded)):
        return False
    if needed_by(problem, source, selection)[1]:
        return False
    try:
        verify(problem, source, stack)
    except VerificationError:
        return False
    return True


def _is_excluded(stack: Sequence[Candidate], limits: Limits) -> bool:
    """Whether a stack is excluded."""
    choices = {(c.name, c.version) for c in stack}
    for budget in limits.budgets:
        if sum(budget.costs.get(choice, 0) for choice in choices) > budget.most:
            return True
    return not choices.isdisjoint(limits.forbidden) or any(
        all(not choices.isdisjoint(side) for side in sides) for sides, _ in limits.exclusive
    )
