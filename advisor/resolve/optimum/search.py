"""Refinement of the model: fetches the metadata of what a solution chose, and adds it to the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName

from advisor.domain.requirement import RootRequirement
from advisor.resolve.candidates.problem import (
    PROJECT,
    Candidate,
    CandidateSource,
    Dependency,
    Node,
    ResolutionProblem,
    admits,
    walk,
)
from advisor.resolve.optimum.encode import Encoding

_GROWTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What the requirements of a choice lead to, starting at the project.

    Attributes:
        names: The packages that are needed.
        demands: What they and the project require, each with the package that requires it.
        unknown: The chosen candidates among them whose metadata is not known, sorted.
        absent: The needed packages without a chosen candidate.
    """

    names: set[NormalizedName]
    demands: list[tuple[NormalizedName, Dependency]]
    unknown: list[Candidate]
    absent: set[NormalizedName]


def reached_by(
    problem: ResolutionProblem,
    source: CandidateSource,
    selection: Mapping[NormalizedName, Candidate],
    *,
    roots: tuple[RootRequirement, ...] | None = None,
    extras: Mapping[NormalizedName, Collection[str]] | None = None,
) -> Reached:
    """Follow the requirements of a choice, starting at the project.

    The project's requirements are those of the problem, unless `roots` are stated. Extras are required in addition
    wherever a package is needed.
    """
    names: set[NormalizedName] = set()
    unknown: dict[str, Candidate] = {}
    absent: set[NormalizedName] = set()

    def dependencies_of(node: Node) -> Iterator[Dependency]:
        name, extra = node
        names.add(name)
        if extra is None and extras and extras.get(name):
            yield Dependency(name=name, requirement=Requirement(f"{name}[{','.join(extras[name])}]"))
        if name not in selection:
            absent.add(name)
        elif not source.is_known(selection[name]):
            unknown[selection[name].file.url] = selection[name]
        else:
            yield from source.dependencies(selection[name], extra) or ()

    project = problem if roots is None else replace(problem, roots=roots)
    demands = list(walk(project.required, dependencies_of))
    return Reached(names=names, demands=demands, unknown=sorted(unknown.values()), absent=absent)


class Search:
    """Fetches the metadata of what a solution chose, and refines the model."""

    def __init__(self, encoding: Encoding, start: Sequence[Candidate]) -> None:
        self._problem, self._source = encoding.problem, encoding.source
        self._encoding = encoding
        self._batch_sizes: dict[NormalizedName, int] = {}
        self._places: dict[NormalizedName, int] = {}
        self._started = {c.name for c in start}
        self._source.fetch(start)
        self.add_packages({root.name for root in self._problem.required} | self._started)
        for candidate in start:
            allowed = encoding.allowed[candidate.name]
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

        Return the chosen candidates that are needed, sorted by name; `None` if the metadata of some was not known.
        """
        reached = reached_by(self._problem, self._source, selection, roots=roots, extras=extras)
        unknown, absent = reached.unknown, reached.absent
        unexpanded = sorted(absent.intersection(unexpanded))
        for name in unexpanded:
            self._encoding.expand(name, _GROWTH * len(self._encoding.choices[name]))
        # Whether a requirement excludes the newer version whose build failed is known when all packages are loaded.
        self._fetch_around([c for c in unknown if not (absent and self._source.failed_newer(c))])
        self.add_packages(absent.difference(unexpanded))
        return None if unknown or absent else tuple(selection[name] for name in sorted(reached.names))

    def excludes_failed_builds(
        self, stack: Sequence[Candidate], extras: Mapping[NormalizedName, Collection[str]]
    ) -> bool:
        """Whether other packages exclude the newer failed builds; otherwise the stack is forbidden from then on."""
        failed = {c.name: versions for c in stack if (versions := self._source.failed_newer(c))}
        if not failed:
            return True
        reached = reached_by(self._problem, self._source, {c.name: c for c in stack}, extras=extras)
        of_others = [(d.name, d.requirement) for parent, d in reached.demands if parent not in (PROJECT, d.name)]
        are_excluded = all(
            any(name == required and not admits(requirement, version) for required, requirement in of_others)
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
            allowed = self._encoding.allowed[candidate.name]
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
            newest = [c for name in unread for c in self._encoding.allowed[name][:1]]
            self._source.fetch(newest)
            self._encoding.add_dependencies(c for name in fresh for c in self._encoding.candidates[name])
            required = {d.name for c in newest for d in self._source.dependencies(c) or ()}
            fresh = sorted(required - set(self._encoding.candidates))
