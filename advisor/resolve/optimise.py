"""The exact optimum over all candidates; metadata is fetched only where it can change the result.

The solved model is a relaxation (see :mod:`advisor.resolve.encode`), so its optimum is at least as good as that of the
problem. The metadata of the chosen candidates (and of the next versions of the same packages) is fetched, the model is
refined, and the solver runs again, until the metadata of everything chosen is known. Then the solution satisfies the
problem and is its optimum, over all candidates, with or without fetched metadata. At a limit, or if the user interrupts
the search, the stack that it started from is the result, with the best bound that was proven.

Objectives are lexicographic: each is solved to optimality, and its value is fixed before the next. Of the stacks that
are optimal by all of them, the one with the newest version of the first package that differs, by name, is chosen; an
absent package counts as newest. So the result is unique and does not depend on the solver or the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.progress import progress
from advisor.domain.time_limit import INTERRUPTED
from advisor.resolve.encode import (
    INITIAL_EXPLICIT,
    Budget,
    Candidates,
    Choice,
    Encoding,
    Limits,
    OptionCosts,
    PairedChoice,
)
from advisor.resolve.problem import Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.search import Search, needed_by
from advisor.resolve.solver import Effort, Literal, SolverModel, SolverResult, negated
from knowledge.domain.errors import UnsatisfiableError

MAX_ITERATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One criterion to minimise.

    Attributes:
        name: Name in the proof.
        costs: Cost of each choice, a whole number; an absent package costs nothing. A negative cost is a reward, which
            counts only if something chosen requires the package; such packages must be loaded from the beginning.
        pairs: Cost of each pair of choices; the second one may be that a package is absent. A cost below that of the
            absence is a reward as above.
        options: Cost of the extras that may be required in addition.
        different: Pairs of packages that cost 1 each if both are in the stack with different releases.
    """

    name: str
    costs: Mapping[Choice, int] = field(default_factory=dict)
    pairs: Mapping[tuple[Choice, PairedChoice], int] = field(default_factory=dict)
    options: OptionCosts = field(default_factory=dict)
    different: Sequence[tuple[NormalizedName, NormalizedName]] = ()


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
    """

    stack: tuple[Candidate, ...]
    bounds: tuple[Bound, ...]
    unique: bool
    iterations: int
    candidates: int
    fetched: int
    stopped: str = ""
    options: Mapping[NormalizedName, int] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether it is proven that no stack has a better score."""
        return all(bound.gap == 0 for bound in self.bounds)

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the search."""
        return self.stopped == INTERRUPTED


class InfeasibleError(Exception):
    """Raised when it is proven that no stack satisfies the requirements and the rules."""


class SearchLimitError(UnsatisfiableError):
    """Raised when a limit is reached without a stack and without a proof that there is none."""

    code = "search-limit"


def optimise(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    objectives: Callable[[Candidates], Sequence[Objective]],
    limits: Callable[[Candidates], Limits],
    start: Sequence[Candidate],
    effort: Effort | None = None,
    explicit: int = INITIAL_EXPLICIT,
    rewarded: Iterable[NormalizedName] = (),
) -> Optimum:
    """Return the best stack.

    Args:
        problem: The problem.
        source: The candidates.
        objectives: Returns the objectives for the packages loaded so far, in order of importance.
        limits: Returns what the rules exclude among the packages loaded so far.
        start: A stack to start from, such as the baseline: its packages are loaded first, and it is the first hint.
        effort: Work limit for each objective of each iteration, and time limit of the search.
        explicit: Number of candidates of each package that are explicit from the beginning.
        rewarded: Packages that may have negative costs.

    Raises:
        InfeasibleError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a proof is found, and the rules exclude the stack to start from.
        KeyboardInterrupt: If the user interrupts the search, and the time limit does not keep results or the rules
            exclude the stack to start from.
    """
    effort = effort or Effort()
    encoding = Encoding(problem, source, limits, explicit=explicit)
    iteration = 0

    def extras_of(options: Mapping[NormalizedName, int]) -> dict[NormalizedName, frozenset[str]]:
        return {name: problem.extra_options[name][place].extras for name, place in options.items()}

    def required_names(
        selection: Mapping[NormalizedName, Candidate], options: Mapping[NormalizedName, int]
    ) -> set[NormalizedName]:
        return needed_by(problem, source, selection, extras=extras_of(options))[0]

    stages = _Stages(encoding, effort, start, required_names)

    def optimum(stack: Sequence[Candidate], bounds: tuple[Bound, ...], stopped: str) -> Optimum:
        return Optimum(
            stack=tuple(stack),
            bounds=bounds,
            unique=stages.unique and not stopped,
            iterations=iteration,
            candidates=sum(len(offered) for offered in encoding.candidates.values()),
            fetched=len(source.fetched),
            stopped=stopped,
            options={} if stopped else stages.options,
        )

    try:
        search = Search(problem, source, encoding, start)
        search.add_packages(rewarded)
        while iteration < MAX_ITERATIONS:
            iteration += 1
            progress("searching for the best stack: iteration %d", iteration)
            bounds, selection = stages.solve(objectives(encoding.candidates), limits(encoding.candidates).budgets)
            stack = search.refine(selection, stages.unexpanded, extras=extras_of(stages.options))
            if stack is not None and stages.rewards_are_justified(stack):
                return optimum(stack, bounds, "")
        raise SearchLimitError(f"the search did not end within {MAX_ITERATIONS} iterations")
    except (SearchLimitError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            if not effort.limit.keeps_result:
                raise
            effort.limit.interrupt()
        if not start or _is_excluded(start, limits(encoding.candidates)):
            raise
        reason = effort.limit.reason or "stopped at the work limit"
        return optimum(start, stages.bounds_of(start, objectives(encoding.candidates)), reason)


def _is_excluded(stack: Sequence[Candidate], limits: Limits) -> bool:
    """Whether a stack is excluded."""
    choices = {(c.name, c.version) for c in stack}
    for budget in limits.budgets:
        if sum(budget.costs.get(choice, 0) for choice in choices) > budget.most:
            return True
    return not choices.isdisjoint(limits.forbidden) or any(
        all(not choices.isdisjoint(side) for side in sides) for sides, _ in limits.exclusive
    )


class _Stages:
    """Solves the objectives one after the other, with the values of the earlier ones fixed."""

    def __init__(
        self,
        encoding: Encoding,
        effort: Effort,
        start: Sequence[Candidate],
        required_names: Callable[
            [Mapping[NormalizedName, Candidate], Mapping[NormalizedName, int]], Iterable[NormalizedName]
        ],
    ) -> None:
        self._encoding = encoding
        self._effort = effort
        self._required_names = required_names
        self._last: Mapping[NormalizedName, Candidate] = {c.name: c for c in start}
        self._rewarded: tuple[NormalizedName, ...] = ()
        self._values: list[int] = []
        self._proven: tuple[int, ...] = ()
        self._excluded: list[tuple[list[Literal], NormalizedName]] = []
        self._present: set[NormalizedName] = set()
        self.options: Mapping[NormalizedName, int] = {}
        """Place of the extras that the last solution requires in addition, of the packages that it needs."""
        self.unique = False
        """Whether the last choice is proven to be the first of those with the same score."""
        self.unexpanded: Sequence[NormalizedName] = ()
        """Packages of which the last solution chose a candidate that is not explicit."""

    def solve(
        self, objectives: Sequence[Objective], budgets: Sequence[Budget] = ()
    ) -> tuple[tuple[Bound, ...], Mapping[NormalizedName, Candidate]]:
        """Return the bound of each objective, and the choice.

        Args:
            objectives: The objectives, in order of importance.
            budgets: Limits of sums of costs.

        Raises:
            InfeasibleError: If there is no solution.
            SearchLimitError: If the work limit is reached before a solution or a proof is found.
        """
        costs = [self._encoding.costs(o.costs, o.pairs) for o in objectives]
        # All packages are as explicit as the costs need before their releases are compared.
        for terms, objective in zip(costs, objectives, strict=True):
            terms |= self._encoding.differences(objective.different)
            for literal, cost in self._encoding.option_costs(objective.options).items():
                terms[literal] = terms.get(literal, 0) + cost
        spent = [(self._encoding.costs(budget.costs, {}), budget.most) for budget in budgets]
        self._rewarded = tuple(sorted(_rewarded(objectives)))
        model = self._with_support(self._encoding.model.copy())
        for terms, most in spent:
            model.at_most(terms, most)
        answer = self._with_previous_values(model, costs)
        bounds: list[Bound] = []
        if answer is not None:
            values = [_total(terms, answer) for terms in costs]
            proven = [*values[:-1], answer.bound]
            bounds = [
                Bound(objective=o.name, value=v, bound=b) for o, v, b in zip(objectives, values, proven, strict=True)
            ]
            for terms, value in zip(costs, values, strict=True):
                model.at_most(terms, value)
        else:
            for objective, terms in zip(objectives, costs, strict=True):
                value = bound = 0
                if terms:
                    answer, bound = self._minimise(model, terms, answer)
                    value = _total(terms, answer)
                    model.at_most(terms, value)
                bounds.append(Bound(objective=objective.name, value=value, bound=bound))
        # A refined model never has cheaper solutions: later bounds are at least as high.
        self._proven = tuple(bound.bound for bound in bounds)
        answer = answer or self._solve(model, {}, None)
        monotone = all(cost > 0 for terms in costs for cost in terms.values())
        self._values = [b.value for b in bounds] if monotone and not any(b.gap for b in bounds) else []
        self._record(answer)
        self.unique = False
        # With rewards, a package that is not needed may have earned one; `rewards_are_justified` checks that first.
        if not any(bound.gap for bound in bounds) and not self._rewarded:
            self._prefer_newest(model)
        return tuple(bounds), self._last

    def bounds_of(self, stack: Sequence[Candidate], objectives: Sequence[Objective]) -> tuple[Bound, ...]:
        """Return the value of each objective for a stack, and what is proven of it so far.

        The bound of an objective was computed for the optimal values of those before it.
        """
        versions: dict[NormalizedName, Version] = {c.name: c.version for c in stack}
        bounds: list[Bound] = []
        for number, objective in enumerate(objectives):
            value = sum(objective.costs.get((name, version), 0) for name, version in versions.items())
            for ((name, version), (other, other_version)), cost in objective.pairs.items():
                if versions.get(name) == version and versions.get(other) == other_version:
                    value += cost
            for one, other in objective.different:
                if one in versions and other in versions:
                    value += versions[one].public != versions[other].public
            value += sum(
                cost for (name, place), cost in objective.options.items() if place is None and name in versions
            )
            least = sum(min(0, cost) for cost in (*objective.costs.values(), *objective.pairs.values()))
            if number < len(self._proven) and not any(earlier.gap for earlier in bounds):
                least = max(least, self._proven[number])
            bounds.append(Bound(objective=objective.name, value=value, bound=min(value, least)))
        return tuple(bounds)

    def rewards_are_justified(self, stack: Sequence[Candidate]) -> bool:
        """Whether every rewarded package is needed by the stack; exclude the choice if one is not."""
        required_names = {c.name for c in stack}
        literals = [self._encoding.choices(c.name)[c.version] for c in stack]
        surplus = [name for name in self._rewarded if name in self._present and name not in required_names]
        self._excluded += [(literals, name) for name in surplus]
        return not surplus

    def _with_previous_values(self, model: SolverModel, costs: Sequence[Mapping[Literal, int]]) -> SolverResult | None:
        """Return a solution with the previous values of all objectives but the last, optimal by the last one.

        A refined model never has cheaper solutions, so such a solution is optimal: one call instead of one for each
        objective.
        """
        if not self._values:
            return None
        bounded = model.copy()
        for terms, value in zip(costs[:-1], self._values[:-1], strict=True):
            bounded.at_most(terms, value)
        answer = bounded.solve(self._effort, costs=costs[-1], hint=self._hint(None))
        return answer if answer.values is not None else None

    def _minimise(
        self, model: SolverModel, terms: Mapping[Literal, int], before: SolverResult | None
    ) -> tuple[SolverResult, int]:
        """Return the cheapest solution, and a lower bound of the cost."""
        least = sum(min(0, cost) for cost in terms.values())
        if before is not None and _total(terms, before) == least:
            return before, least
        answer = self._solve(model, terms, before)
        return answer, answer.bound

    def _solve(self, model: SolverModel, costs: Mapping[Literal, int], before: SolverResult | None) -> SolverResult:
        answer = model.solve(self._effort, costs=costs, hint=self._hint(before))
        if answer.impossible:
            raise InfeasibleError
        if answer.values is None:
            limit = self._effort.limit.reason or f"stopped at the limit of {self._effort.work:g} units of work"
            raise SearchLimitError(
                f"no stack was found, and no proof that there is none: {limit}",
                hint="constrain the packages that have many versions, or allow more time with `--time-limit`",
            )
        return answer

    def _hint(self, before: SolverResult | None) -> dict[Literal, bool]:
        if before is not None and before.values is not None:
            return dict(enumerate(before.values))
        return {
            literal: name in self._last and self._last[name].version == version
            for name in self._encoding.candidates
            for version, literal in self._encoding.choices(name).items()
        }

    def _with_support(self, model: SolverModel) -> SolverModel:
        """Allow rewarded packages only if something may require them."""
        roots = self._encoding.required
        for name in self._rewarded:
            if name in self._encoding.candidates and name not in roots:
                model.require_any(self._encoding.supports(name), when=self._encoding.present(name))
        for literals, name in self._excluded:
            # These choices need no further package.
            model.require_any([*map(negated, literals), negated(self._encoding.present(name))])
        return model

    def _record(self, answer: SolverResult) -> None:
        """Store a solution, and the packages it needs that are not expanded."""
        self._last = self._encoding.selected_candidates(answer)
        # Includes packages of which it chose a candidate that is not explicit.
        reached = [name for name in self._rewarded if name in self._encoding.candidates]
        self._present = {name for name in reached if answer.is_true(self._encoding.present(name))}
        options = self._encoding.selected_options(answer)
        required_names = set(self._required_names(self._last, options))
        self.options = {name: place for name, place in options.items() if name in required_names}
        self.unexpanded = [name for name in self._encoding.unexpanded(answer) if name in required_names]
        if not self._rewarded:
            self._last = {name: candidate for name, candidate in self._last.items() if name in required_names}

    def _prefer_newest(self, model: SolverModel) -> None:
        """Store the solution that comes first, by name and newest version, among those with the same score.

        Solves for one that comes earlier until there is none, so that the last one is proven to be the first.
        """
        while True:
            better = model.copy()
            self._require_newer(better)
            answer = better.solve(self._effort)
            if answer.values is None:
                self.unique = answer.impossible
                return
            self._record(answer)

    def _require_newer(self, model: SolverModel) -> None:
        """Require a solution that equals the last one before some package, by name, and is newer or absent there."""
        equal_so_far: Literal | None = None
        newer_at: list[Literal] = []
        for name in sorted(self._encoding.candidates):
            absent = negated(self._encoding.present(name))
            choices = self._encoding.choices(name)
            this, newer = absent, []
            if name in self._last:
                this = choices[self._last[name].version]
                newer = [absent, *(x for v, x in choices.items() if v > self._last[name].version)]
            elif name in self.unexpanded:
                this, newer = self._encoding.older(name), [absent, *choices.values()]
            before, equal_so_far = equal_so_far, model.boolean()
            here = model.boolean()
            model.require_any(newer, when=here)
            model.require(this, when=equal_so_far)
            if before is not None:
                model.require(before, when=here)
                model.require(before, when=equal_so_far)
            newer_at.append(here)
        model.require_any(newer_at)


def _rewarded(objectives: Sequence[Objective]) -> set[NormalizedName]:
    """Return the packages that have a reward."""
    rewarded = {name for o in objectives for (name, _), cost in o.costs.items() if cost < 0}
    return rewarded | {
        name for o in objectives for (_, (name, version)), cost in o.pairs.items() if version is None and cost
    }


def _total(terms: Mapping[Literal, int], answer: SolverResult) -> int:
    return sum(cost for literal, cost in terms.items() if answer.is_true(literal))
