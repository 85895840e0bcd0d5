"""The baseline: the stack that a plain resolver chooses, newest versions first (resolvelib, like pip)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from advisor.domain.progress import progress
from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import quoted
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import (
    Candidate,
    CandidateSource,
    CandidateStack,
    Dependency,
    Node,
    NoStackError,
    ResolutionProblem,
    admits,
    prefetch_roots,
)
from knowledge.domain.errors import AdvisorError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvelibRequirement:
    """A requirement in resolvelib's graph: on a package, or on one extra of it; the project itself has no parent.

    An extra is a node of its own, which pins its package.
    """

    dependency: Dependency
    extra: NormalizedName | None
    origin: str
    parent: NormalizedName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvelibCandidate:
    """A candidate in resolvelib's graph: a version of a package, or one extra of it."""

    candidate: Candidate
    extra: NormalizedName | None


_MOST_AHEAD = 16
"""Number of older versions whose metadata is read at once after several that cannot be used."""
MOST_ROUNDS = 20_000
"""Rounds of resolvelib after which the search ends."""
FIRST_ROUNDS = 500
"""Rounds of resolvelib after which the problem is checked for a contradiction."""


class BaselineLimitError(NoStackError):
    """Raised when the plain resolver finds no stack within its limit of rounds."""

    code = "baseline-limit"


@dataclass(kw_only=True, eq=False)
class _Provider(AbstractProvider[ResolvelibRequirement, ResolvelibCandidate, Node]):
    """Provides resolvelib with candidates; ``pins`` limits each package to one version.

    Attributes:
        refused: Packages whose older versions were refused: no requirement excluded a newer one whose build failed.
    """

    problem: ResolutionProblem
    source: CandidateSource
    pins: Mapping[NormalizedName, Candidate] | None
    is_left_out: Callable[[Candidate], bool] | None
    limit: TimeLimit | None
    refused: set[str] = field(default_factory=set)
    _satisfied: dict[tuple[int, int], tuple[bool, ResolvelibRequirement, ResolvelibCandidate]] = field(
        default_factory=dict
    )

    def identify(self, requirement_or_candidate: ResolvelibRequirement | ResolvelibCandidate) -> Node:
        if isinstance(requirement_or_candidate, ResolvelibRequirement):
            return requirement_or_candidate.dependency.name, requirement_or_candidate.extra
        return requirement_or_candidate.candidate.name, requirement_or_candidate.extra

    def narrow_requirement_selection(
        self,
        identifiers: Iterable[Node],
        resolutions: Mapping[Node, ResolvelibCandidate],
        candidates: Mapping[Node, Iterator[ResolvelibCandidate]],
        information: Mapping[Node, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> Iterable[Node]:
        """Return the nodes among which :meth:`get_preference` decides; with pins, the order does not matter."""
        return identifiers if self.pins is None else list(identifiers)[:1]

    def get_preference(
        self,
        identifier: Node,
        resolutions: Mapping[Node, ResolvelibCandidate],
        candidates: Mapping[Node, Iterator[ResolvelibCandidate]],
        information: Mapping[Node, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> Any:
        """Return pip's order: pinned packages, causes of conflicts, the project's own requirements, then by name."""
        information_of_node = list(information[identifier])
        specifiers = [s for info in information_of_node for s in info.requirement.dependency.requirement.specifier]
        causes = {self.identify(cause.requirement) for cause in backtrack_causes}
        return (
            not any(s.operator == "==" and not s.version.endswith(".*") for s in specifiers),
            identifier not in causes,
            not any(info.parent is None for info in information_of_node),
            not specifiers,
            identifier[0],
            identifier[1] or "",
        )

    def find_matches(
        self,
        identifier: Node,
        requirements: Mapping[Node, Iterator[ResolvelibRequirement]],
        incompatibilities: Mapping[Node, Iterator[ResolvelibCandidate]],
    ) -> Callable[[], Iterator[ResolvelibCandidate]]:
        """Return the candidates that every requirement on the node admits, newest first."""
        name, extra = identifier
        nodes = list(requirements[identifier])
        roots = [root.requirement for root in self.problem.roots_of(name)]
        specified = [*(node.dependency.requirement for node in nodes), *roots]
        of_others = [*(node.dependency.requirement for node in nodes if node.parent != name), *roots]
        incompatible = {node.candidate.version for node in incompatibilities[identifier]}

        def matches() -> Iterator[ResolvelibCandidate]:
            admitted = [
                candidate
                for candidate in self._candidates(name)
                if candidate.version not in incompatible and all(admits(r, candidate.version) for r in specified)
            ]
            for number, candidate in enumerate(admitted):
                self._check_limit()
                # An extra pins its package, for which this is decided.
                newer = self.source.failed_newer(candidate) if self.pins is None and extra is None else ()
                if any(all(admits(r, version) for r in of_others) for version in newer):
                    self.refused.add(name)
                    continue
                steps = len(incompatible) + number
                if steps and not self.source.is_known(candidate):
                    # A long way back takes few requests in turn.
                    self.source.prefetch_metadata(admitted[number : number + min(2 * steps, _MOST_AHEAD)])
                if self.source.dependencies(candidate) is not None:
                    yield ResolvelibCandidate(candidate=candidate, extra=extra)

        return matches

    def _check_limit(self) -> None:
        if self.limit is not None and self.limit.is_over:
            raise BaselineLimitError(
                f"the plain resolver found no stack: {self.limit.reason}", hint="allow more time with `--time-limit`"
            )

    def is_satisfied_by(self, requirement: ResolvelibRequirement, candidate: ResolvelibCandidate) -> bool:
        # Called for every pair in every round: cached by identity; storing the pair keeps the identities valid.
        key = (id(requirement), id(candidate))
        if key not in self._satisfied:
            is_met = admits(requirement.dependency.requirement, candidate.candidate.version)
            self._satisfied[key] = (is_met, requirement, candidate)
        return self._satisfied[key][0]

    def get_dependencies(self, candidate: ResolvelibCandidate) -> Iterable[ResolvelibRequirement]:
        """Return what a node requires; an extra also pins its own package."""
        package = candidate.candidate
        self._check_limit()
        progress("resolving the newest versions: %s %s", package.name, package.version)
        dependencies = self.source.dependencies(package, candidate.extra) or ()
        self.source.prefetch([d.name for d in dependencies], [d.requirement for d in dependencies])
        origin = f"{package.name} {package.version}"
        requirements = [requirement for d in dependencies for requirement in split_extras(d, origin, package.name)]
        if candidate.extra is not None:
            pin = Dependency(name=package.name, requirement=Requirement(f"{package.name}==={package.version}"))
            requirements += split_extras(pin, f"{package.name}[{candidate.extra}]", package.name)
        return requirements

    def _candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        if self.pins is not None:
            return (self.pins[name],) if name in self.pins else ()
        every = self.source.candidates(name)
        if self.is_left_out is None:
            return every
        plain = tuple(c for c in every if not self.is_left_out(c))
        return plain if any(map(self.problem.admits, plain)) else every


def split_extras(
    dependency: Dependency, origin: str, parent: NormalizedName | None = None
) -> list[ResolvelibRequirement]:
    """Split a requirement into one on the package and one on each of its extras."""
    return [
        ResolvelibRequirement(dependency=dependency, extra=extra, origin=origin, parent=parent)
        for _, extra in dependency.nodes
    ]


def resolve_baseline(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    pins: Mapping[NormalizedName, Candidate] | None = None,
    is_left_out: Callable[[Candidate], bool] | None = None,
    max_rounds: int = MOST_ROUNDS,
    limit: TimeLimit | None = None,
) -> CandidateStack:
    """Resolve a problem, newest versions first; return the chosen candidates, sorted by name.

    With `pins`, these are the only candidates, by package. A candidate that is left out counts only if the project's
    requirements admit no other one of its package. The search has a limit of resolvelib's rounds.

    Raises:
        NoStackError: If no stack satisfies the requirements.
        BaselineLimitError: If none is found within the limits.
    """
    if pins is None:
        prefetch_roots(problem, source)
    provider = _Provider(problem=problem, source=source, pins=pins, is_left_out=is_left_out, limit=limit)
    required = [
        requirement
        for root in problem.required
        for requirement in split_extras(Dependency(name=root.name, requirement=root.requirement), root.origin)
    ]
    try:
        result = Resolver(provider, BaseReporter()).resolve(required, max_rounds=max_rounds)
    except ResolutionImpossible as error:
        raise _impossible(error, provider.refused) from None
    except (ResolutionTooDeep, RecursionError):
        # resolvelib recurses endlessly if packages that it gave up require each other.
        raise BaselineLimitError(
            f"the plain resolver found no stack within {max_rounds} rounds",
            hint="constrain the packages that have many versions",
        ) from None
    candidates = {node.candidate.name: node.candidate for node in result.mapping.values()}
    return CandidateStack(candidates[name] for name in sorted(candidates))


def _impossible(error: ResolutionImpossible[Any, Any], refused: set[str]) -> NoStackError:
    """Return the error of a search that tried everything but what it refused because of failed builds."""
    if refused:
        # A package that it reads later may exclude the versions whose builds failed.
        return BaselineLimitError(f"the plain resolver found no stack: builds of {quoted(sorted(refused))} failed")
    lines = (f"{c.requirement.origin} requires `{c.requirement.dependency.requirement}`" for c in error.causes)
    return NoStackError("no set of versions satisfies the requirements", details=tuple(dict.fromkeys(lines)))


def resolve_newest_stack(
    problem: ResolutionProblem, source: IndexCandidates, limit: TimeLimit, *, max_rounds: int = MOST_ROUNDS
) -> CandidateStack:
    """Resolve a problem, newest versions first; with further builds only if there is no stack without them.

    Raises:
        NoStackError: If no stack satisfies the requirements.
        BaselineLimitError: If none is found within the limits.
    """
    if source.has_further_builds:
        try:
            return resolve_baseline(
                problem, source, is_left_out=source.is_further_build, max_rounds=max_rounds, limit=limit
            )
        except BaselineLimitError:
            raise
        except NoStackError:
            pass
    return resolve_baseline(problem, source, max_rounds=max_rounds, limit=limit)


def without_versions(problem: ResolutionProblem, source: IndexCandidates) -> list[RootRequirement]:
    """Return the requirements of the project that admit no version of a package that it requires.

    These are single requirements or, if each of them admits a version, all requirements on the package.
    """
    unsatisfied: list[RootRequirement] = []
    for name in sorted({root.name for root in problem.required}):
        roots, offered = problem.roots_of(name), source.candidates(name)
        if not any(map(problem.admits, offered)):
            single = [root for root in roots if not any(admits(root.requirement, c.version) for c in offered)]
            unsatisfied += single or roots
    return unsatisfied


def check_roots(problem: ResolutionProblem, source: IndexCandidates) -> None:
    """Check that each package that the project requires has a version that the target can install.

    Raises:
        NoStackError: If one has none; the message contains the reason.
        UnavailableError: If an index cannot be read.
    """
    prefetch_roots(problem, source)
    for root in problem.required:
        if not source.is_on_index(root.name):
            raise NoStackError(
                f"package `{root.name}`, required by {root.origin}, is not on any configured index",
                hint="check the spelling, or name the index with `--index-url` or `--extra-index-url`",
            )
        if not source.candidates(root.name):
            reasons = source.reasons(root.name)
            if not reasons:
                raise NoStackError(
                    f"the index page of `{root.name}`, required by {root.origin}, lists no files",
                    hint="open it in a browser: an index that requires a login may return another page",
                )
            raise NoStackError(
                f"no version of `{root.name}`, required by {root.origin}, can be installed on the target: {reasons}",
                hint="choose another `--python` or `--platform`",
            )


class VerificationError(AdvisorError):
    """Raised when the independent resolver does not accept the optimum: a defect of this program."""

    code = "verification-failed"
    exit_code = 4


def verify(problem: ResolutionProblem, source: CandidateSource, stack: Iterable[Candidate]) -> None:
    """Check that resolvelib, with every version pinned, accepts exactly this stack.

    Raises:
        VerificationError: If it does not; nothing must be written then.
    """
    stack = tuple(stack)
    hint = "this is a defect of `advisor`: please report it with the project's requirements; no lock was written"
    try:
        accepted = resolve_baseline(problem, source, pins={c.name: c for c in stack})
    except NoStackError as error:
        conflict = "; ".join(error.details)
        raise VerificationError(f"the chosen stack violates a requirement: {conflict}", hint=hint) from None
    if {c.name for c in accepted} != {c.name for c in stack}:
        surplus = sorted({c.name for c in stack} - {c.name for c in accepted})
        raise VerificationError(f"the chosen stack has packages that nothing requires: {surplus}", hint=hint)
