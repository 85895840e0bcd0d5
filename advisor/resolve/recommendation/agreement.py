"""The same versions for several targets wherever possible: one exact optimum over the stacks of all of them.

The problems of the targets become one problem, with one copy of each package for each target. Its criteria are, in this
order: violated rules, idle builds, the number of different versions, and the other criteria, summed over the targets.
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
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Dependency, ResolutionProblem
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.request import MOST_UNCOUNTED, ResolutionRequest, Solved
from advisor.resolve.score.costs import Candidates, Limits, Objective
from advisor.resolve.score.criteria import CRITERIA
from advisor.resolve.score.criterion_costs import CriterionCosts

_ORIGIN = "the same versions for all targets"
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

    Args:
        solved: The best stack of each target.
        limit: Time limit of the search.

    Raises:
        SearchLimitError: If the limit is reached before a stack is found.
    """
    # Speed is compared with the newest stack of each target, as for its own best stack.
    joint = _JointTargets(
        [
            replace(own.request, score=replace(own.request.score, reference=own.optimum.newest))
            for own in solved.values()
        ]
    )
    start: Sequence[Candidate] = joint.joined([own.stack for own in solved.values()])
    effort = replace(next(iter(solved.values())).request.effort, limit=limit)
    for _ in range(MOST_UNCOUNTED):
        optimum = optimise(joint.problem, joint, joint, start=start, effort=effort)
        corrected = None if optimum.stopped else joint.without_uncounted_gains(optimum.stack)
        if corrected is None:
            break
        joint, start = corrected, optimum.stack
    # Without a stack whose gain counts, each target keeps its own best one.
    own_stacks = [own.stack for own in solved.values()]
    stacks = dict(zip(solved, joint.separated(optimum.stack) if corrected is None else own_stacks, strict=True))
    return Agreement(
        requests={name: _limited_to(own.request, stacks[name]) for name, own in solved.items()},
        before=differing([(own.request, own.stack) for own in solved.values()]),
        after=differing([(own.request, stacks[name]) for name, own in solved.items()]),
        proven=corrected is None
        and all(bound.gap == 0 for bound in optimum.bounds if bound.objective == DIFFERENT_VERSIONS),
    )


def differing(stacks: Iterable[tuple[ResolutionRequest, Iterable[Candidate]]]) -> tuple[str, ...]:
    """Return the packages that the stacks of some requests have in different releases, sorted.

    A package that replaces another one counts as that one.
    """
    releases: dict[str, set[str]] = {}
    for request, stack in stacks:
        for candidate in stack:
            releases.setdefault(_package_of(request, candidate.name), set()).add(candidate.version.public)
    return tuple(sorted(name for name, different in releases.items() if len(different) > 1))


def _package_of(request: ResolutionRequest, name: NormalizedName) -> NormalizedName:
    """Return the package that a package replaces in a request, or the package itself."""
    substitutions = request.problem.substitutions.values()
    return next((s.package for s in substitutions if s.replacement == name), name)


def _limited_to(request: ResolutionRequest, stack: Iterable[Candidate]) -> ResolutionRequest:
    """Return a request that admits only the releases of a stack; of each, any build."""
    limits = (
        RootRequirement(
            requirement=Requirement(f"{c.name}=={c.version.public}"), origin=_ORIGIN, constraint=True, is_added=True
        )
        for c in stack
        if c.direct is None
    )
    return request.with_problem(request.problem.with_roots(limits))


class _JointTargets:
    """The problems of several targets as one problem, and its candidates."""

    def __init__(self, requests: Sequence[ResolutionRequest]) -> None:
        self._requests = requests
        self._costs = [CriterionCosts(request.score) for request in requests]
        self._originals: dict[str, Candidate] = {}
        roots = tuple(
            replace(root, requirement=_renamed(number, root.requirement))
            for number, request in enumerate(requests)
            for root in request.problem.roots
            if request.problem.applies(root.requirement)
        )
        self.problem = ResolutionProblem(roots=roots, target=requests[0].problem.target)

    @property
    def fetched(self) -> Collection[str]:
        """Addresses of the files whose metadata has been requested."""
        return {url for request in self._requests for url in request.source.fetched}

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package of one target, newest first."""
        number, original = _separated(name)
        return tuple(self._joint(number, c) for c in self._requests[number].source.candidates(original))

    def _joint(self, number: int, candidate: Candidate) -> Candidate:
        # Several targets may have the same file: its address identifies it in the search.
        file = replace(candidate.file, url=f"{number} {candidate.file.url}")
        self._originals[file.url] = candidate
        return replace(candidate, name=_name(number, candidate.name), file=file)

    def _original(self, candidate: Candidate) -> tuple[ResolutionRequest, Candidate]:
        number, _ = _separated(candidate.name)
        return self._requests[number], self._originals[candidate.file.url]

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return the dependencies of a candidate on its target, or the additional ones of an extra."""
        number, _ = _separated(candidate.name)
        request, original = self._original(candidate)
        dependencies = request.source.dependencies(original, extra)
        if dependencies is None:
            return None
        return tuple(
            Dependency(name=_name(number, d.name), requirement=_renamed(number, d.requirement)) for d in dependencies
        )

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        """Whether a candidate, whose dependencies with an extra were read, does not provide the extra."""
        request, original = self._original(candidate)
        return request.source.lacks_extra(original, extra)

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata has been read."""
        request, original = self._original(candidate)
        return request.source.is_known(original)

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        """Return the newer versions that requirements must exclude for a candidate to be chosen; usually none."""
        request, original = self._original(candidate)
        return request.source.failed_newer(original)

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Read the metadata of candidates, in one parallel batch for each target."""
        batches: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            batches.setdefault(_separated(candidate.name)[0], []).append(self._original(candidate)[1])
        for number, batch in batches.items():
            self._requests[number].source.fetch(batch)

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Start reading the pages of packages without waiting; the requirements are of no target."""
        for name in names:
            number, original = _separated(name)
            self._requests[number].source.prefetch([original])

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        """Start reading the metadata of candidates without waiting."""
        for candidate in candidates:
            request, original = self._original(candidate)
            request.source.prefetch_metadata([original])

    def joined(self, stacks: Sequence[Iterable[Candidate]]) -> list[Candidate]:
        """Return the stacks of all targets as one stack."""
        return [self._joint(number, candidate) for number, stack in enumerate(stacks) for candidate in stack]

    def separated(self, stack: Iterable[Candidate]) -> list[CandidateStack]:
        """Return the stack of each target, each sorted by name."""
        stacks: list[list[Candidate]] = [[] for _ in self._requests]
        for candidate in stack:
            number, _ = _separated(candidate.name)
            stacks[number].append(self._original(candidate)[1])
        return [CandidateStack(sorted(one)) for one in stacks]

    def objectives(self, candidates: Candidates) -> tuple[Objective, ...]:
        """Return the objectives of all targets, summed, with the number of different releases among them."""
        summed: dict[str, Objective] = {}
        for number, offered in enumerate(self._offered(candidates)):
            for objective in self._costs[number].objectives(offered):
                own, before = objective.renamed(partial(_name, number)), summed.get(objective.name)
                # Targets have different packages, so no cost is stated twice.
                summed[own.name] = (
                    own
                    if before is None
                    else replace(
                        own,
                        costs={**before.costs, **own.costs},
                        pairs={**before.pairs, **own.pairs},
                        together={**before.together, **own.together},
                        absent={**before.absent, **own.absent},
                    )
                )
        summed[DIFFERENT_VERSIONS] = Objective(name=DIFFERENT_VERSIONS, different=self._pairs(candidates))
        names = _criteria([request.score.objective for request in self._requests])
        return tuple(summed[name] for name in names if name in summed)

    def compared_beyond(self, stack: Iterable[Candidate]) -> list[NormalizedName]:
        """Return the packages that a stack lacks on a target, and whose absence may cost speed, sorted."""
        own = zip(self._costs, self.separated(stack), strict=True)
        return sorted(
            _name(number, name)
            for number, (costs, of_target) in enumerate(own)
            for name in costs.compared_beyond(of_target)
        )

    def without_uncounted_gains(self, stack: Iterable[Candidate]) -> _JointTargets | None:
        """Return the same targets, by which a stack has no gain of speed that does not count; `None` if it has none."""
        own = list(zip(self._requests, self.separated(stack), strict=True))
        corrected = [
            request.score.without_uncounted_gain(of_target) if request.score.includes_speed else None
            for request, of_target in own
        ]
        if not any(corrected):
            return None
        other = copy.copy(self)
        other._requests = [
            replace(request, score=score or request.score)
            for request, score in zip(self._requests, corrected, strict=True)
        ]
        other._costs = [CriterionCosts(request.score) for request in other._requests]
        return other

    def _pairs(self, candidates: Iterable[NormalizedName]) -> list[tuple[NormalizedName, NormalizedName]]:
        """Return the packages of two targets that are the same package."""
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
        """Return what is excluded on any of the targets."""
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
    """Return the name of a package for one target."""
    return NormalizedName(f"t{number}-{name}")


def _separated(name: NormalizedName) -> tuple[int, NormalizedName]:
    """Return the number of the target and the name of the package."""
    number, _, original = name.partition("-")
    return int(number[1:]), NormalizedName(original)


def _renamed(number: int, requirement: Requirement) -> Requirement:
    """Return a requirement on the package of one target, without its marker, which was evaluated for the target."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return Requirement(f"{_name(number, canonicalize_name(requirement.name))}{extras}{requirement.specifier}")
