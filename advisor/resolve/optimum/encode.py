"""Encoding of the problem as a growing model: a Boolean for each candidate that may be chosen.

A candidate requires, for each of its dependencies, one of the versions that the specifier admits; candidates that
require the same range share one constraint. Two simplifications keep the model small. Both make it a relaxation of the
problem, which every refinement tightens:

- A candidate whose metadata has not been read has no dependencies yet.
- Only the newest candidates of a package are explicit, that is, have a Boolean each. One more Boolean stands for all
  older ones together, at the cost of the cheapest of them. If a solution chooses it, the package is expanded: more of
  its candidates become explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.candidates.problem import Candidate, CandidateSource, Dependency, Node, ResolutionProblem, admits
from advisor.resolve.optimum.solver import Literal, SolverModel, SolverResult, negated
from advisor.resolve.score.costs import Candidates, Choice, Limits, PairedChoice

INITIAL_EXPLICIT = 8
"""Number of candidates of a package that are explicit at first."""

Need = tuple[Literal, NormalizedName, NormalizedName | None, Dependency]
"""The literal of a choice, its package, its extra, and what it requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A part of a conflict: a requirement of the project, a package that requires another, or the reason of a rule."""

    root: RootRequirement | None = None
    parent: NormalizedName | None = None
    required: NormalizedName | None = None
    rule: str = ""


class Encoding:
    """The model of the packages and dependencies that are known so far.

    Attributes:
        problem: The problem.
        source: The candidates.
        model: The model; copy it to add constraints for one call of the solver.
        candidates: Candidates of each package in the model, newest first.
        required: Packages that the project's own requirements name.
        guards: Literal that enables each fact; empty unless facts are guarded.
        present: Literal that is true if a package is in the stack.
        allowed: Candidates that the project's own requirements and the rules admit, newest first.
        choices: Literals of the explicit ones among them, by version.
        older: Literal for all others, if there are any.
        options: Literals for the extras that may be required of a package in addition, and at last one for none of
            them, if there are such extras.
    """

    def __init__(
        self,
        problem: ResolutionProblem,
        source: CandidateSource,
        limits: Callable[[Candidates], Limits],
        *,
        guarded: bool = False,
        explicit: int = INITIAL_EXPLICIT,
    ) -> None:
        self.model = SolverModel()
        self.candidates: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self.required: set[NormalizedName] = set()
        self.guards: dict[Fact, Literal] = {}
        self.problem = problem
        self.source = source
        self._limits = limits
        self._guarded = guarded
        self._initial_explicit = explicit
        self.options: dict[NormalizedName, list[Literal]] = {}
        self._options_with: dict[tuple[NormalizedName, NormalizedName], list[Literal]] = {}
        self.present: dict[NormalizedName, Literal] = {}
        self.allowed: dict[NormalizedName, list[Candidate]] = {}
        self._expanded: set[NormalizedName] = set()
        self.choices: dict[NormalizedName, dict[Version, Literal]] = {}
        self.older: dict[NormalizedName, Literal] = {}
        self._extra_literals: dict[NormalizedName, dict[NormalizedName, Literal]] = {}
        self._encoded: set[tuple[str, NormalizedName | None]] = set()
        self._needs: dict[NormalizedName, list[Need]] = {}
        self._admitted: dict[tuple[NormalizedName, str], tuple[Version, ...]] = {}
        self._exclusive: dict[Choice, list[Literal]] = {}
        self._excluded_groups: set[tuple[tuple[frozenset[Choice], ...], str]] = set()

    def literal(self, choice: PairedChoice) -> Literal | None:
        """Return the literal of a choice, or `None` if it has none."""
        name, version = choice
        if version is None:
            return negated(self.present[name]) if name in self.present else None
        return self.choices.get(name, {}).get(version)

    def older_candidates(self, name: NormalizedName) -> Sequence[Candidate]:
        """Return the allowed candidates of a package that are not explicit, newest first."""
        return self.allowed[name][len(self.choices[name]) :]

    def selected_candidates(self, answer: SolverResult) -> dict[NormalizedName, Candidate]:
        """Return the explicit candidates that a solution chooses, by package."""
        return {c.name: c for c in sorted(c for literal, c in self._explicit() if answer.is_true(literal))}

    def _explicit(self) -> Iterator[tuple[Literal, Candidate]]:
        for name, literals in self.choices.items():
            yield from zip(literals.values(), self.allowed[name], strict=False)

    def add_packages(self, names: Iterable[NormalizedName]) -> None:
        """Add packages to the model."""
        fresh = sorted(set(names) - set(self.candidates))
        self.candidates.update((name, self.source.candidates(name)) for name in fresh)
        limits = self._limits(self.candidates)
        for name in fresh:
            self._add(name, limits)
        for sides, reason in limits.exclusive:
            if (sides, reason) not in self._excluded_groups:
                self._excluded_groups.add((sides, reason))
                self._exclude(sides, self._guard(Fact(rule=reason)))
        for name in fresh:
            self.expand(name, self._initial_explicit)
            self._add_options(name)
            for root in self.problem.roots_of(name):
                if not root.constraint:
                    self._require_root(name, root)

    def _add_options(self, name: NormalizedName) -> None:
        """Add the extras that may be required of a package in addition: exactly one of them, or none."""
        options = self.problem.extra_options.get(name)
        if not options:
            return
        literals = [self.model.boolean() for _ in range(len(options) + 1)]
        self.model.exactly_one(literals)
        self.options[name] = literals
        pending: list[tuple[Candidate, NormalizedName | None]] = []
        for literal, option in zip(literals, options, strict=False):
            requirement = Requirement(f"{name}[{','.join(sorted(option.extras))}]{option.versions}")
            dependency = Dependency(name=name, requirement=requirement)
            pending += self._add_extras(dependency)
            for extra in dependency.extras:
                self.model.require(self._extra_literals[name][extra], when=literal)
                self._options_with.setdefault((name, extra), []).append(literal)
            need: Need = (literal, name, None, dependency)
            self._needs.setdefault(name, []).append(need)
            self._require(name, [need])
        self.add_dependencies(candidate for candidate, _ in pending)

    def expand(self, name: NormalizedName, count: int) -> None:
        """Make at least ``count`` candidates of a package explicit, the newest first."""
        literals, allowed = self.choices[name], self.allowed[name]
        fresh = allowed[len(literals) : count]
        if not fresh and name in self._expanded:
            return
        self._expanded.add(name)
        for candidate in fresh:
            literals[candidate.version] = self.model.boolean()
            for any_of in self._exclusive.get((name, candidate.version), ()):
                self.model.require(any_of, when=literals[candidate.version])
        parts = [literals[c.version] for c in fresh]
        whole = self.older.pop(name, self.present[name])
        if len(literals) < len(allowed):
            self.older[name] = self.model.boolean()
            parts.append(self.older[name])
        self.model.exactly_one((negated(whole), *parts))
        for key in [key for key in self._admitted if key[0] == name]:
            del self._admitted[key]
        self._require(name, self._needs.get(name, ()))
        self.add_dependencies(fresh)

    def add_dependencies(self, candidates: Iterable[Candidate]) -> None:
        """Add the dependencies of explicit candidates whose metadata is known."""
        collected: dict[NormalizedName, list[Need]] = {}
        queue = [(c, extra) for c in candidates for extra in (None, *self._extra_literals.get(c.name, ()))]
        while queue:
            candidate, extra = queue.pop()
            literal = self.literal((candidate.name, candidate.version))
            key = (candidate.file.url, extra)
            if literal is None or key in self._encoded or not self.source.is_known(candidate):
                continue
            self._encoded.add(key)
            dependencies = self.source.dependencies(candidate, extra)
            if extra is not None and self.source.lacks_extra(candidate, extra):
                # An option needs a version that provides its extras; other requirements on them are only reported.
                for option in self._options_with.get((candidate.name, extra), ()):
                    self.model.require_any([negated(literal), negated(option)])
            if dependencies is None:
                self.model.require(negated(literal))
                continue
            for dependency in dependencies:
                collected.setdefault(dependency.name, []).append((literal, candidate.name, extra, dependency))
                queue += self._add_extras(dependency)
        for name, needs in sorted(collected.items()):
            self._needs.setdefault(name, []).extend(needs)
            for literal, parent, extra, dependency in needs:
                for required_extra in dependency.extras:
                    condition = [negated(literal), *self._unless(parent, extra)]
                    self.model.require_any([*condition, self._extra_literals[name][required_extra]])
            if name in self._expanded:
                self._require(name, needs)

    def _add_extras(self, dependency: Dependency) -> Iterator[tuple[Candidate, NormalizedName | None]]:
        """Add the extras of a dependency; yield the candidates whose dependencies with these extras are to be added."""
        extra_literals = self._extra_literals.setdefault(dependency.name, {})
        for extra in dependency.extras:
            if extra not in extra_literals:
                extra_literals[extra] = self.model.boolean()
                yield from ((candidate, extra) for candidate in self.candidates.get(dependency.name, ()))

    def _add(self, name: NormalizedName, limits: Limits) -> None:
        """Add a package without explicit candidates."""
        roots = self.problem.roots_of(name)
        self.present[name] = self.model.boolean()
        self.choices[name] = {}
        self.allowed[name] = []
        for candidate in self.candidates[name]:
            choice = (name, candidate.version)
            refused = [root for root in roots if not admits(root.requirement, candidate.version)]
            if self._guarded or not (refused or choice in limits.forbidden):
                self.allowed[name].append(candidate)
        if self._guarded:
            self.expand(name, len(self.allowed[name]))
            for version, literal in self.choices[name].items():
                for root in roots:
                    if not admits(root.requirement, version):
                        self.model.require(negated(literal), when=self._guard(Fact(root=root)))
                if (name, version) in limits.forbidden:
                    reason = limits.forbidden[name, version]
                    self.model.require(negated(literal), when=self._guard(Fact(rule=reason)))

    def _exclude(self, sides: Sequence[frozenset[Choice]], guard: Literal | None) -> None:
        """Forbid stacks that have one choice of each of several sets."""
        side_literals = []
        for choices in sides:
            any_of = self.model.boolean()
            side_literals.append(any_of)
            for choice in sorted(choices):
                self._exclusive.setdefault(choice, []).append(any_of)
                literal = self.literal(choice)
                if literal is not None:
                    self.model.require(any_of, when=literal)
        self.model.require_any([negated(any_of) for any_of in side_literals], when=guard)

    def _require_root(self, name: NormalizedName, root: RootRequirement) -> None:
        self.required.add(name)
        guard = self._guard(Fact(root=root))
        self.model.require(self.present[name], when=guard)
        dependency = Dependency(name=name, requirement=root.requirement)
        pending = list(self._add_extras(dependency))
        for extra in dependency.extras:
            self.model.require(self._extra_literals[name][extra], when=guard)
        self.add_dependencies(candidate for candidate, _ in pending)

    def _require(self, name: NormalizedName, needs: Sequence[Need]) -> None:
        """Add requirements on one package; candidates of one package that require the same range share a constraint."""
        alike: dict[tuple[Node, tuple[Version, ...], bool], dict[Literal, None]] = {}
        for literal, parent, extra, dependency in needs:
            admitted = self._admitted_by(dependency)
            older = any(admits(dependency.requirement, c.version) for c in self.older_candidates(name))
            alike.setdefault(((parent, extra), admitted, older), {})[literal] = None
        for ((parent, extra), admitted, older), literals in alike.items():
            guard = self._guard(Fact(parent=parent, required=name))
            conditions = [self._extra_literals[parent][extra]] if extra is not None else []
            right = [self.choices[name][version] for version in admitted]
            # At most one parent and at most one admitted version are true, so each count is 0 or 1.
            self.model.at_most_as_many(
                literals,
                [*right, self.older[name]] if older else right,
                when=conditions if guard is None else [*conditions, guard],
            )

    def _unless(self, name: NormalizedName, extra: NormalizedName | None) -> list[Literal]:
        return [] if extra is None else [negated(self._extra_literals[name][extra])]

    def _admitted_by(self, dependency: Dependency) -> tuple[Version, ...]:
        key = (dependency.name, str(dependency.requirement.specifier))
        if key not in self._admitted:
            self._admitted[key] = tuple(v for v in self.choices[dependency.name] if admits(dependency.requirement, v))
        return self._admitted[key]

    def _guard(self, fact: Fact) -> Literal | None:
        if not self._guarded:
            return None
        if fact not in self.guards:
            self.guards[fact] = self.model.boolean()
        return self.guards[fact]

    def solvable_model(self) -> SolverModel:
        """Return the model, with older versions of failed builds only where known requirements exclude the newer ones.

        To look for one among unread versions of other packages would take a build of each older version. Packages that
        exclude a version here need not be in the stack, and may only require each other in a circle: a stack that this
        allows wrongly is to be forbidden.
        """
        failed = self._failed_builds()
        if not failed:
            return self.model
        model = self.model.copy()
        for literal, name, version in failed:
            excluding: list[Literal] = []
            for parent, parent_name, extra, dependency in self._needs.get(name, ()):
                if parent_name != name and not admits(dependency.requirement, version):
                    excludes = model.boolean()
                    excluding.append(excludes)
                    for needed in (parent, *map(negated, self._unless(parent_name, extra))):
                        model.require(needed, when=excludes)
            model.require_any(excluding, when=literal)
        for name in sorted(self.candidates.keys() - self.required):
            model.require_any(self.supports(name), when=self.present[name])
        return model

    def _failed_builds(self) -> list[tuple[Literal, NormalizedName, Version]]:
        """Return each explicit choice with its package and each newer version whose build failed."""
        return [
            (literal, candidate.name, version)
            for literal, candidate in self._explicit()
            for version in self.source.failed_newer(candidate)
        ]

    @property
    def failed_builds(self) -> tuple[str, ...]:
        """Packages whose older versions count only where a known requirement excludes a failed build, sorted."""
        return tuple(sorted({str(name) for _, name, _ in self._failed_builds()}))

    def forbid(self, stack: Iterable[Candidate]) -> None:
        """Forbid stacks that contain all explicit choices of a stack."""
        self.model.require_any([negated(self.choices[c.name][c.version]) for c in stack])

    def unread(self, *, only_sdists: bool = False) -> list[Literal]:
        """Return the explicit choices whose metadata has not been read."""
        return [
            literal
            for literal, candidate in self._explicit()
            if not self.source.is_known(candidate) and (candidate.is_sdist or not only_sdists)
        ]

    def supports(self, name: NormalizedName) -> list[Literal]:
        """Return the choices that require a package, or that may require it, since their metadata has not been read."""
        requiring = {literal for literal, parent, _, _ in self._needs.get(name, ()) if parent != name}
        requiring.update(literal for other, literal in self.older.items() if other != name)
        # Of packages that are not loaded, only who requires them is known.
        requiring.update(n[0] for other, needs in self._needs.items() if other not in self._expanded for n in needs)
        return sorted(requiring.union(self.unread()).difference(self.choices[name].values()))
