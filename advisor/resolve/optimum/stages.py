"""The objectives of a model, solved one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.optimum.cost_terms import CostTerms
from advisor.resolve.optimum.encode import Encoding
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
from advisor.resolve.optimum.search import reached_by
from advisor.resolve.optimum.solver import Effort, Literal, SolverModel, SolverResult, negated
from advisor.resolve.score.costs import Bound, Budget, Objective


class Stages:
    """Solves the objectives one after the other, with the values of the earlier ones fixed."""

    def __init__(self, encoding: Encoding, effort: Effort, start: Sequence[Candidate]) -> None:
        self._encoding = encoding
        self._terms = CostTerms(encoding)
        self._effort = effort
        self._last: Mapping[NormalizedName, Candidate] = {c.name: c for c in start}
        self.rewarded: tuple[NormalizedName, ...] = ()
        """Packages that may have earned a reward although nothing requires them; see :meth:`rewards_are_justified`."""
        self._values: list[int] = []
        self._proven: tuple[int, ...] = ()
        self._excluded: list[tuple[list[Literal], NormalizedName]] = []
        self._present: set[NormalizedName] = set()
        self._optimal: tuple[SolverModel, Mapping[Literal, int]] | None = None
        self.options: Mapping[NormalizedName, int] = {}
        """Place of the extras that the last solution requires in addition, of the packages that it needs."""
        self.unique = False
        """Whether the last choice is proven to be the first of those with the same score."""
        self.unexpanded: Sequence[NormalizedName] = ()
        """Packages with a candidate in the last solution that is not explicit."""

    def solve(
        self, objectives: Sequence[Objective], budgets: Sequence[Budget] = ()
    ) -> tuple[tuple[Bound, ...], Mapping[NormalizedName, Candidate]]:
        """Return the bound of each objective, in order of importance, and the choice.

        Raises:
            InfeasibleError: If there is no solution.
            SearchLimitError: If the work limit is reached before a solution or a proof is found.
        """
        costs = self._cost_terms(objectives)
        spent = [(self._terms.of_choices(budget.costs, {}), budget.most) for budget in budgets]
        # The project's own requirements need their packages in any case.
        self.rewarded = tuple(sorted(_rewarded(objectives) - self._encoding.required))
        model = self._with_support(self._encoding.solvable_model().copy())
        for terms, most in spent:
            model.at_most(terms, most)
        names = [objective.name for objective in objectives]
        answer = self._with_previous_values(model, costs)
        if answer is not None:
            bounds = self._bounds_of_answer(model, names, costs, answer)
        else:
            bounds, answer = self._minimised(model, names, costs)
        # A refined model never has cheaper solutions, so later bounds are at least as high. Only where a build failed,
        # requirements that are read later may admit further versions.
        is_refined = not self._encoding.failed_builds
        self._proven = tuple(bound.bound for bound in bounds) if is_refined else ()
        monotone = is_refined and all(cost > 0 for terms in costs for cost in terms.values())
        self._values = [b.value for b in bounds] if monotone and not any(b.gap for b in bounds) else []
        self._record(answer)
        self.unique = False
        is_comparable = not any(bound.gap for bound in bounds)
        self._optimal = (model, next((terms for terms in reversed(costs) if terms), {})) if is_comparable else None
        return tuple(bounds), self._last

    def _cost_terms(self, objectives: Sequence[Objective]) -> list[Counter[Literal]]:
        costs = [Counter(self._terms.of_choices(o.costs, o.pairs)) for o in objectives]
        # All packages are as explicit as the costs need before their releases are compared.
        for terms, objective in zip(costs, objectives, strict=True):
            terms.update(self._terms.of_differences(objective.different))
            terms.update(self._terms.of_absences(objective.absent))
            terms.update(self._terms.of_options(objective.options))
            terms.update(self._terms.of_combinations(objective.together))
        return costs

    def _bounds_of_answer(
        self, model: SolverModel, names: Sequence[str], costs: Sequence[Mapping[Literal, int]], answer: SolverResult
    ) -> list[Bound]:
        """Return the bounds of a solution that is optimal by the last objective, and fix its values."""
        values = [_total(terms, answer) for terms in costs]
        for terms, value in zip(costs, values, strict=True):
            model.at_most(terms, value)
        proven = [*values[:-1], answer.bound]
        return [Bound(objective=n, value=v, bound=b) for n, v, b in zip(names, values, proven, strict=True)]

    def _minimised(
        self, model: SolverModel, names: Sequence[str], costs: Sequence[Mapping[Literal, int]]
    ) -> tuple[list[Bound], SolverResult]:
        """Minimise one objective after the other, and fix its value; return the bounds and the last solution."""
        answer: SolverResult | None = None
        bounds: list[Bound] = []
        for name, terms in zip(names, costs, strict=True):
            value = bound = 0
            if terms:
                answer, bound = self._minimise(model, terms, answer)
                value = _total(terms, answer)
                model.at_most(terms, value)
            bounds.append(Bound(objective=name, value=value, bound=bound))
        return bounds, answer or self._solve(model, {}, None)

    def bounds_of(self, stack: Sequence[Candidate], objectives: Sequence[Objective]) -> tuple[Bound, ...]:
        """Return the value of each objective for a stack, and what is proven of it so far.

        The bound of an objective was computed for the optimal values of those before it.
        """
        bounds: list[Bound] = []
        for number, objective in enumerate(objectives):
            value = objective.value(stack)
            least = sum(min(0, cost) for cost in (*objective.costs.values(), *objective.pairs.values()))
            if number < len(self._proven) and not any(earlier.gap for earlier in bounds):
                least = max(least, self._proven[number])
            bounds.append(Bound(objective=objective.name, value=value, bound=min(value, least)))
        return tuple(bounds)

    def rewards_are_justified(self, stack: Sequence[Candidate]) -> bool:
        """Whether every rewarded package is needed by the stack; exclude the choice if one is not."""
        required_names = {c.name for c in stack}
        literals = [self._encoding.choices[c.name][c.version] for c in stack]
        surplus = [name for name in self.rewarded if name in self._present and name not in required_names]
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
            for version, literal in self._encoding.choices[name].items()
        }

    def _with_support(self, model: SolverModel) -> SolverModel:
        """Allow rewarded packages only if something may require them."""
        for name in self.rewarded:
            if name in self._encoding.candidates:
                model.require_any(self._encoding.supports(name), when=self._encoding.present[name])
        for literals, name in self._excluded:
            # These choices need no further package.
            model.require_any([*map(negated, literals), negated(self._encoding.present[name])])
        return model

    def _record(self, answer: SolverResult) -> None:
        """Store a solution, and the packages it needs that are not expanded."""
        self._last = self._encoding.selected_candidates(answer)
        # Includes packages whose candidate is not explicit.
        present = self._encoding.present
        self._present = {name for name in self.rewarded if name in present and answer.is_true(present[name])}
        self.options = {
            name: place
            for name, literals in sorted(self._encoding.options.items())
            for place, literal in enumerate(literals[:-1])
            if answer.is_true(literal)
        }
        names = reached_by(self._encoding.problem, self._encoding.source, self._last, extras=self.extras).names
        self.options = {name: place for name, place in self.options.items() if name in names}
        older = self._encoding.older
        self.unexpanded = [name for name in sorted(older.keys() & names) if answer.is_true(older[name])]
        self._last = {name: candidate for name, candidate in self._last.items() if name in names}

    @property
    def extras(self) -> dict[NormalizedName, frozenset[str]]:
        """Extras that the last solution requires in addition, by package."""
        extra_options = self._encoding.problem.extra_options
        return {name: extra_options[name][place].extras for name, place in self.options.items()}

    def prefer_newest(self) -> Mapping[NormalizedName, Candidate]:
        """Return the solution that comes first, by name and newest version, among those with the last score.

        Solves for one that comes earlier until there is none, so that the last one is proven to be the first.
        """
        if self._optimal is None:
            return self._last
        model, terms = self._optimal
        while True:
            better = model.copy()
            self._require_newer(better)
            # All solutions of this model have the same score, but with costs the solver proves faster that there is
            # none.
            answer = better.solve(self._effort, costs=terms)
            if answer.values is None:
                self.unique = answer.impossible
                return self._last
            self._record(answer)

    def _require_newer(self, model: SolverModel) -> None:
        """Require a solution that equals the last one before some package, by name, and is newer or absent there."""
        equal_so_far: Literal | None = None
        newer_at: list[Literal] = []
        for name in sorted(self._encoding.candidates):
            absent = negated(self._encoding.present[name])
            choices = self._encoding.choices[name]
            this, newer = absent, []
            if name in self._last:
                this = choices[self._last[name].version]
                newer = [absent, *(x for v, x in choices.items() if v > self._last[name].version)]
            elif name in self.unexpanded:
                this, newer = self._encoding.older[name], [absent, *choices.values()]
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
    rewarded = {name for o in objectives for (name, _), cost in o.costs.items() if cost < 0}
    rewarded |= {name for o in objectives for name, cost in o.absent.items() if cost}
    return rewarded | {
        name for o in objectives for (_, (name, version)), cost in o.pairs.items() if version is None and cost
    }


def _total(terms: Mapping[Literal, int], answer: SolverResult) -> int:
    return sum(cost for literal, cost in terms.items() if answer.is_true(literal))
