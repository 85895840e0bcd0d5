"""The exact optimum over all candidates, with metadata fetched only where it can matter.

The solved model is a relaxation (see :mod:`advisor.resolve.encode`), so its optimum is at least as good as the true
one. Metadata of what was chosen (and of the next versions of the same packages) is fetched, the model grows, and the
solver runs again, until everything chosen is known. Then the solution satisfies the true problem and is its optimum,
over fetched and unfetched candidates alike.

Objectives are lexicographic: each is solved to optimality and held before the next. Of the stacks that are best by all
of them, the one with the newest version of the first package that differs is taken, by name, an absent package
counting as newest: so the answer is unique, whatever the solver finds first and however many threads it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import NormalizedName

from advisor.resolve.encode import SHOWN, Candidates, Choice, Encoding, Limits, PairedChoice
from advisor.resolve.problem import Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.search import Search, needed_by
from advisor.resolve.solver import Effort, Literal, SolverModel, SolverResult, negated
from knowledge.domain.errors import UnsatisfiableError

MAX_ITERATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One criterion, to be minimised.

    Attributes:
        name: Name for the proof.
        costs: Cost of each choice, whole numbers; what is absent costs nothing. Negative costs are rewards, which a
            package earns only where something chosen requires it; such packages must be reached from the beginning.
        pairs: Cost of each pair of choices; the second one may be that a package is absent. What costs less than the
            absence earns a reward as above.
    """

    name: str
    costs: Mapping[Choice, int] = field(default_factory=dict)
    pairs: Mapping[tuple[Choice, PairedChoice], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What was proven of one objective: the optimum lies between ``bound`` and ``value``."""

    objective: str
    value: int
    bound: int

    @property
    def gap(self) -> int:
        """Distance from the best solution that was found to the best that may exist."""
        return self.value - self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The chosen stack and how far it is proven.

    Attributes:
        stack: Chosen candidates, sorted by name.
        bounds: By objective, in order of importance.
        unique: Whether it was proven that no other equally good stack comes first.
        iterations: Times the model was solved, each time with more metadata.
        candidates: Candidate versions that the optimum ranges over.
        fetched: Candidate versions whose metadata was read.
    """

    stack: tuple[Candidate, ...]
    bounds: tuple[Bound, ...]
    unique: bool
    iterations: int
    candidates: int
    fetched: int

    @property
    def proven(self) -> bool:
        """Whether no better stack exists."""
        return all(bound.gap == 0 for bound in self.bounds)


class NoSolution(Exception):
    """Raised when it is proven that no stack satisfies the requirements and the rules."""


class SearchLimitError(UnsatisfiableError):
    """Raised when the allowed work neither found a stack nor proved that there is none."""

    code = "search-limit"


def optimise(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    objectives: Callable[[Candidates], Sequence[Objective]],
    limits: Callable[[Candidates], Limits],
    start: Sequence[Candidate],
    effort: Effort | None = None,
    shown: int = SHOWN,
    rewarded: Iterable[NormalizedName] = (),
) -> Optimum:
    """Find the best stack.

    Args:
        problem: What is to be resolved.
        source: The candidates.
        objectives: Gives the objectives for the packages reached so far, in order of importance.
        limits: Gives what the rules exclude among the packages reached so far.
        start: A stack to begin from, such as the baseline: its packages are reached first, and it is the first hint.
        effort: How hard to try, for each objective of each iteration.
        shown: How many candidates of each package are looked at one by one from the beginning.
        rewarded: Packages that may have negative costs.

    Raises:
        NoSolution: If no stack satisfies the requirements and the rules.
        SearchLimitError: If that remained open.
    """
    encoding = Encoding(problem, source, limits, shown=shown)
    search = Search(problem, source, encoding, start)
    search.reach(rewarded)
    stage = _Stages(encoding, effort or Effort(), start, lambda chosen: needed_by(problem, source, chosen)[0])
    for iteration in range(1, MAX_ITERATIONS + 1):
        bounds, chosen = stage.solve(objectives(encoding.reached))
        stack = search.learn(chosen, stage.vague)
        if stack is not None and stage.is_founded(stack):
            return Optimum(
                stack=stack,
                bounds=bounds,
                unique=stage.unique,
                iterations=iteration,
                candidates=sum(len(offered) for offered in encoding.reached.values()),
                fetched=len(source.fetched),
            )
    raise SearchLimitError(f"the search did not close within {MAX_ITERATIONS} iterations")


class _Stages:
    """Solves the objectives one after the other, each with the values of those before it held."""

    def __init__(
        self,
        encoding: Encoding,
        effort: Effort,
        start: Sequence[Candidate],
        needed: Callable[[Mapping[NormalizedName, Candidate]], Iterable[NormalizedName]],
    ) -> None:
        self._encoding = encoding
        self._effort = effort
        self._needed = needed
        self._last: Mapping[NormalizedName, Candidate] = {c.name: c for c in start}
        self._rewarded: tuple[NormalizedName, ...] = ()
        self._values: list[int] = []
        self._refused: list[tuple[list[Literal], NormalizedName]] = []
        self._present: set[NormalizedName] = set()
        self.unique = False
        """Whether the last choice was proven to be the first of the equally good ones."""
        self.vague: Sequence[NormalizedName] = ()
        """Packages of which the last solution chose a candidate that is not shown."""

    def solve(self, objectives: Sequence[Objective]) -> tuple[tuple[Bound, ...], Mapping[NormalizedName, Candidate]]:
        """Return what was proven of each objective, and the choice.

        Raises:
            NoSolution: If there is none.
            SearchLimitError: If that remained open.
        """
        costs = [self._encoding.costs(o.costs, o.pairs) for o in objectives]
        self._rewarded = tuple(sorted(_rewarded(objectives)))
        model = self._with_support(self._encoding.model.copy())
        answer = self._as_good_as_before(model, costs)
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
        answer = answer or self._ask(model, {}, None)
        monotone = all(cost > 0 for terms in costs for cost in terms.values())
        self._values = [b.value for b in bounds] if monotone and not any(b.gap for b in bounds) else []
        self._take(answer)
        self.unique = False
        # With rewards, what is not needed may have earned one: that is told first, by `is_founded`.
        if not any(bound.gap for bound in bounds) and not self._rewarded:
            self._take_newest(model)
        return tuple(bounds), self._last

    def is_founded(self, stack: Sequence[Candidate]) -> bool:
        """Whether no reward was taken for a package that the stack does not need; where one was, refuse it."""
        needed = {c.name for c in stack}
        literals = [self._encoding.choices(c.name)[c.version] for c in stack]
        surplus = [name for name in self._rewarded if name in self._present and name not in needed]
        self._refused += [(literals, name) for name in surplus]
        return not surplus

    def _as_good_as_before(self, model: SolverModel, costs: Sequence[Mapping[Literal, int]]) -> SolverResult | None:
        """Look for the best solution by the last objective that is as good as the one before by all others.

        Learning only makes solutions dearer, so where there is such a one, it is the best: one question, not one for
        each objective.
        """
        if not self._values:
            return None
        held = model.copy()
        for terms, value in zip(costs[:-1], self._values[:-1], strict=True):
            held.at_most(terms, value)
        answer = held.solve(self._effort, costs=costs[-1], hint=self._hint(None))
        return answer if answer.values is not None else None

    def _minimise(
        self, model: SolverModel, terms: Mapping[Literal, int], before: SolverResult | None
    ) -> tuple[SolverResult, int]:
        """Return the cheapest solution with what its cost cannot go below."""
        least = sum(min(0, cost) for cost in terms.values())
        if before is not None and _total(terms, before) == least:
            return before, least
        answer = self._ask(model, terms, before)
        return answer, answer.bound

    def _ask(self, model: SolverModel, costs: Mapping[Literal, int], before: SolverResult | None) -> SolverResult:
        answer = model.solve(self._effort, costs=costs, hint=self._hint(before))
        if answer.impossible:
            raise NoSolution
        if answer.values is None:
            raise SearchLimitError(
                f"neither a stack nor a proof that there is none was found within {self._effort.work:g} units of work",
                hint="constrain the packages that have many versions",
            )
        return answer

    def _hint(self, before: SolverResult | None) -> dict[Literal, bool]:
        if before is not None and before.values is not None:
            return dict(enumerate(before.values))
        return {
            literal: name in self._last and self._last[name].version == version
            for name in self._encoding.reached
            for version, literal in self._encoding.choices(name).items()
        }

    def _with_support(self, model: SolverModel) -> SolverModel:
        """Let packages that earn a reward be chosen only where something may require them."""
        roots = self._encoding.required
        for name in self._rewarded:
            if name in self._encoding.reached and name not in roots:
                model.require_any(self._encoding.supports(name), given=self._encoding.present(name))
        for literals, name in self._refused:
            # These choices need exactly themselves.
            model.require_any([*map(negated, literals), negated(self._encoding.present(name))])
        return model

    def _take(self, answer: SolverResult) -> None:
        """Remember a solution, with what it needs without saying in which version."""
        self._last = self._encoding.chosen(answer)
        # Also those of which it chose a candidate that is not shown.
        reached = [name for name in self._rewarded if name in self._encoding.reached]
        self._present = {name for name in reached if answer.holds(self._encoding.present(name))}
        needed = set(self._needed(self._last))
        self.vague = [name for name in self._encoding.vague(answer) if name in needed]
        if not self._rewarded:
            self._last = {name: candidate for name, candidate in self._last.items() if name in needed}

    def _take_newest(self, model: SolverModel) -> None:
        """Take the solution that is first, by name and newest version, among the equally good ones.

        Asks for one that is better until there is none, so that the last one is proven to be the only answer.
        """
        while True:
            better = model.copy()
            self._require_newer(better)
            found = better.solve(self._effort)
            if found.values is None:
                self.unique = found.impossible
                return
            self._take(found)

    def _require_newer(self, model: SolverModel) -> None:
        """Require a solution that is like the last one up to some package, by name, and there newer or absent."""
        alike: Literal | None = None
        newer_at: list[Literal] = []
        for name in sorted(self._encoding.reached):
            absent = negated(self._encoding.present(name))
            choices = self._encoding.choices(name)
            this, newer = absent, []
            if name in self._last:
                this = choices[self._last[name].version]
                newer = [absent, *(x for v, x in choices.items() if v > self._last[name].version)]
            elif name in self.vague:
                this, newer = self._encoding.older(name), [absent, *choices.values()]
            before, alike = alike, model.boolean()
            here = model.boolean()
            model.require_any(newer, given=here)
            model.require(this, given=alike)
            if before is not None:
                model.require(before, given=here)
                model.require(before, given=alike)
            newer_at.append(here)
        model.require_any(newer_at)


def _rewarded(objectives: Sequence[Objective]) -> set[NormalizedName]:
    """Return the packages that a stack may gain by holding."""
    found = {name for o in objectives for (name, _), cost in o.costs.items() if cost < 0}
    return found | {
        name for o in objectives for (_, (name, version)), cost in o.pairs.items() if version is None and cost
    }


def _total(terms: Mapping[Literal, int], answer: SolverResult) -> int:
    return sum(cost for literal, cost in terms.items() if answer.holds(literal))
