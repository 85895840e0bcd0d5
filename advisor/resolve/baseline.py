"""The baseline: what a plain resolver would choose, newest first (resolvelib, as pip)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.utils import NormalizedName
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from advisor.resolve.problem import Candidate, CandidateSource, Dependency, ResolutionProblem, admits
from knowledge.domain.errors import UnsatisfiableError

Identifier = tuple[NormalizedName, NormalizedName | None]
"""A package, or a package with one extra: an extra is a node of its own that pins its package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A requirement as resolvelib carries it: for a package, or for one extra of it."""

    dependency: Dependency
    extra: NormalizedName | None
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvelibCandidate:
    """A candidate as resolvelib carries it: a package version, or one extra of it."""

    candidate: Candidate
    extra: NormalizedName | None


class Impossible(UnsatisfiableError):
    """Raised when no stack satisfies the requirements.

    Attributes:
        details: What conflicts, a line each.
    """

    code = "unsatisfiable"

    def __init__(self, message: str, *, details: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.details = details


class TooDeep(Impossible):
    """Raised when the plain resolver found nothing within the rounds that it was allowed."""

    code = "too-deep"


class _Provider(AbstractProvider[Needed, ResolvelibCandidate, Identifier]):
    """Tells resolvelib what candidates there are; ``pins`` limits each package to one version."""

    def __init__(
        self,
        problem: ResolutionProblem,
        source: CandidateSource,
        pins: Mapping[NormalizedName, Candidate] | None = None,
    ) -> None:
        self._problem = problem
        self._source = source
        self._pins = pins
        self._satisfied: dict[tuple[int, int], tuple[bool, Needed, ResolvelibCandidate]] = {}

    def identify(self, requirement_or_candidate: Needed | ResolvelibCandidate) -> Identifier:
        """Name the node."""
        if isinstance(requirement_or_candidate, Needed):
            return requirement_or_candidate.dependency.name, requirement_or_candidate.extra
        return requirement_or_candidate.candidate.name, requirement_or_candidate.extra

    def get_preference(
        self,
        identifier: Identifier,
        resolutions: Mapping[Identifier, ResolvelibCandidate],
        candidates: Mapping[Identifier, Iterator[ResolvelibCandidate]],
        information: Mapping[Identifier, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> Any:
        """Order as pip: pinned first, then those that conflicts came from, then the user's own, then by name."""
        known = list(information[identifier])
        specifiers = [s for info in known for s in info.requirement.dependency.requirement.specifier]
        causes = {self.identify(cause.requirement) for cause in backtrack_causes}
        return (
            not any(s.operator == "==" and not s.version.endswith(".*") for s in specifiers),
            identifier not in causes,
            not any(info.parent is None for info in known),
            not specifiers,
            identifier[0],
            identifier[1] or "",
        )

    def find_matches(
        self,
        identifier: Identifier,
        requirements: Mapping[Identifier, Iterator[Needed]],
        incompatibilities: Mapping[Identifier, Iterator[ResolvelibCandidate]],
    ) -> Callable[[], Iterator[ResolvelibCandidate]]:
        """Return the candidates that every requirement on the node admits, newest first."""
        name, extra = identifier
        needed = [n.dependency.requirement for n in requirements[identifier]]
        needed += [root.requirement for root in self._problem.roots_of(name)]
        bad = {node.candidate.version for node in incompatibilities[identifier]}

        def matches() -> Iterator[ResolvelibCandidate]:
            for candidate in self._offered(name):
                if candidate.version in bad or not all(admits(r, candidate.version) for r in needed):
                    continue
                if self._source.dependencies(candidate) is not None:
                    yield ResolvelibCandidate(candidate=candidate, extra=extra)

        return matches

    def is_satisfied_by(self, requirement: Needed, candidate: ResolvelibCandidate) -> bool:
        """Whether a candidate meets a requirement."""
        # Called for every pair in every round: cached by identity, with the pair kept so that identities last.
        key = (id(requirement), id(candidate))
        if key not in self._satisfied:
            met = admits(requirement.dependency.requirement, candidate.candidate.version)
            self._satisfied[key] = (met, requirement, candidate)
        return self._satisfied[key][0]

    def get_dependencies(self, candidate: ResolvelibCandidate) -> Iterable[Needed]:
        """Return what a node requires; an extra also pins its own package."""
        chosen = candidate.candidate
        dependencies = self._source.dependencies(chosen, candidate.extra) or ()
        self._source.prefetch([d.name for d in dependencies])
        origin = f"{chosen.name} {chosen.version}"
        found = [needed for d in dependencies for needed in spread(d, origin)]
        if candidate.extra is not None:
            found.append(Needed(dependency=_pin(chosen), extra=None, origin=f"{chosen.name}[{candidate.extra}]"))
        return found

    def _offered(self, name: NormalizedName) -> tuple[Candidate, ...]:
        if self._pins is None:
            return self._source.candidates(name)
        return (self._pins[name],) if name in self._pins else ()


def _pin(candidate: Candidate) -> Dependency:
    from packaging.requirements import Requirement

    return Dependency(name=candidate.name, requirement=Requirement(f"{candidate.name}==={candidate.version}"))


def spread(dependency: Dependency, origin: str) -> list[Needed]:
    """Turn one requirement into one for the package and one for each extra asked of it."""
    extras: list[NormalizedName | None] = [None, *dependency.extras]
    return [Needed(dependency=dependency, extra=extra, origin=origin) for extra in extras]


def resolve_baseline(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    pins: Mapping[NormalizedName, Candidate] | None = None,
    max_rounds: int = 20_000,
) -> tuple[Candidate, ...]:
    """Resolve newest first.

    Args:
        problem: What is to be resolved.
        source: The candidates.
        pins: Where given, the only candidate of each package.
        max_rounds: Bound on the search, in resolvelib's rounds.

    Returns:
        The chosen candidates, sorted by name.

    Raises:
        Impossible: If no stack satisfies the requirements.
        TooDeep: If none was found within ``max_rounds``.
    """
    needed = [
        item
        for root in problem.roots
        if not root.constraint and problem.applies(root.requirement)
        for item in spread(Dependency(name=root.name, requirement=root.requirement), root.origin)
    ]
    if pins is None:
        source.prefetch(sorted({item.dependency.name for item in needed}))
    resolver = Resolver(_Provider(problem, source, pins), BaseReporter())
    try:
        result = resolver.resolve(needed, max_rounds=max_rounds)
    except ResolutionImpossible as error:
        lines = (f"{c.requirement.origin} requires `{c.requirement.dependency.requirement}`" for c in error.causes)
        raise Impossible("no set of versions satisfies the requirements", details=tuple(dict.fromkeys(lines))) from None
    except (ResolutionTooDeep, RecursionError):
        # resolvelib recurses without end where packages that it gave up require each other.
        raise TooDeep(
            f"the plain resolver found no stack within {max_rounds} rounds",
            hint="constrain the packages that have many versions",
        ) from None
    chosen = {node.candidate.name: node.candidate for node in result.mapping.values()}
    return tuple(chosen[name] for name in sorted(chosen))
