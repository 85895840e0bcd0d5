"""Why no stack exists: the smallest set of the user's own requirements that conflict, and the facts that make them.

Every requirement of the user's own, every rule, and every relation of one package requiring another is a fact with a
switch. The solver tells facts that suffice for the contradiction. The smallest set of the user's own among them is
found by the duality of conflicts and corrections: the smallest set that meets every correction found so far either
conflicts, and is the answer, or yields another correction (Ignatiev et al., Smallest MUS Extraction with Minimal
Hitting Set Dualization, CP 2015). Of the other facts, each that can be switched off is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.resolve.encode import Candidates, Encoding, Fact, Limits
from advisor.resolve.optimise import MAX_ITERATIONS
from advisor.resolve.problem import Candidate, CandidateSource, ResolutionProblem, admits
from advisor.resolve.search import Search
from advisor.resolve.solver import Effort, Literal, SolverModel, negated

_FEW = 3
"""So many different requirements of one package are told, each with the versions that make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Facts that contradict each other; without any one of them the others do not.

    Attributes:
        roots: The user's own requirements among them.
        relations: Packages that require others.
        rules: Rules, by their reason.
    """

    roots: tuple[RootRequirement, ...]
    relations: tuple[tuple[NormalizedName, NormalizedName], ...]
    rules: tuple[str, ...]


def find_conflict(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    limits: Callable[[Candidates], Limits],
    start: Sequence[Candidate] = (),
    effort: Effort | None = None,
) -> Conflict | None:
    """Return why a problem has no solution; none where it has one, or where that remained open.

    Args:
        problem: What is to be resolved.
        source: The candidates.
        limits: Gives what the rules exclude.
        start: Candidates to look at first.
        effort: How hard to try, for each question.
    """
    effort = effort or Effort()
    encoding = Encoding(problem, source, limits, guarded=True)
    search = Search(problem, source, encoding, start)
    for _ in range(MAX_ITERATIONS):
        answer = encoding.model.solve(effort, assumptions=list(encoding.guards.values()))
        if answer.values is None:
            return _Reduction(encoding, search, effort).conflict() if answer.impossible else None
        if search.learn(encoding.chosen(answer)) is not None:
            return None
    return None


class _Reduction:
    """Reduces a contradiction to facts that are all needed for it."""

    def __init__(self, encoding: Encoding, search: Search, effort: Effort) -> None:
        self._encoding = encoding
        self._search = search
        self._model = encoding.model
        self._guards = encoding.guards
        self._effort = effort

    def conflict(self) -> Conflict:
        roots = [fact for fact in self._guards if fact.root is not None]
        smallest = self._smallest(roots)
        others = [fact for fact in self._guards if fact.root is None]
        needed = self._needed(others, smallest)
        return Conflict(
            roots=tuple(fact.root for fact in smallest if fact.root is not None),
            relations=tuple(sorted((f.parent, f.required) for f in needed if f.parent and f.required)),
            rules=tuple(sorted(fact.rule for fact in needed if fact.rule)),
        )

    def _core(self, facts: Iterable[Fact]) -> set[Fact] | None:
        """Return facts among those given that contradict each other, or none where they do not."""
        facts = list(facts)
        answer = self._model.solve(self._effort, assumptions=[self._guards[fact] for fact in facts])
        if not answer.impossible:
            return None
        named = set(answer.core)
        return {fact for fact in facts if self._guards[fact] in named} or set(facts)

    def _conflicts(self, roots: Sequence[Fact]) -> bool:
        """Whether some of the user's own requirements, with all other facts, have no solution at all."""
        wanted = tuple(fact.root for fact in roots if fact.root is not None)
        while True:
            facts = [*roots, *(fact for fact in self._guards if fact.root is None)]
            assumptions = [self._guards[fact] for fact in facts]
            # A solution of what is known already is the quickest way to a yes.
            known = [negated(literal) for literal in self._encoding.unread()]
            answer = self._model.solve(self._effort, assumptions=[*assumptions, *known])
            if answer.values is None:
                answer = self._model.solve(self._effort, assumptions=assumptions)
            if answer.values is None:
                return answer.impossible
            # The relaxation has a solution: look whether it holds when everything that it chose is known.
            if self._search.learn(self._encoding.chosen(answer), roots=wanted) is not None:
                return False

    def _smallest(self, roots: Sequence[Fact]) -> list[Fact]:
        """Return the fewest of the user's own requirements that have no solution, given all other facts."""
        hitting = SolverModel()
        picks: dict[Fact, Literal] = {fact: hitting.boolean() for fact in roots}
        while True:
            answer = hitting.solve(self._effort, costs=dict.fromkeys(picks.values(), 1))
            chosen = [fact for fact in roots if answer.values is not None and answer.holds(picks[fact])]
            if self._conflicts(chosen):
                return chosen
            kept = list(chosen)
            for fact in roots:
                if fact not in chosen and not self._conflicts([*kept, fact]):
                    kept.append(fact)
            if len(kept) == len(roots):
                # All of them conflict, so a question was given up within the allowed work: the set is not reduced.
                return list(roots)
            hitting.require_any(picks[fact] for fact in roots if fact not in kept)

    def _needed(self, others: Sequence[Fact], roots: Sequence[Fact]) -> list[Fact]:
        """Return the other facts without the dispensable ones."""
        core = self._core([*others, *roots]) or set()
        needed = [fact for fact in others if fact in core]
        for fact in list(needed):
            if fact not in needed:
                continue
            smaller = self._core([*(f for f in needed if f is not fact), *roots])
            if smaller is not None:
                needed = [f for f in needed if f in smaller]
        return needed


def tell(conflict: Conflict, source: CandidateSource, reasons: Callable[[str], str]) -> tuple[str, ...]:
    """Return a conflict as lines to read: what the user requires, what that requires, and what is left.

    Args:
        conflict: The conflict.
        source: The candidates.
        reasons: Says of a package, in a few words, which of its versions could not be candidates; may be empty.
    """
    lines = []
    for root in conflict.roots:
        verb = "limit" if root.constraint else "require"
        lines.append(f"you {verb} `{root.requirement}` ({root.origin})")
    admitted = _Admitted(conflict, source)
    for parent, required in _from_the_roots(conflict):
        lines += [f"and {line}" for line in _relation(parent, required, admitted, source)]
    lines += [f"and {rule}" for rule in conflict.rules]
    parents = {parent for parent, _ in conflict.relations}
    named = {required for _, required in conflict.relations} | {root.name for root in conflict.roots}
    for name in sorted(named - parents):
        lines.append(f"so `{name}` has no version that fits all of this")
        if _is_hopeless(name, conflict, admitted, source):
            offered, why = source.candidates(name), reasons(name)
            lines[-1] += f"; its candidates are {_span(offered)}" if offered else "; it has no candidates"
            lines[-1] += f" (left out: {why})" if why else ""
    return tuple(lines)


def _is_hopeless(name: NormalizedName, conflict: Conflict, admitted: _Admitted, source: CandidateSource) -> bool:
    """Whether one of the conflicting requirements on a package admits none of its candidates by itself."""
    offered = [c for c in source.candidates(name) if not source.is_known(c) or source.dependencies(c) is not None]
    asked = [root.requirement for root in conflict.roots if root.name == name]
    for parent, required in conflict.relations:
        if required == name:
            known = [c for c in admitted.of(parent) if source.is_known(c)]
            asked += [d.requirement for c in known for d in source.dependencies(c) or () if d.name == name]
    return any(not any(admits(requirement, c.version) for c in offered) for requirement in asked)


class _Admitted:
    """What the conflicting requirements leave of a package: its candidates, and the extras that are asked of it."""

    def __init__(self, conflict: Conflict, source: CandidateSource) -> None:
        self._conflict = conflict
        self._source = source

    def of(self, name: NormalizedName) -> list[Candidate]:
        specifiers = [root.requirement for root in self._conflict.roots if root.name == name]
        return [c for c in self._source.candidates(name) if all(admits(s, c.version) for s in specifiers)]

    def extras_of(self, name: NormalizedName) -> list[NormalizedName]:
        asked = {
            canonicalize_name(e) for root in self._conflict.roots if root.name == name for e in root.requirement.extras
        }
        for parent, required in self._conflict.relations:
            if required == name and parent != name:
                known = (c for c in self.of(parent) if self._source.is_known(c))
                asked |= {
                    e for c in known for d in self._source.dependencies(c) or () if d.name == name for e in d.extras
                }
        return sorted(asked)


def _from_the_roots(conflict: Conflict) -> list[tuple[NormalizedName, NormalizedName]]:
    """Return the relations in the order in which they are reached from the user's own requirements."""
    ordered: list[tuple[NormalizedName, NormalizedName]] = []
    reached = {root.name for root in conflict.roots}
    waiting = list(conflict.relations)
    while waiting:
        fresh = [relation for relation in waiting if relation[0] in reached] or waiting
        ordered += fresh
        reached |= {required for _, required in fresh}
        waiting = [relation for relation in waiting if relation not in fresh]
    return ordered


def _relation(
    parent: NormalizedName, required: NormalizedName, admitted: _Admitted, source: CandidateSource
) -> list[str]:
    """Say what the versions of one package require of another, newest first; alike ones together."""
    texts: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in (c for c in admitted.of(parent) if source.is_known(c)):
        for extra in (None, *admitted.extras_of(parent)):
            found = [str(d.requirement) for d in source.dependencies(candidate, extra) or () if d.name == required]
            if found:
                text = " and ".join(f"`{requirement.split(';')[0].strip()}`" for requirement in found)
                named = f"{parent}[{extra}]" if extra else str(parent)
                texts.setdefault((named, text), []).append(candidate)
    lines = [f"`{named}` {_span(candidates)} requires {text}" for (named, text), candidates in texts.items()]
    if len(lines) > _FEW:
        lines = [*lines[:_FEW], f"`{parent}` in {sum(map(len, texts.values()))} versions in all requires `{required}`"]
    return lines or [f"`{parent}` requires `{required}`"]


def _span(candidates: Sequence[Candidate]) -> str:
    newest, oldest = candidates[0].version, candidates[-1].version
    if len(candidates) == 1:
        return str(newest)
    return f"{oldest} to {newest} ({len(candidates)} versions)"


def without(problem: ResolutionProblem, root: RootRequirement) -> ResolutionProblem | None:
    """Return a problem with one of the user's requirements relaxed: its versions free, or the constraint gone.

    None where there is nothing to relax.
    """
    from dataclasses import replace

    from packaging.specifiers import SpecifierSet

    if not root.requirement.specifier and not root.hashes:
        return None
    if root.constraint:
        return replace(problem, roots=tuple(r for r in problem.roots if r is not root))
    from packaging.requirements import Requirement

    free = Requirement(str(root.requirement))
    free.specifier = SpecifierSet()
    relaxed = replace(root, requirement=free, hashes=frozenset())
    return replace(problem, roots=tuple(relaxed if r is root else r for r in problem.roots))
