"""Why no stack exists: the smallest set of the project's own requirements that conflict, and the facts involved.

Every requirement of the project, every rule, and every dependency of one package on another is a fact with a switch
(an assumption of the solver). The solver returns facts that are sufficient for the contradiction. The smallest set of
project requirements among them is found by the duality of conflicts and corrections: the smallest set that hits every
known correction either conflicts, and is the result, or yields another correction (Ignatiev et al., Smallest MUS
Extraction with Minimal Hitting Set Dualization, CP 2015). Other facts are dropped if the conflict remains without them.

Most conflicts of real projects are visible without a search: `pip freeze` and conda environments pin every package, so
that few requirements that admit one version each contradict each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.progress import progress
from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import Candidate, CandidateSource, Dependency, ResolutionProblem, admits
from advisor.resolve.optimum.encode import Encoding, Fact
from advisor.resolve.optimum.optimise import MAX_ITERATIONS
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.search import Search
from advisor.resolve.optimum.solver import Effort, Literal, SolverModel, SolverResult, negated
from advisor.resolve.score.criterion_costs import CriterionCosts

_SMALLEST_SECONDS = 1.5
"""Time limit of the search for the smallest conflict; metadata is read for it."""
_REDUCTION_SECONDS = 2.0
"""Time limit of the reduction of the first conflict, and of the other facts; nothing is read for it."""
_MOST_DEMANDS = 200
"""Maximum number of requirements on one package that are compared in pairs."""
_MAX_REQUIREMENTS = 3
"""Maximum number of different requirements of one package that are listed, each with the versions that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A minimal set of facts that contradict each other: requirements of the project, dependencies of packages, rules.

    `stopped` says why there may be a smaller set of requirements; it is empty if there is none.
    """

    roots: tuple[RootRequirement, ...]
    relations: tuple[tuple[NormalizedName, NormalizedName], ...]
    rules: tuple[str, ...]
    stopped: str = ""


def find_conflict(request: ResolutionRequest) -> Conflict | None:
    """Return why a request has no stack; `None` if it has one, or if a limit was reached first."""
    contradiction = _find_contradiction(request)
    return None if contradiction is None else contradiction.conflict()


def is_contradictory(request: ResolutionRequest) -> bool:
    """Whether it is proven that a request has no stack."""
    return _find_contradiction(request) is not None


def _find_contradiction(request: ResolutionRequest) -> Contradiction | None:
    """Return the contradiction of a request that has no stack; `None` if it has one, or if a limit was reached."""
    effort = request.effort
    encoding = Encoding(request.problem, request.source, CriterionCosts(request.score).limits, guarded=True)
    search = Search(encoding, request.baseline)
    for iteration in range(1, MAX_ITERATIONS + 1):
        progress("looking for a contradiction: iteration %d", iteration)
        answer = _solve(encoding, effort, list(encoding.guards.values()))
        if answer.values is None:
            return Contradiction(encoding, search, effort, set(answer.core)) if answer.impossible else None
        if search.refine(encoding.selected_candidates(answer)) is not None:
            return None
        if effort.limit.is_over:
            return None
    return None


def _solve(encoding: Encoding, effort: Effort, assumptions: Sequence[Literal]) -> SolverResult:
    """Solve a model, if possible with known metadata only, or at least without sdists: that is the fastest proof."""
    model = encoding.solvable_model()
    for avoided in (encoding.unread(), encoding.unread(only_sdists=True)):
        if avoided:
            answer = model.solve(effort, assumptions=[*assumptions, *map(negated, avoided)])
            if answer.values is not None:
                return answer
    return model.solve(effort, assumptions=assumptions)


class Contradiction:
    """Facts that contradict each other, which are reduced to a minimal set."""

    def __init__(self, encoding: Encoding, search: Search, effort: Effort, core: set[Literal]) -> None:
        self._encoding = encoding
        self._search = search
        self._guards = encoding.guards
        self._effort = effort
        self._reduction = effort
        self._first = {fact for fact, literal in encoding.guards.items() if literal in core or not core}

    def conflict(self) -> Conflict:
        """Return the smallest set of the project's requirements that conflict, with the other facts involved.

        If the smallest one is not known in time, or the user interrupts the search, it is one that cannot be reduced.
        """
        self._reduction = replace(self._effort, limit=TimeLimit(_REDUCTION_SECONDS))
        everything = [fact for fact in self._guards if fact.root is not None]
        others = [fact for fact in self._guards if fact.root is None]
        roots = self._irreducible([fact for fact in everything if fact in self._first], others)
        limit = self._effort.limit.at_most(_SMALLEST_SECONDS)
        try:
            smallest = self._smallest(everything, replace(self._effort, limit=limit))
            roots = roots if limit.is_over else smallest
        except KeyboardInterrupt:
            limit.interrupt()
        self._reduction = replace(self._effort, limit=TimeLimit(_REDUCTION_SECONDS))
        # The search for the smallest conflict may have read further facts.
        others = [fact for fact in self._guards if fact.root is None]
        core = self._core([*others, *roots]) or set()
        relevant = self._irreducible([fact for fact in others if fact in core], roots)
        return Conflict(
            stopped=limit.reason,
            roots=tuple(fact.root for fact in roots if fact.root is not None),
            relations=tuple(sorted((f.parent, f.required) for f in relevant if f.parent and f.required)),
            rules=tuple(sorted(fact.rule for fact in relevant if fact.rule)),
        )

    def _irreducible(self, facts: list[Fact], others: Sequence[Fact]) -> list[Fact]:
        """Return facts that contradict the others only all together, by the metadata that was read."""
        for fact in list(facts):
            if fact in facts and (core := self._core([*(f for f in facts if f is not fact), *others])) is not None:
                facts = [f for f in facts if f in core]
        return facts

    def _core(self, facts: Iterable[Fact]) -> set[Fact] | None:
        """Return facts among some that contradict each other, or `None` if they do not."""
        facts = list(facts)
        answer = self._encoding.solvable_model().solve(
            self._reduction, assumptions=[self._guards[fact] for fact in facts]
        )
        if not answer.impossible:
            return None
        core = set(answer.core)
        return {fact for fact in facts if self._guards[fact] in core} or set(facts)

    def _conflicts(self, roots: Sequence[Fact], effort: Effort) -> bool:
        """Whether some of the project's requirements, with all other facts, have no solution."""
        requirements = tuple(fact.root for fact in roots if fact.root is not None)
        while True:
            facts = [*roots, *(fact for fact in self._guards if fact.root is None)]
            assumptions = [self._guards[fact] for fact in facts]
            answer = _solve(self._encoding, effort, assumptions)
            if answer.values is None:
                return answer.impossible
            # The relaxation has a solution: check it with the metadata of everything that it chose.
            if self._search.refine(self._encoding.selected_candidates(answer), roots=requirements) is not None:
                return False
            if effort.limit.is_over:
                return False

    def _smallest(self, roots: Sequence[Fact], effort: Effort) -> list[Fact]:
        """Return the smallest set of project requirements that has no solution together with all other facts."""
        hitting = SolverModel()
        picks: dict[Fact, Literal] = {fact: hitting.boolean() for fact in roots}
        while True:
            progress("there is no stack: reducing the conflict among %d requirements", len(roots))
            answer = hitting.solve(effort, costs=dict.fromkeys(picks.values(), 1))
            facts = [fact for fact in roots if answer.values is not None and answer.is_true(picks[fact])]
            if self._conflicts(facts, effort):
                return facts
            correction = self._correction(facts, roots, effort)
            if not correction:
                # All of them conflict, so a call reached its work limit: the set cannot be reduced.
                return list(roots)
            hitting.require_any(picks[fact] for fact in correction)

    def _correction(self, facts: Sequence[Fact], roots: Sequence[Fact], effort: Effort) -> list[Fact]:
        """Return requirements without which the others have a solution, as few as the model knows; empty at a limit.

        It contains none of `facts`, which have a solution.
        """
        gains = {self._guards[fact]: -1 for fact in roots if fact not in facts}
        while True:
            # Each check may load metadata, which adds facts.
            fixed = [self._guards[fact] for fact in self._guards if fact.root is None or fact in facts]
            answer = self._encoding.solvable_model().solve(effort, assumptions=fixed, costs=gains)
            if answer.values is None:
                return []
            compatible = [fact for fact in roots if answer.is_true(self._guards[fact])]
            if not self._conflicts(compatible, effort):
                return [fact for fact in roots if fact not in compatible]


def describe_conflict(conflict: Conflict, request: ResolutionRequest) -> tuple[str, ...]:
    """Describe a conflict in lines: the project's requirements, the dependencies, and the package without a version."""
    source = request.source
    lines = []
    for root in conflict.roots:
        verb = "limit" if root.constraint else "require"
        lines.append(f"you {verb} `{root.requirement}` ({root.origin})")
    admitted = _Admitted(conflict, request.problem, source)
    for parent, required in _from_the_roots(conflict):
        lines += [f"and {line}" for line in _relation(parent, required, admitted)]
    lines += [f"and {rule}" for rule in conflict.rules]
    parents = {parent for parent, _ in conflict.relations}
    packages = {required for _, required in conflict.relations} | {root.name for root in conflict.roots}
    for name in sorted(packages - parents):
        lines.append(f"so no version of `{name}` satisfies all of this")
        if _is_hopeless(name, admitted):
            candidates, why = source.candidates(name), source.reasons(name)
            lines[-1] += f"; available candidates: {_span(candidates)}" if candidates else "; it has no candidates"
            lines[-1] += f" (excluded: {why})" if why else ""
    return tuple(lines)


def _is_hopeless(name: NormalizedName, admitted: _Admitted) -> bool:
    """Whether a single one of the conflicting requirements admits no candidate of a package."""
    source, conflict = admitted.source, admitted.conflict
    candidates = [
        c
        for c in source.candidates(name)
        if not source.failed_newer(c) and (not source.is_known(c) or source.dependencies(c) is not None)
    ]
    requested = [root.requirement for root in conflict.roots if root.name == name]
    for parent, required in conflict.relations:
        if required == name:
            requested += [d.requirement for _, _, several in admitted.requirements(parent, name) for d in several]
    return any(not any(admits(requirement, c.version) for c in candidates) for requirement in requested)


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The candidates and extras of a package under the conflicting requirements."""

    conflict: Conflict
    problem: ResolutionProblem
    source: CandidateSource

    def of(self, name: NormalizedName) -> list[Candidate]:
        specifiers = [root.requirement for root in self.conflict.roots if root.name == name]
        return [c for c in self.source.candidates(name) if all(admits(s, c.version) for s in specifiers)]

    def requirements(
        self, parent: NormalizedName, required: NormalizedName
    ) -> Iterator[tuple[Candidate, NormalizedName | None, list[Dependency]]]:
        """Yield what each known candidate of a package, or an extra of it, requires of another package."""
        for candidate in filter(self.source.is_known, self.of(parent)):
            for extra in (None, *self.extras_of(parent)):
                if several := [d for d in self.source.dependencies(candidate, extra) or () if d.name == required]:
                    yield candidate, extra, several

    def extras_of(self, name: NormalizedName) -> list[NormalizedName]:
        requested = {
            canonicalize_name(e) for root in self.conflict.roots if root.name == name for e in root.requirement.extras
        }
        for parent, required in self.conflict.relations:
            if required == name and parent != name:
                readable = (c for c in self.of(parent) if self.source.is_known(c))
                requested |= {
                    e for c in readable for d in self.source.dependencies(c) or () if d.name == name for e in d.extras
                }
        return sorted(requested)


def _from_the_roots(conflict: Conflict) -> list[tuple[NormalizedName, NormalizedName]]:
    """Return the relations in the order in which the project's requirements lead to them."""
    ordered: list[tuple[NormalizedName, NormalizedName]] = []
    reached = {root.name for root in conflict.roots}
    pending = list(conflict.relations)
    while pending:
        fresh = [relation for relation in pending if relation[0] in reached] or pending
        ordered += fresh
        reached |= {required for _, required in fresh}
        pending = [relation for relation in pending if relation not in fresh]
    return ordered


def _relation(parent: NormalizedName, required: NormalizedName, admitted: _Admitted) -> list[str]:
    """Describe what the versions of one package require of another, newest first; equal requirements share a line."""
    texts: dict[tuple[str, str], list[Candidate]] = {}
    for candidate, extra, several in admitted.requirements(parent, required):
        text = " and ".join(map(_requirement_text, several))
        text += " (by the metadata that the project states)" if admitted.problem.stated_of(candidate) else ""
        texts.setdefault((f"{parent}[{extra}]" if extra else str(parent), text), []).append(candidate)
    lines = [f"`{node}` {_span(candidates)} requires {text}" for (node, text), candidates in texts.items()]
    if len(lines) > _MAX_REQUIREMENTS:
        lines = [
            *lines[:_MAX_REQUIREMENTS],
            f"`{parent}` requires `{required}` in {sum(map(len, texts.values()))} versions in total",
        ]
    return lines or [f"`{parent}` requires `{required}`"]


def _requirement_text(dependency: Dependency) -> str:
    text = f"`{str(dependency.requirement).split(';')[0].strip()}`"
    return f"{text} (its metadata does not state it: {dependency.source})" if dependency.source else text


def _span(candidates: Sequence[Candidate]) -> str:
    newest, oldest = candidates[0].version, candidates[-1].version
    if len(candidates) == 1:
        return str(newest)
    return f"{oldest} to {newest} ({len(candidates)} versions)"


def relax_requirement(problem: ResolutionProblem, root: RootRequirement) -> ResolutionProblem | None:
    """Return a problem without one constraint, or with a free requirement; `None` if there is nothing to relax."""
    if not root.requirement.specifier and not root.hashes:
        return None
    if root.constraint:
        return replace(problem, roots=tuple(r for r in problem.roots if r is not root))
    return replace(problem, roots=tuple(r.without_versions() if r is root else r for r in problem.roots))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """A requirement, of the project or of a package, that holds in every stack with a requirement of the project."""

    requirement: Requirement
    root: RootRequirement
    parent: NormalizedName | None


def find_pinned_conflict(problem: ResolutionProblem, source: CandidateSource) -> Conflict | None:
    """Return a conflict of at most two requirements of the project that admit only one version each.

    They conflict with each other, or the two versions need different versions of a third package. `None` if there is
    none of this kind, although there may be others.
    """
    demands: dict[NormalizedName, list[_Demand]] = {}
    pinned: list[tuple[RootRequirement, Candidate]] = []
    for name in sorted({root.name for root in problem.required}):
        for root in problem.roots_of(name):
            demands.setdefault(root.name, []).append(_Demand(requirement=root.requirement, root=root, parent=None))
            admitted = [c for c in source.candidates(name) if admits(root.requirement, c.version)]
            if len(admitted) == 1:
                pinned.append((root, admitted[0]))
    source.fetch(candidate for _, candidate in pinned)
    for root, candidate in pinned:
        for extra in (None, *sorted(root.requirement.extras)):
            for dependency in source.dependencies(candidate, NormalizedName(extra) if extra else None) or ():
                demand = _Demand(requirement=dependency.requirement, root=root, parent=candidate.name)
                demands.setdefault(dependency.name, []).append(demand)
    source.prefetch(sorted(demands))
    conflicts = [
        conflict for name in sorted(demands) if (conflict := _conflict_on(name, demands[name], source)) is not None
    ]
    return min(conflicts, key=lambda conflict: len(conflict.roots), default=None)


def _conflict_on(name: NormalizedName, demands: Sequence[_Demand], source: CandidateSource) -> Conflict | None:
    """Return the smallest conflict of at most two requirements on one package; `None` if there is none."""
    versions = [candidate.version for candidate in source.candidates(name)]
    if any(all(admits(demand.requirement, version) for demand in demands) for version in versions):
        return None
    for size in (1, 2):
        for some in itertools.combinations(demands[:_MOST_DEMANDS], size):
            if not any(all(admits(demand.requirement, version) for demand in some) for version in versions):
                roots = tuple(dict.fromkeys(demand.root for demand in some))
                relations = sorted({(demand.parent, name) for demand in some if demand.parent is not None})
                return Conflict(roots=roots, relations=tuple(relations), rules=())
    return None
