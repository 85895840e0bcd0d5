"""Turns what is known of packages into a growing model: one Boolean for each candidate that may be chosen.

A candidate requires, for each of its dependencies, one of the versions that the specifier admits; candidates that
require the same range share one constraint. A candidate whose metadata was not read requires nothing yet, so the model
is a relaxation of the problem, and learning more only tightens it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.resolve.problem import Candidate, CandidateSource, Dependency, Problem, RootRequirement, admits
from advisor.resolve.solver import Answer, Literal, Model, negated

Choice = tuple[NormalizedName, Version]
Candidates = Mapping[NormalizedName, Sequence[Candidate]]
Node = tuple[NormalizedName, NormalizedName | None]
"""A package, or one extra of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the rules exclude.

    Attributes:
        forbidden: Choices that must not be made, each with the reason.
        exclusive: Pairs of sets of choices, not one of each, with the reason.
    """

    forbidden: Mapping[Choice, str]
    exclusive: tuple[tuple[frozenset[Choice], frozenset[Choice], str], ...] = ()


NO_LIMITS = Limits(forbidden={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that the model holds for true, and that a conflict may be made of.

    Attributes:
        root: The user's own requirement, for a fact of that kind.
        parent: The package that requires another.
        required: The package that is required.
        rule: The reason of a rule.
    """

    root: RootRequirement | None = None
    parent: NormalizedName | None = None
    required: NormalizedName | None = None
    rule: str = ""


class Encoding:
    """The model of what was learnt so far.

    Attributes:
        model: The model; copy it to add what holds for one question only.
        reached: Candidates of each package that was reached, newest first.
        required: Packages that the user's own requirements name.
        guards: Literal that switches each fact on; empty unless facts are guarded.
    """

    def __init__(
        self,
        problem: Problem,
        source: CandidateSource,
        limits: Callable[[Candidates], Limits],
        *,
        guarded: bool = False,
    ) -> None:
        self.model = Model()
        self.reached: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self.required: set[NormalizedName] = set()
        self.guards: dict[Fact, Literal] = {}
        self._problem = problem
        self._source = source
        self._limits = limits
        self._guarded = guarded
        self._present: dict[NormalizedName, Literal] = {}
        self._literals: dict[NormalizedName, dict[Version, Literal]] = {}
        self._asked: dict[NormalizedName, dict[NormalizedName, Literal]] = {}
        self._learnt: set[tuple[str, NormalizedName | None]] = set()
        self._waiting: dict[NormalizedName, list[tuple[Literal, Candidate, NormalizedName | None, Dependency]]] = {}
        self._admitted: dict[tuple[NormalizedName, str], tuple[Version, ...]] = {}
        self._exclusive: set[tuple[frozenset[Choice], frozenset[Choice], str]] = set()
        self._parents: dict[NormalizedName, list[tuple[NormalizedName, Literal]]] = {}
        self._both: dict[tuple[Literal, Literal], Literal] = {}

    def literal(self, choice: Choice) -> Literal | None:
        """Return the Boolean of a choice, or none where it cannot be made."""
        return self._literals.get(choice[0], {}).get(choice[1])

    def choices(self, name: NormalizedName) -> Mapping[Version, Literal]:
        """Return the choices of a package that can be made, newest first."""
        return self._literals[name]

    def chosen(self, answer: Answer) -> dict[NormalizedName, Candidate]:
        """Return what a solution chooses."""
        return {
            name: candidate
            for name, candidates in sorted(self.reached.items())
            for candidate in candidates
            if (literal := self.literal((name, candidate.version))) is not None and answer.holds(literal)
        }

    def reach(self, names: Iterable[NormalizedName]) -> None:
        """Add packages with all their candidates."""
        fresh = {name: self._source.candidates(name) for name in sorted(set(names) - set(self.reached))}
        self.reached.update(fresh)
        limits = self._limits(self.reached)
        for name, candidates in fresh.items():
            self._add(name, candidates, limits)
        for left, right, reason in limits.exclusive:
            if (left, right, reason) not in self._exclusive:
                self._exclusive.add((left, right, reason))
                guard = self._guard(Fact(rule=reason))
                lefts, rights = self._known(left), self._known(right)
                one, other = self.model.boolean(), self.model.boolean()
                for literals, any_of in ((lefts, one), (rights, other)):
                    for literal in literals:
                        self.model.require(any_of, given=literal)
                self.model.require_any((negated(one), negated(other)), given=guard)
        for name in fresh:
            for root in self._problem.roots_of(name):
                self._require_root(name, root)
            self._require(name, self._waiting.pop(name, []))

    def learn(self, candidates: Iterable[Candidate]) -> None:
        """Add what candidates require, now that their metadata is known."""
        found: dict[NormalizedName, list[tuple[Literal, Candidate, NormalizedName | None, Dependency]]] = {}
        queue = [(c, extra) for c in candidates for extra in (None, *self._asked.get(c.name, ()))]
        while queue:
            candidate, extra = queue.pop()
            literal = self.literal((candidate.name, candidate.version))
            key = (candidate.file.url, extra)
            if literal is None or key in self._learnt or not self._source.is_known(candidate):
                continue
            self._learnt.add(key)
            dependencies = self._source.dependencies(candidate, extra)
            if dependencies is None:
                self.model.require(negated(literal))
                continue
            for dependency in dependencies:
                found.setdefault(dependency.name, []).append((literal, candidate, extra, dependency))
                queue += self._ask(dependency)
        for name, needs in sorted(found.items()):
            if name in self.reached:
                self._require(name, needs)
            else:
                self._waiting.setdefault(name, []).extend(needs)

    def _ask(self, dependency: Dependency) -> Iterator[tuple[Candidate, NormalizedName | None]]:
        """Add the extras that a dependency asks for; yield the candidates to be learnt again with them."""
        asked = self._asked.setdefault(dependency.name, {})
        for extra in dependency.extras:
            if extra not in asked:
                asked[extra] = self.model.boolean()
                yield from ((candidate, extra) for candidate in self.reached.get(dependency.name, ()))

    def _add(self, name: NormalizedName, candidates: Sequence[Candidate], limits: Limits) -> None:
        roots = self._problem.roots_of(name)
        literals = self._literals[name] = {}
        for candidate in candidates:
            choice = (name, candidate.version)
            refused = [root for root in roots if not admits(root.requirement, candidate.version)]
            if not self._guarded and (refused or choice in limits.forbidden):
                continue
            literals[candidate.version] = literal = self.model.boolean()
            for root in refused:
                self.model.require(negated(literal), given=self._guard(Fact(root=root)))
            if choice in limits.forbidden:
                self.model.require(negated(literal), given=self._guard(Fact(rule=limits.forbidden[choice])))
        self._present[name] = present = self.model.boolean()
        self.model.at_most_one(literals.values())
        for literal in literals.values():
            self.model.require(present, given=literal)
        self.model.require_any((negated(present), *literals.values()))

    def _require_root(self, name: NormalizedName, root: RootRequirement) -> None:
        if root.constraint:
            return
        self.required.add(name)
        guard = self._guard(Fact(root=root))
        self.model.require(self._present[name], given=guard)
        dependency = Dependency(name=name, requirement=root.requirement)
        again = list(self._ask(dependency))
        for extra in dependency.extras:
            self.model.require(self._asked[name][extra], given=guard)
        self.learn(candidate for candidate, _ in again)

    def _require(
        self, name: NormalizedName, needs: Sequence[tuple[Literal, Candidate, NormalizedName | None, Dependency]]
    ) -> None:
        """Add requirements on one package; candidates of one package that require the same range share a row."""
        alike: dict[tuple[Node, tuple[Version, ...]], dict[Literal, None]] = {}
        for literal, candidate, extra, dependency in needs:
            admitted = self._admitted_by(dependency)
            alike.setdefault(((candidate.name, extra), admitted), {})[literal] = None
            self._parents.setdefault(name, []).append((candidate.name, literal))
            for asked in dependency.extras:
                condition = [negated(literal), *self._unless(candidate.name, extra)]
                self.model.require_any([*condition, self._asked[name][asked]])
        for ((parent, extra), admitted), literals in alike.items():
            given = [] if extra is None else [self._asked[parent][extra]]
            guard = self._guard(Fact(parent=parent, required=name))
            # At most one parent and at most one admitted version hold, so the counts are Booleans.
            self.model.at_most_as_many(
                literals,
                self._known((name, version) for version in admitted),
                given=given if guard is None else [*given, guard],
            )

    def _unless(self, name: NormalizedName, extra: NormalizedName | None) -> list[Literal]:
        return [] if extra is None else [negated(self._asked[name][extra])]

    def _admitted_by(self, dependency: Dependency) -> tuple[Version, ...]:
        key = (dependency.name, str(dependency.requirement.specifier))
        if key not in self._admitted:
            self._admitted[key] = tuple(
                v for v in self._literals[dependency.name] if admits(dependency.requirement, v)
            )
        return self._admitted[key]

    def _known(self, choices: Iterable[Choice]) -> list[Literal]:
        return sorted(literal for choice in choices if (literal := self.literal(choice)) is not None)

    def _guard(self, fact: Fact) -> Literal | None:
        if not self._guarded:
            return None
        if fact not in self.guards:
            self.guards[fact] = self.model.boolean()
        return self.guards[fact]

    def costs(self, choices: Mapping[Choice, int], pairs: Mapping[tuple[Choice, Choice], int]) -> dict[Literal, int]:
        """Return costs by literal; each pair of choices gets a Boolean of its own."""
        found = {
            literal: cost
            for choice, cost in choices.items()
            if cost and (literal := self.literal(choice)) is not None
        }
        for (left, right), cost in pairs.items():
            one, other = self.literal(left), self.literal(right)
            if cost and one is not None and other is not None:
                both = self._product(one, other)
                found[both] = found.get(both, 0) + cost
        return dict(sorted(found.items()))

    def _product(self, left: Literal, right: Literal) -> Literal:
        """Return a Boolean that holds when both others do, and only then."""
        key = (min(left, right), max(left, right))
        if key not in self._both:
            both = self.model.boolean()
            self.model.require_any((negated(left), negated(right), both))
            self.model.require(left, given=both)
            self.model.require(right, given=both)
            self._both[key] = both
        return self._both[key]

    def present(self, name: NormalizedName) -> Literal:
        """Return the Boolean that a package is in the stack."""
        return self._present[name]

    def supports(self, name: NormalizedName) -> list[Literal]:
        """Return the choices that require a package, or that may: those whose metadata was not read."""
        found = {literal for parent, literal in self._parents.get(name, ()) if parent != name}
        for other, candidates in self.reached.items():
            for candidate in candidates if other != name else ():
                literal = self.literal((other, candidate.version))
                if literal is not None and not self._source.is_known(candidate):
                    found.add(literal)
        return sorted(found)
