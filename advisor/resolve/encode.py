"""Turns what is known of packages into a growing model: a Boolean for each candidate that may be chosen.

A candidate requires, for each of its dependencies, one of the versions that the specifier admits; candidates that
require the same range share one constraint. Two things keep the model small, and both make it a relaxation of the
problem, which learning more only tightens. A candidate whose metadata was not read requires nothing yet. And only the
newest candidates of a package have Booleans of their own: one more stands for all older ones together, at the price of
the cheapest of them. Where a solution chooses that one, more candidates are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.problem import Candidate, CandidateSource, Dependency, ResolutionProblem, admits
from advisor.resolve.solver import Literal, SolverModel, SolverResult, negated

Choice = tuple[NormalizedName, Version]
PairedChoice = tuple[NormalizedName, Version | None]
"""A version of a package, or none: the package is absent."""
Candidates = Mapping[NormalizedName, Sequence[Candidate]]
Node = tuple[NormalizedName, NormalizedName | None]
"""A package, or one extra of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the rules exclude.

    Attributes:
        forbidden: Choices that must not be made, each with the reason.
        exclusive: Groups of sets of choices, not one of each set, with the reason.
    """

    forbidden: Mapping[Choice, str]
    exclusive: tuple[tuple[tuple[frozenset[Choice], ...], str], ...] = ()


NO_LIMITS = Limits(forbidden={})

SHOWN = 8
"""So many candidates of a package are shown at first."""

Need = tuple[Literal, NormalizedName, NormalizedName | None, Dependency]
"""A choice, its package, the extra it is asked with, and what it requires."""


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
        problem: ResolutionProblem,
        source: CandidateSource,
        limits: Callable[[Candidates], Limits],
        *,
        guarded: bool = False,
        shown: int = SHOWN,
    ) -> None:
        self.model = SolverModel()
        self.reached: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self.required: set[NormalizedName] = set()
        self.guards: dict[Fact, Literal] = {}
        self._problem = problem
        self._source = source
        self._limits = limits
        self._guarded = guarded
        self._least = shown
        self._present: dict[NormalizedName, Literal] = {}
        self._allowed: dict[NormalizedName, list[Candidate]] = {}
        self._open: set[NormalizedName] = set()
        self._literals: dict[NormalizedName, dict[Version, Literal]] = {}
        self._older: dict[NormalizedName, Literal] = {}
        self._asked: dict[NormalizedName, dict[NormalizedName, Literal]] = {}
        self._learnt: set[tuple[str, NormalizedName | None]] = set()
        self._needs: dict[NormalizedName, list[Need]] = {}
        self._admitted: dict[tuple[NormalizedName, str], tuple[Version, ...]] = {}
        self._exclusive: dict[Choice, list[Literal]] = {}
        self._seen_exclusive: set[tuple[tuple[frozenset[Choice], ...], str]] = set()
        self._both: dict[tuple[Literal, Literal], Literal] = {}

    def literal(self, choice: PairedChoice) -> Literal | None:
        """Return the Boolean of a choice, or none where it has none."""
        name, version = choice
        if version is None:
            return negated(self._present[name]) if name in self._present else None
        return self._literals.get(name, {}).get(version)

    def choices(self, name: NormalizedName) -> Mapping[Version, Literal]:
        """Return the choices of a package that are shown, newest first."""
        return self._literals[name]

    def allowed(self, name: NormalizedName) -> Sequence[Candidate]:
        """Return the candidates that the user's own requirements and the rules admit, newest first."""
        return self._allowed[name]

    def present(self, name: NormalizedName) -> Literal:
        """Return the Boolean that a package is in the stack."""
        return self._present[name]

    def older(self, name: NormalizedName) -> Literal:
        """Return the Boolean that stands for all candidates of a package that are not shown."""
        return self._older[name]

    def chosen(self, answer: SolverResult) -> dict[NormalizedName, Candidate]:
        """Return what a solution chooses; nothing for a package of which it chooses an older candidate unshown."""
        return {
            name: candidate
            for name, literals in sorted(self._literals.items())
            for candidate, literal in zip(self._allowed[name], literals.values(), strict=False)
            if answer.holds(literal)
        }

    def vague(self, answer: SolverResult) -> list[NormalizedName]:
        """Return the packages of which a solution chooses a candidate that is not shown."""
        return sorted(name for name, literal in self._older.items() if answer.holds(literal))

    def reach(self, names: Iterable[NormalizedName]) -> None:
        """Add packages."""
        fresh = sorted(set(names) - set(self.reached))
        self.reached.update((name, self._source.candidates(name)) for name in fresh)
        limits = self._limits(self.reached)
        for name in fresh:
            self._add(name, limits)
        for sides, reason in limits.exclusive:
            if (sides, reason) not in self._seen_exclusive:
                self._seen_exclusive.add((sides, reason))
                self._exclude(sides, self._guard(Fact(rule=reason)))
        for name in fresh:
            self.show(name, self._least)
            for root in self._problem.roots_of(name):
                if not root.constraint:
                    self._require_root(name, root)

    def show(self, name: NormalizedName, count: int) -> None:
        """Give at least so many candidates of a package Booleans of their own, the newest first."""
        literals, allowed = self._literals[name], self._allowed[name]
        fresh = allowed[len(literals) : count]
        if not fresh and name in self._open:
            return
        self._open.add(name)
        for candidate in fresh:
            literals[candidate.version] = self.model.boolean()
            for any_of in self._exclusive.get((name, candidate.version), ()):
                self.model.require(any_of, given=literals[candidate.version])
        parts = [literals[c.version] for c in fresh]
        whole = self._older.pop(name, self._present[name])
        if len(literals) < len(allowed):
            self._older[name] = self.model.boolean()
            parts.append(self._older[name])
        self.model.exactly_one((negated(whole), *parts))
        for key in [key for key in self._admitted if key[0] == name]:
            del self._admitted[key]
        self._require(name, self._needs.get(name, ()))
        self.learn(fresh)

    def learn(self, candidates: Iterable[Candidate]) -> None:
        """Add what candidates require, where they are shown and their metadata is known."""
        found: dict[NormalizedName, list[Need]] = {}
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
                found.setdefault(dependency.name, []).append((literal, candidate.name, extra, dependency))
                queue += self._ask(dependency)
        for name, needs in sorted(found.items()):
            self._needs.setdefault(name, []).extend(needs)
            for literal, parent, extra, dependency in needs:
                for asked in dependency.extras:
                    self.model.require_any([negated(literal), *self._unless(parent, extra), self._asked[name][asked]])
            if name in self._open:
                self._require(name, needs)

    def _ask(self, dependency: Dependency) -> Iterator[tuple[Candidate, NormalizedName | None]]:
        """Add the extras that a dependency asks for; yield the candidates to be learnt again with them."""
        asked = self._asked.setdefault(dependency.name, {})
        for extra in dependency.extras:
            if extra not in asked:
                asked[extra] = self.model.boolean()
                yield from ((candidate, extra) for candidate in self.reached.get(dependency.name, ()))

    def _add(self, name: NormalizedName, limits: Limits) -> None:
        """Add a package without any candidate shown."""
        roots = self._problem.roots_of(name)
        self._present[name] = self.model.boolean()
        self._literals[name] = {}
        self._allowed[name] = []
        for candidate in self.reached[name]:
            choice = (name, candidate.version)
            refused = [root for root in roots if not admits(root.requirement, candidate.version)]
            if self._guarded or not (refused or choice in limits.forbidden):
                self._allowed[name].append(candidate)
        if self._guarded:
            self.show(name, len(self._allowed[name]))
            for version, literal in self._literals[name].items():
                for root in roots:
                    if not admits(root.requirement, version):
                        self.model.require(negated(literal), given=self._guard(Fact(root=root)))
                if (name, version) in limits.forbidden:
                    reason = limits.forbidden[name, version]
                    self.model.require(negated(literal), given=self._guard(Fact(rule=reason)))

    def _exclude(self, sides: Sequence[frozenset[Choice]], guard: Literal | None) -> None:
        """Forbid one of each of several sets of choices."""
        taken = []
        for choices in sides:
            any_of = self.model.boolean()
            taken.append(any_of)
            for choice in sorted(choices):
                self._exclusive.setdefault(choice, []).append(any_of)
                literal = self.literal(choice)
                if literal is not None:
                    self.model.require(any_of, given=literal)
        self.model.require_any([negated(any_of) for any_of in taken], given=guard)

    def _require_root(self, name: NormalizedName, root: RootRequirement) -> None:
        self.required.add(name)
        guard = self._guard(Fact(root=root))
        self.model.require(self._present[name], given=guard)
        dependency = Dependency(name=name, requirement=root.requirement)
        again = list(self._ask(dependency))
        for extra in dependency.extras:
            self.model.require(self._asked[name][extra], given=guard)
        self.learn(candidate for candidate, _ in again)

    def _require(self, name: NormalizedName, needs: Sequence[Need]) -> None:
        """Add what is required of one package; candidates of one package that require the same range share a row."""
        alike: dict[tuple[Node, tuple[Version, ...], bool], dict[Literal, None]] = {}
        for literal, parent, extra, dependency in needs:
            admitted = self._admitted_by(dependency)
            older = name in self._older and self._admits_older(dependency)
            alike.setdefault(((parent, extra), admitted, older), {})[literal] = None
        for ((parent, extra), admitted, older), literals in alike.items():
            guard = self._guard(Fact(parent=parent, required=name))
            given = [self._asked[parent][extra]] if extra is not None else []
            right = [self._literals[name][version] for version in admitted]
            # At most one parent and at most one admitted version hold, so the counts are Booleans.
            self.model.at_most_as_many(
                literals,
                [*right, self._older[name]] if older else right,
                given=given if guard is None else [*given, guard],
            )

    def _unless(self, name: NormalizedName, extra: NormalizedName | None) -> list[Literal]:
        return [] if extra is None else [negated(self._asked[name][extra])]

    def _admitted_by(self, dependency: Dependency) -> tuple[Version, ...]:
        key = (dependency.name, str(dependency.requirement.specifier))
        if key not in self._admitted:
            self._admitted[key] = tuple(v for v in self._literals[dependency.name] if admits(dependency.requirement, v))
        return self._admitted[key]

    def _admits_older(self, dependency: Dependency) -> bool:
        name = dependency.name
        return any(admits(dependency.requirement, c.version) for c in self._allowed[name][len(self._literals[name]) :])

    def _guard(self, fact: Fact) -> Literal | None:
        if not self._guarded:
            return None
        if fact not in self.guards:
            self.guards[fact] = self.model.boolean()
        return self.guards[fact]

    def costs(
        self, choices: Mapping[Choice, int], pairs: Mapping[tuple[Choice, PairedChoice], int]
    ) -> dict[Literal, int]:
        """Return costs by literal; a pair of choices gets a Boolean of its own, so its packages are shown in full."""
        for name in sorted({choice[0] for pair in pairs for choice in pair}):
            if name in self.reached:
                self.show(name, len(self._allowed[name]))
        found: dict[Literal, int] = {}
        for name, allowed in self._allowed.items():
            prices = [choices.get((name, candidate.version), 0) for candidate in allowed]
            self._show_cheaper(name, prices)
            found.update(zip(self._literals[name].values(), prices, strict=False))
            if name in self._older:
                found[self._older[name]] = min(prices[len(self._literals[name]) :])
        for (left, right), cost in pairs.items():
            one, other = self.literal(left), self.literal(right)
            if cost and one is not None and other is not None:
                both = self._product(one, other)
                found[both] = found.get(both, 0) + cost
        return {literal: cost for literal, cost in sorted(found.items()) if cost}

    def _show_cheaper(self, name: NormalizedName, prices: Sequence[int]) -> None:
        """Show candidates until the older ones are no cheaper than any that is shown: else one is likely chosen."""
        shown = len(self._literals[name])
        dearest = max(prices[:shown], default=0)
        cheaper = [place for place in range(shown, len(prices)) if prices[place] < dearest]
        if cheaper:
            self.show(name, cheaper[-1] + 1)

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

    def unread(self) -> list[Literal]:
        """Return the choices that are shown and whose metadata was not read."""
        return [
            literal
            for name, literals in self._literals.items()
            for candidate, literal in zip(self._allowed[name], literals.values(), strict=False)
            if not self._source.is_known(candidate)
        ]

    def supports(self, name: NormalizedName) -> list[Literal]:
        """Return the choices that require a package, or that may, since their metadata was not read."""
        found = {literal for literal, parent, _, _ in self._needs.get(name, ()) if parent != name}
        found.update(literal for other, literal in self._older.items() if other != name)
        return sorted(found.union(self.unread()).difference(self._literals[name].values()))
