"""The same versions for several targets wherever possible: one exact optimum over the stacks of all of them.

The problems of the targets become one problem, with one copy of each package for each target. Its criteria are, in this
order: violated rules, idle builds, the number of different versions, and the other criteria, summed over the targets.

For one lock of several targets, versions are shared only where that costs neither speed nor safety.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Dependency, NoStackError, ResolutionProblem
from advisor.resolve.explanation.prices import with_own_baseline
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.request import MOST_UNCOUNTED, ResolutionRequest, Solved, solve
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
from advisor.resolve.score.costs import Bound, Candidates, Limits, Objective
from advisor.resolve.score.criteria import CRITERIA
from advisor.resolve.score.criterion_costs import CriterionCosts

_ORIGIN = "the same versions for all targets"
_SHARED_ORIGIN = "shared with the other targets of the lock"
_FRESHNESS = ("freshness-direct", "freshness")
_BEFORE_AGREEMENT = ("vulnerabilities", "rules", "idle-builds")
"""Criteria that come before the number of different versions."""
DIFFERENT_VERSIONS = "different-versions"
"""Name of the criterion."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The targets with as many common versions as possible.

    Attributes:
        requests: The request of each target, which admits only the chosen releases.
        before: Packages whose releases differ if each target has its own best stack.
        after: Packages whose releases still differ.
        proven: Whether it is proven that no fewer can differ.
    """

    requests: Mapping[str, ResolutionRequest]
    before: tuple[str, ...]
    after: tuple[str, ...]
    proven: bool


def agree(solved: Mapping[str, Solved], *, limit: TimeLimit) -> Agreement:
    """Return requests whose best stacks have as many releases in common as possible.

    Raises:
        SearchLimitError: If the limit is reached before a stack is found.
    """
    # Speed is compared with the newest stack of each target, as for its own best stack.
    joint = _JointTargets([own.request.with_score(reference=own.optimum.newest) for own in solved.values()])
    start: Sequence[Candidate] = joint.joined([own.stack for own in solved.values()])
    effort = replace(next(iter(solved.values())).request.effort, limit=limit)
    for _ in range(MOST_UNCOUNTED):
        optimum = optimise(joint.problem, joint, joint, start=start, effort=effort)
        corrected = None if optimum.stopped else joint.without_uncounted_gains(optimum.stack)
        if corrected is None:
            break
        joint, start = corrected, optimum.stack
    stacks = {name: own.stack for name, own in solved.items()}
    # Without a stack whose gain counts, each target keeps its own best one.
    if corrected is None:
        stacks = dict(zip(solved, joint.separated(optimum.stack), strict=True))
    return Agreement(
        requests={name: _limited_to(own.request, stacks[name]) for name, own in solved.items()},
        before=differing([(own.request, own.stack) for own in solved.values()]),
        after=differing([(own.request, stacks[name]) for name, own in solved.items()]),
        proven=corrected is None
        and all(bound.gap == 0 for bound in optimum.bounds if bound.objective == DIFFERENT_VERSIONS),
    )


def differing(stacks: Iterable[tuple[ResolutionRequest, Iterable[Candidate]]]) -> tuple[str, ...]:
    """Return the packages in different releases, sorted; one that replaces another package counts as that one."""
    releases: dict[str, set[str]] = {}
    for request, stack in stacks:
        for candidate in stack:
            releases.setdefault(_package_of(request, candidate.name), set()).add(candidate.release)
    return tuple(sorted(name for name, different in releases.items() if len(different) > 1))


def _package_of(request: ResolutionRequest, name: NormalizedName) -> NormalizedName:
    """Return the package that a package replaces in a request, or the package itself."""
    substitutions = request.problem.substitutions.values()
    return next((s.package for s in substitutions if s.replacement == name), name)


def _limited_to(request: ResolutionRequest, stack: Iterable[Candidate]) -> ResolutionRequest:
    """Return a request that admits only the releases of a stack; of each, any build."""
    limits = (
        RootRequirement(
            requirement=Requirement(f"{c.name}=={c.release}"), origin=_ORIGIN, constraint=True, is_added=True
        )
        for c in stack
        if c.direct is None
    )
    return request.with_problem(request.problem.with_roots(limits))


class _JointTargets:
    """The problems of several targets as one problem, its candidates (`CandidateSource`) and costs (`StackCosts`)."""

    def __init__(self, requests: Sequence[ResolutionRequest]) -> None:
        self._requests = requests
        self._costs = [CriterionCosts(request.score) for request in requests]
        self._originals: dict[str, tuple[IndexCandidates, Candidate]] = {}
        roots = tuple(
            replace(root, requirement=_renamed(number, root.requirement))
            for number, request in enumerate(requests)
            for root in request.problem.roots
            if request.problem.applies(root.requirement)
        )
        self.problem = ResolutionProblem(roots=roots, target=requests[0].problem.target)

    @property
    def fetched(self) -> Collection[str]:
        return {url for request in self._requests for url in request.source.fetched}

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        number, original = _separated(name)
        return tuple(self._joint(number, c) for c in self._requests[number].source.candidates(original))

    def _joint(self, number: int, candidate: Candidate) -> Candidate:
        # Several targets may have the same file: its address identifies it in the search.
        file = replace(candidate.file, url=f"{number} {candidate.file.url}")
        self._originals[file.url] = self._requests[number].source, candidate
        return replace(candidate, name=_name(number, candidate.name), file=file)

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        number, _ = _separated(candidate.name)
        source, original = self._originals[candidate.file.url]
        dependencies = source.dependencies(original, extra)
        if dependencies is None:
            return None
        return tuple(
            Dependency(name=_name(number, d.name), requirement=_renamed(number, d.requirement)) for d in dependencies
        )

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        source, original = self._originals[candidate.file.url]
        return source.lacks_extra(original, extra)

    def is_known(self, candidate: Candidate) -> bool:
        source, original = self._originals[candidate.file.url]
        return source.is_known(original)

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        source, original = self._originals[candidate.file.url]
        return source.failed_newer(original)

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Read the metadata of candidates, in one parallel batch for each target."""
        for request, batch in zip(self._requests, self.separated(candidates), strict=True):
            request.source.fetch(batch)

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Start reading the pages of packages without waiting; the requirements are of no target."""
        for name in names:
            number, original = _separated(name)
            self._requests[number].source.prefetch([original])

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        for request, batch in zip(self._requests, self.separated(candidates), strict=True):
            request.source.prefetch_metadata(batch)

    def joined(self, stacks: Sequence[Iterable[Candidate]]) -> list[Candidate]:
        return [self._joint(number, candidate) for number, stack in enumerate(stacks) for candidate in stack]

    def separated(self, stack: Iterable[Candidate]) -> list[CandidateStack]:
        stacks: list[list[Candidate]] = [[] for _ in self._requests]
        for candidate in stack:
            stacks[_separated(candidate.name)[0]].append(self._originals[candidate.file.url][1])
        return [CandidateStack(sorted(one)) for one in stacks]

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objectives of all targets, summed, with the number of different releases."""
        summed: dict[str, Objective] = {}
        for number, offered in enumerate(self._offered(candidates)):
            for objective in self._costs[number].objectives(offered):
                own = objective.renamed(partial(_name, number))
                # Targets have different packages, so no cost is stated twice.
                before = summed.get(own.name, Objective(name=own.name))
                summed[own.name] = replace(
                    own,
                    costs={**before.costs, **own.costs},
                    pairs={**before.pairs, **own.pairs},
                    together={**before.together, **own.together},
                    absent={**before.absent, **own.absent},
                )
        summed[DIFFERENT_VERSIONS] = Objective(name=DIFFERENT_VERSIONS, different=self._pairs(candidates))
        names = _criteria([request.score.objective for request in self._requests])
        return tuple(summed[name] for name in names if name in summed)

    def compared_beyond(self, stack: Iterable[Candidate]) -> list[NormalizedName]:
        """Return the packages that a stack lacks on a target, and whose absence may cost speed, sorted."""
        return sorted(
            _name(number, name)
            for number, own in enumerate(self.separated(stack))
            for name in self._costs[number].compared_beyond(own)
        )

    def without_uncounted_gains(self, stack: Iterable[Candidate]) -> _JointTargets | None:
        """Return the same targets, by which a stack has no gain of speed that does not count; `None` if it has none."""
        own = zip([request.score for request in self._requests], self.separated(stack), strict=True)
        scores = [score.without_uncounted_gain(stack) if score.includes_speed else None for score, stack in own]
        if not any(scores):
            return None
        other = copy.copy(self)
        other._requests = [replace(r, score=s or r.score) for r, s in zip(self._requests, scores, strict=True)]
        other._costs = [CriterionCosts(request.score) for request in other._requests]
        return other

    def _pairs(self, candidates: Iterable[NormalizedName]) -> list[tuple[NormalizedName, NormalizedName]]:
        same: dict[NormalizedName, list[NormalizedName]] = {}
        for name in sorted(candidates):
            number, own = _separated(name)
            same.setdefault(_package_of(self._requests[number], own), []).append(name)
        return [
            pair
            for _, names in sorted(same.items())
            for pair in combinations(names, 2)
            if _separated(pair[0])[0] != _separated(pair[1])[0]
        ]

    def limits(self, candidates: Candidates) -> Limits:
        every = [
            self._costs[number].limits(offered).renamed(partial(_name, number))
            for number, offered in enumerate(self._offered(candidates))
        ]
        return Limits(
            forbidden={choice: why for limits in every for choice, why in limits.forbidden.items()},
            exclusive=tuple(group for limits in every for group in limits.exclusive),
            budgets=tuple(budget for limits in every for budget in limits.budgets),
        )

    def _offered(self, candidates: Candidates) -> list[dict[NormalizedName, Sequence[Candidate]]]:
        """Return the candidates of each target, as it knows them."""
        offered: list[dict[NormalizedName, Sequence[Candidate]]] = [{} for _ in self._requests]
        for name in candidates:
            number, original = _separated(name)
            offered[number][original] = self._requests[number].source.candidates(original)
        return offered


def _criteria(objectives: Iterable[str]) -> list[str]:
    """Return the criteria of all objectives, with the number of different releases after the first ones."""
    names = list(dict.fromkeys(name for objective in objectives for name in CRITERIA[objective]))  # type: ignore[index]
    first = [name for name in names if name in _BEFORE_AGREEMENT]
    return [*first, DIFFERENT_VERSIONS, *(name for name in names if name not in first)]


def _name(number: int, name: NormalizedName) -> NormalizedName:
    return NormalizedName(f"t{number}-{name}")


def _separated(name: NormalizedName) -> tuple[int, NormalizedName]:
    """Return the number of the target and the name of the package."""
    number, _, original = name.partition("-")
    return int(number[1:]), NormalizedName(original)


def _renamed(number: int, requirement: Requirement) -> Requirement:
    """Return a requirement on the package of one target, without its marker, which was evaluated for the target."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return Requirement(f"{_name(number, canonicalize_name(requirement.name))}{extras}{requirement.specifier}")


def share_versions(solved: Mapping[str, Solved], *, limit: TimeLimit) -> dict[str, ResolutionRequest]:
    """Return requests with more requirements, such that their best stacks have as many versions in common as possible.

    A version is shared if each target has a stack with it that is as good by every criterion except freshness. Packages
    are tried one after the other, by name, and of each the newest versions first. Targets with different interpreters
    keep their own versions: an old interpreter must not hold back the others.
    """
    best = dict(solved)
    groups: dict[str, list[str]] = {}
    for target, own in solved.items():
        groups.setdefault(own.request.problem.target.python_minor, []).append(target)
    for group in groups.values():
        for package in sorted({c.name for target in group for c in best[target].stack}):
            for version in _different_versions(package, [best[target].stack for target in group]):
                if limit.is_over:
                    return {target: own.request for target, own in best.items()}
                if shared := _with_version(package, version, {target: best[target] for target in group}):
                    best |= shared
                    break
    return {target: own.request for target, own in best.items()}


def _different_versions(package: NormalizedName, stacks: Iterable[CandidateStack]) -> list[Version]:
    """Return the versions of a package in some stacks, newest first; empty if they are equal or of no index."""
    candidates = [c for stack in stacks for c in stack if c.name == package]
    versions = {c.version for c in candidates}
    if len(versions) < 2 or any(c.direct is not None for c in candidates):
        return []
    return sorted(versions, reverse=True)


def _with_version(package: NormalizedName, version: Version, solved: Mapping[str, Solved]) -> dict[str, Solved] | None:
    """Return best stacks with a version of a package wherever it is needed; `None` if one gets worse."""
    limited = RootRequirement(requirement=Requirement(f"{package}==={version}"), origin=_SHARED_ORIGIN, constraint=True)
    shared: dict[str, Solved] = {}
    for target, own in solved.items():
        request, optimum = own.request, own.optimum
        if all(c.version == version for c in optimum.stack if c.name == package):
            shared[target] = own
            continue
        request = request.with_score(reference=optimum.newest)
        other = request.with_problem(request.problem.with_roots([limited]))
        try:
            best = solve(with_own_baseline(other))
        except (NoStackError, InfeasibleError, SearchLimitError):
            return None
        if best.stopped or not _is_as_good(best.bounds, optimum.bounds):
            return None
        shared[target] = Solved(request=other, optimum=best)
    return shared


def _is_as_good(bounds: tuple[Bound, ...], before: tuple[Bound, ...]) -> bool:
    return all(
        bound.value <= earlier.value
        for bound, earlier in zip(bounds, before, strict=True)
        if bound.objective not in _FRESHNESS
    )
