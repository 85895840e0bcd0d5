"""The exact optimum over all candidates, with metadata fetched only where it can matter.

One Boolean for each candidate version; a candidate requires, for each of its dependencies, one of the versions that the
specifier admits. A candidate whose metadata was not fetched counts as free of dependencies, so the solved problem is a
relaxation: its optimum is at least as good as the true one. Metadata of what was chosen (and of the next versions of
the same packages) is fetched, the model grows, and the solver runs again, until everything chosen is known. Then the
solution satisfies the true problem and is its optimum, over fetched and unfetched candidates alike.

Objectives are lexicographic: each is solved to optimality and fixed before the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.problem import Candidate, CandidateSource, Dependency, Problem, admits

WORK_LIMIT = 60.0
"""Deterministic solver work for each objective of each iteration; the same on every machine."""
MAX_ITERATIONS = 200
_GROWTH = 2

Choice = tuple[NormalizedName, Version]
Candidates = Mapping[NormalizedName, Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One criterion, to be minimised.

    Costs are never negative, so that a package that nothing requires never improves a stack.

    Attributes:
        name: Name for the proof.
        costs: Cost of each choice, whole numbers; what is absent costs nothing.
        pairs: Cost of each pair of choices.
    """

    name: str
    costs: Mapping[Choice, int] = field(default_factory=dict)
    pairs: Mapping[tuple[Choice, Choice], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the rules exclude.

    Attributes:
        forbidden: Choices that must not be made.
        exclusive: Pairs of sets of choices: not one of each.
    """

    forbidden: frozenset[Choice] = frozenset()
    exclusive: tuple[tuple[frozenset[Choice], frozenset[Choice]], ...] = ()


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
        iterations: Times the model was solved, each time with more metadata.
        candidates: Candidate versions that the optimum ranges over.
        fetched: Candidate versions whose metadata was read.
    """

    stack: tuple[Candidate, ...]
    bounds: tuple[Bound, ...]
    iterations: int
    candidates: int
    fetched: int

    @property
    def proven(self) -> bool:
        """Whether no better stack exists."""
        return all(bound.gap == 0 for bound in self.bounds)


class NoSolution(Exception):
    """Raised when no stack satisfies the requirements and the rules."""


def optimise(
    problem: Problem,
    source: CandidateSource,
    *,
    objectives: Callable[[Candidates], Sequence[Objective]],
    limits: Callable[[Candidates], Limits],
    start: Sequence[Candidate],
    work_limit: float = WORK_LIMIT,
) -> Optimum:
    """Find the best stack.

    Args:
        problem: What is to be resolved.
        source: The candidates.
        objectives: Gives the objectives for the packages reached so far, in order of importance.
        limits: Gives what the rules exclude among the packages reached so far.
        start: A stack whose packages are reached from the beginning, such as the baseline.
        work_limit: Deterministic solver work for each objective of each iteration.

    Raises:
        NoSolution: If no stack satisfies the requirements and the rules.
    """
    search = _Search(problem, source, start)
    for iteration in range(1, MAX_ITERATIONS + 1):
        model = _Model(problem, source, search.reached, limits(search.reached))
        bounds = tuple(model.minimise(objective, work_limit) for objective in objectives(search.reached))
        stack = search.learn(model.chosen())
        if stack is not None:
            return Optimum(
                stack=stack,
                bounds=bounds,
                iterations=iteration,
                candidates=sum(map(len, search.reached.values())),
                fetched=len(source.fetched),
            )
    raise NoSolution(f"the search did not close within {MAX_ITERATIONS} iterations")


class _Search:
    """Which packages and whose metadata are known so far."""

    def __init__(self, problem: Problem, source: CandidateSource, start: Sequence[Candidate]) -> None:
        self._problem = problem
        self._source = source
        self._patience: dict[NormalizedName, int] = {}
        self.reached: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self._reach({root.name for root in problem.roots if not root.constraint} | {c.name for c in start})
        source.fetch(start)

    def learn(self, chosen: Mapping[NormalizedName, Candidate]) -> tuple[Candidate, ...] | None:
        """Walk what the root requires of a choice, and fetch what is not known of it.

        Returns:
            What the root requires, directly or not, sorted by name; none where not all of it was known.
        """
        extras: dict[NormalizedName, set[NormalizedName | None]] = {}
        unknown: list[Candidate] = []
        fresh: set[NormalizedName] = set()
        queue: list[tuple[NormalizedName, NormalizedName | None]] = [
            (root.name, extra)
            for root in self._problem.roots
            if not root.constraint and self._problem.applies(root.requirement)
            for extra in (None, *Dependency(name=root.name, requirement=root.requirement).extras)
        ]
        while queue:
            name, extra = queue.pop()
            if extra in extras.setdefault(name, set()):
                continue
            extras[name].add(extra)
            if name not in self.reached:
                fresh.add(name)
            elif not self._source.is_known(chosen[name]):
                unknown.append(chosen[name])
            else:
                for dependency in self._source.dependencies(chosen[name], extra) or ():
                    queue += [(dependency.name, e) for e in (None, *dependency.extras)]
        self._fetch_around(sorted(unknown))
        self._reach(fresh)
        return None if unknown or fresh else tuple(chosen[name] for name in sorted(extras))

    def _fetch_around(self, unknown: Sequence[Candidate]) -> None:
        """Fetch candidates and the versions below them, in one parallel batch."""
        wanted: list[Candidate] = []
        for candidate in unknown:
            # Twice as many each time a package is asked for again: a long chain of versions closes in few rounds.
            patience = self._patience.get(candidate.name, 1) * _GROWTH
            self._patience[candidate.name] = patience
            offered = self.reached[candidate.name]
            wanted += [c for c in offered[offered.index(candidate) :] if not self._source.is_known(c)][:patience]
        self._source.fetch(wanted)

    def _reach(self, names: Iterable[NormalizedName]) -> None:
        names = sorted(names)
        self._source.prefetch(names)
        for name in names:
            self.reached[name] = self._source.candidates(name)
        self._source.fetch([self.reached[name][0] for name in names if self.reached[name]])


def asked_extras(
    problem: Problem, source: CandidateSource, reached: Candidates
) -> dict[NormalizedName, set[NormalizedName]]:
    """Return the extras that the root or any known candidate asks of each package."""
    asked: dict[NormalizedName, set[NormalizedName]] = {}
    for root in problem.roots:
        if not root.constraint and problem.applies(root.requirement):
            asked.setdefault(root.name, set()).update(Dependency(name=root.name, requirement=root.requirement).extras)
    grew = True
    while grew:
        grew = False
        for name, candidates in reached.items():
            for candidate in candidates:
                if not source.is_known(candidate):
                    continue
                for extra in (None, *sorted(asked.get(name, ()))):
                    for dependency in source.dependencies(candidate, extra) or ():
                        known = asked.setdefault(dependency.name, set())
                        if not known.issuperset(dependency.extras):
                            known.update(dependency.extras)
                            grew = True
    return asked


class _Model:
    """The relaxation for what is known so far, in CP-SAT."""

    def __init__(self, problem: Problem, source: CandidateSource, reached: Candidates, limits: Limits) -> None:
        from ortools.sat.python import cp_model

        self._cp = cp_model
        self._model = cp_model.CpModel()
        self._source = source
        self._reached = reached
        self._chosen: dict[NormalizedName, Candidate] = {}
        self._x: dict[Choice, Any] = {}
        self._extras: dict[tuple[NormalizedName, NormalizedName], Any] = {}
        self._both: dict[tuple[Choice, Choice], Any] = {}
        for name, candidates in sorted(reached.items()):
            constraints = [root.requirement for root in problem.roots_of(name)]
            for candidate in candidates:
                choice = (name, candidate.version)
                self._x[choice] = self._model.new_bool_var(f"{name} {candidate.version}")
                unusable = source.is_known(candidate) and source.dependencies(candidate) is None
                if unusable or choice in limits.forbidden or not all(admits(r, candidate.version) for r in constraints):
                    self._model.add(self._x[choice] == 0)
            self._model.add_at_most_one([self._x[name, c.version] for c in candidates])
        self._require_roots(problem)
        asked = asked_extras(problem, source, reached)
        for name in sorted(reached):
            self._require_dependencies(name, sorted(asked.get(name, ())))
        for left, right in limits.exclusive:
            self._model.add(sum(self._x[c] for c in sorted(left)) + sum(self._x[c] for c in sorted(right)) <= 1)

    def minimise(self, objective: Objective, work_limit: float) -> Bound:
        """Minimise one objective, and hold its value from then on.

        Raises:
            NoSolution: If the model has none.
        """
        terms = [cost * self._x[c] for c, cost in sorted(objective.costs.items()) if cost]
        terms += [cost * self._product(pair) for pair, cost in sorted(objective.pairs.items()) if cost]
        if not terms and self._chosen:
            return Bound(objective=objective.name, value=0, bound=0)
        total = sum(terms) if terms else 0
        self._model.minimize(total)
        solver = self._cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        # Deterministic work, not seconds: the answer is the same on a slow machine.
        solver.parameters.max_deterministic_time = work_limit
        status = solver.solve(self._model)
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            raise NoSolution(solver.status_name(status))
        self._chosen = {
            name: candidate
            for name, candidates in sorted(self._reached.items())
            for candidate in candidates
            if solver.boolean_value(self._x[name, candidate.version])
        }
        value = round(solver.objective_value) if terms else 0
        bound = value if status == self._cp.OPTIMAL else math.ceil(solver.best_objective_bound - 1e-6)
        self._model.add(total <= value)
        self._model.clear_hints()
        for choice, variable in self._x.items():
            self._model.add_hint(variable, solver.boolean_value(self._x[choice]))
        return Bound(objective=objective.name, value=value, bound=bound)

    def chosen(self) -> dict[NormalizedName, Candidate]:
        """Return the last solution."""
        return self._chosen

    def _require_roots(self, problem: Problem) -> None:
        for root in problem.roots:
            if root.constraint or not problem.applies(root.requirement):
                continue
            dependency = Dependency(name=root.name, requirement=root.requirement)
            self._model.add_bool_or(self._admitted(dependency) or [self._false()])
            for extra in dependency.extras:
                self._model.add(self._extra(root.name, extra) == 1)

    def _require_dependencies(self, name: NormalizedName, extras: Sequence[NormalizedName]) -> None:
        """Add what the known versions of a package require; versions that require alike share one constraint."""
        alike: dict[tuple[NormalizedName, tuple[Version, ...]], dict[Version, Any]] = {}
        for candidate in self._reached[name]:
            if not self._source.is_known(candidate):
                continue
            variable = self._x[name, candidate.version]
            for dependency in self._source.dependencies(candidate) or ():
                if dependency.name in self._reached:
                    admitted = self._admitted_versions(dependency)
                    alike.setdefault((dependency.name, admitted), {})[candidate.version] = variable
                    for extra in dependency.extras:
                        self._model.add_implication(variable, self._extra(dependency.name, extra))
            for extra in extras:
                asked = self._extra(name, extra)
                for dependency in self._source.dependencies(candidate, extra) or ():
                    if dependency.name in self._reached:
                        self._model.add_bool_or([~variable, ~asked, *self._admitted(dependency)])
                        for inner in dependency.extras:
                            self._model.add_bool_or([~variable, ~asked, self._extra(dependency.name, inner)])
        for (required, admitted), parents in sorted(alike.items(), key=lambda item: item[0]):
            # At most one parent and at most one admitted version hold, so the sums are Booleans.
            self._model.add(sum(parents.values()) <= sum(self._x[required, v] for v in admitted))

    def _admitted_versions(self, dependency: Dependency) -> tuple[Version, ...]:
        return tuple(c.version for c in self._reached[dependency.name] if admits(dependency.requirement, c.version))

    def _admitted(self, dependency: Dependency) -> list[Any]:
        return [self._x[dependency.name, v] for v in self._admitted_versions(dependency)]

    def _extra(self, name: NormalizedName, extra: NormalizedName) -> Any:
        if (name, extra) not in self._extras:
            self._extras[name, extra] = self._model.new_bool_var(f"{name}[{extra}]")
        return self._extras[name, extra]

    def _product(self, pair: tuple[Choice, Choice]) -> Any:
        """Return a Boolean that holds when both choices are made."""
        if pair not in self._both:
            both = self._model.new_bool_var("both")
            self._model.add_bool_or([~self._x[pair[0]], ~self._x[pair[1]], both])
            self._both[pair] = both
        return self._both[pair]

    def _false(self) -> Any:
        return self._model.new_constant(0)
