"""Refinement of the model: fetches the metadata of what a solution chose, and adds it to the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.resolve.candidates.problem import Candidate, CandidateSource, Dependency, ResolutionProblem, admits
from advisor.resolve.optimum.encode import Encoding, Node

_GROWTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What the requirements of a choice lead to, starting at the project.

    Attributes:
        nodes: The packages that are needed, without an extra and with each required extra.
        unknown: The chosen candidates among them whose metadata is not known, sorted.
        absent: The needed packages without a chosen candidate.
    """

    nodes: set[Node]
    unknown: list[Candidate]
    absent: set[NormalizedName]

    @property
    def names(self) -> set[NormalizedName]:
        """The packages that are needed."""
        return {name for name, _ in self.nodes}


def reached_by(
    problem: ResolutionProblem,
    source: CandidateSource,
    selection: Mapping[NormalizedName, Candidate],
    *,
    roots: tuple[RootRequirement, ...] | None = None,
    extras: Mapping[NormalizedName, Collection[str]] | None = None,
) -> Reached:
    """Follow the requirements of a choice, starting at the project.

    Args:
        problem: The problem.
        source: The candidates.
        selection: The chosen candidate of each package.
        roots: The project's requirements; by default those of the problem.
        extras: Extras that are required in addition wherever a package is needed.
    """
    visited: set[Node] = set()
    unknown: dict[str, Candidate] = {}
    absent: set[NormalizedName] = set()
    queue: list[Node] = [
        (root.name, extra)
        for root in (problem.roots if roots is None else roots)
        if not root.constraint and problem.applies(root.requirement)
        for extra in (None, *Dependency(name=root.name, requirement=root.requirement).extras)
    ]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        if extra is None and extras:
            queue += [(name, canonicalize_name(further)) for further in extras.get(name, ())]
        if name not in selection:
            absent.add(name)
        elif not source.is_known(selection[name]):
            unknown[selection[name].file.url] = selection[name]
        else:
            for dependency in source.dependencies(selection[name], extra) or ():
                queue += [(dependency.name, e) for e in (None, *dependency.extras)]
    return Reached(nodes=visited, unknown=sorted(unknown.values()), absent=absent)


class Search:
    """Fetches the metadata of what a solution chose, and refines the model."""

    def __init__(
        self, problem: ResolutionProblem, source: CandidateSource, encoding: Encoding, start: Sequence[Candidate]
    ) -> None:
        self._problem = problem
        self._source = source
        self._encoding = encoding
        self._batch_sizes: dict[NormalizedName, int] = {}
        self._places: dict[NormalizedName, int] = {}
        self._started = {c.name for c in start}
        roots = {r.name for r in problem.roots if not r.constraint and problem.applies(r.requirement)}
        source.fetch(start)
        self.add_packages(roots | self._started)
        for candidate in start:
            allowed = encoding.allowed(candidate.name)
            if candidate in allowed:
                encoding.expand(candidate.name, _GROWTH * allowed.index(candidate) + 1)

    def refine(
        self,
        selection: Mapping[NormalizedName, Candidate],
        unexpanded: Iterable[NormalizedName] = (),
        *,
        roots: tuple[RootRequirement, ...] | None = None,
        extras: Mapping[NormalizedName, Collection[str]] | None = None,
    ) -> tuple[Candidate, ...] | None:
        """Fetch unknown metadata of a choice, and expand packages whose choice is not explicit.

        Args:
            selection: The chosen candidate of each package.
            unexpanded: Packages with a candidate in the solution that is not explicit.
            roots: The project's requirements; by default those of the problem.
            extras: Extras that are required in addition wherever a package is needed.

        Returns:
            The chosen candidates that are needed, sorted by name; `None` if the metadata of some was not known.
        """
        reached = reached_by(self._problem, self._source, selection, roots=roots, extras=extras)
        unknown, absent = reached.unknown, reached.absent
        unexpanded = sorted(absent.intersection(unexpanded))
        for name in unexpanded:
            self._encoding.expand(name, _GROWTH * len(self._encoding.choices(name)))
        # Whether a requirement excludes the newer version whose build failed is known when all packages are loaded.
        self._fetch_around([c for c in unknown if not (absent and self._source.failed_newer(c))])
        self.add_packages(absent.difference(unexpanded))
        return None if unknown or absent else tuple(selection[name] for name in sorted(reached.names))

    def excludes_failed_builds(
        self, stack: Sequence[Candidate], extras: Mapping[NormalizedName, Collection[str]]
    ) -> bool:
        """Whether other packages of a stack exclude the failed builds that are newer than its versions.

        Otherwise the stack is forbidden from then on.

        Args:
            stack: The stack, with known metadata.
            extras: Extras that are required in addition wherever a package is needed.
        """
        failed = {c.name: versions for c in stack if (versions := self._source.failed_newer(c))}
        if not failed:
            return True
        selection = {c.name: c for c in stack}
        demands: dict[NormalizedName, list[Dependency]] = {}
        for name, extra in reached_by(self._problem, self._source, selection, extras=extras).nodes:
            for dependency in self._source.dependencies(selection[name], extra) or ():
                if dependency.name != name:
                    demands.setdefault(dependency.name, []).append(dependency)
        are_excluded = all(
            any(not admits(dependency.requirement, version) for dependency in demands.get(name, ()))
            for name, versions in failed.items()
            for version in versions
        )
        if not are_excluded:
            self._encoding.forbid(stack)
        return are_excluded

    def _fetch_around(self, unknown: Sequence[Candidate]) -> None:
        """Fetch the metadata of candidates and of those after them, in one parallel batch.

        After a candidate come the older ones, or the newer ones if the choice moved to a newer one: the smallest file
        is often the oldest.
        """
        pending: list[Candidate] = []
        for candidate in unknown:
            # Doubles with each call for a package, so that a long chain of versions takes few iterations.
            batch_size = self._batch_sizes.get(candidate.name, 1) * _GROWTH
            self._batch_sizes[candidate.name] = batch_size
            allowed = self._encoding.allowed(candidate.name)
            place = allowed.index(candidate)
            is_newer = place < self._places.get(candidate.name, 0)
            self._places[candidate.name] = place
            following = allowed[place::-1] if is_newer else allowed[place:]
            if self._source.failed_newer(candidate):
                following = [candidate]
            pending += [c for c in following if not self._source.is_known(c)][:batch_size]
        self._source.fetch(pending)
        self._encoding.add_dependencies(pending)

    def add_packages(self, names: Iterable[NormalizedName]) -> None:
        """Add packages to the model, with everything that their newest candidates require."""
        fresh = sorted(set(names) - set(self._encoding.candidates))
        while fresh:
            # Of a package that the stack to start from has, a newer version that does not fit to it need not be read.
            unread = [name for name in fresh if name not in self._started]
            self._source.prefetch(unread)
            self._encoding.add_packages(fresh)
            newest = [c for name in unread for c in self._encoding.allowed(name)[:1]]
            self._source.fetch(newest)
            self._encoding.add_dependencies(c for name in fresh for c in self._encoding.candidates[name])
            required = {d.name for c in newest for d in self._source.dependencies(c) or ()}
            fresh = sorted(required - set(self._encoding.candidates))
