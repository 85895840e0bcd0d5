"""Small random resolution problems whose every stack can be listed, to compare answers with brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import (
    NO_PACKAGES,
    Candidate,
    CandidatePolicy,
    CandidateStack,
    ResolutionProblem,
)
from advisor.resolve.optimum.encode import INITIAL_EXPLICIT
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import InfeasibleError, Optimum
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.costs import Candidates, Limits, Objective
from advisor.resolve.score.criteria import ObjectiveName, StackScore, hours_behind
from advisor.resolve.score.criterion_costs import CriterionCosts
from knowledge.estimate.interface import Estimator
from tests.advisor.factories import build_problem, score_of
from tests.advisor.fixed_candidates import FixedCandidates

NAMES = ("a", "b", "c", "d")
EXTRA = canonicalize_name("x")
NEWEST = 6


@dataclass(frozen=True)
class VersionSet:
    """The versions of a package that a requirement admits, and whether it requires the extra."""

    admitted: frozenset[int]
    extra: bool = False


Requirements = dict[str, VersionSet]
Releases = dict[str, dict[int, tuple[Requirements, Requirements]]]
"""Requirements, and further requirements of the extra, by package and version."""

Stack = dict[str, int]


class ReleaseSource(FixedCandidates):
    """Candidates of a dictionary of releases."""

    def __init__(self, releases: Releases) -> None:
        super().__init__()
        self._releases = releases

    def for_problem(self, problem: ResolutionProblem) -> ReleaseSource:
        return ReleaseSource(self._releases)

    def versions_of(self, name: NormalizedName) -> Iterable[Version]:
        return (Version(str(v)) for v in self._releases.get(name, {}))

    def requirements_of(self, candidate: Candidate, extra: NormalizedName | None) -> Iterable[Requirement]:
        required = self._releases[candidate.name][candidate.version.major][1 if extra == EXTRA else 0]
        return (requirement(name, version_set) for name, version_set in sorted(required.items()))


def requirement(name: str, version_set: VersionSet) -> Requirement:
    excluded = "".join(f",!={v}" for v in range(1, NEWEST + 1) if v not in version_set.admitted)
    return Requirement(f"{name}{'[x]' if version_set.extra else ''}>=0{excluded}")


def stacks(releases: Releases, roots: Mapping[str, VersionSet]) -> Iterator[Stack]:
    """Yield every stack that satisfies the roots and contains only required packages."""
    for choice in itertools.product(*([None, *releases[name]] for name in NAMES)):
        stack = {name: v for name, v in zip(NAMES, choice, strict=True) if v is not None}
        visited: set[tuple[str, bool]] = set()
        queue = list(roots.items())
        fits = True
        while queue and fits:
            name, version_set = queue.pop()
            fits = stack.get(name) in version_set.admitted
            for extra in (False, True)[: 1 + version_set.extra] if fits else ():
                if (name, extra) not in visited:
                    visited.add((name, extra))
                    queue += releases[name][stack[name]][extra].items()
        if fits and {name for name, _ in visited} == set(stack):
            yield stack


versions = st.integers(1, NEWEST)
version_sets = st.builds(VersionSet, st.frozensets(versions, min_size=1), st.booleans())
requirements = st.dictionaries(st.sampled_from(NAMES), version_sets, max_size=2)
extra_requirements = st.dictionaries(st.sampled_from(NAMES), version_sets, max_size=1)
packages = st.dictionaries(versions, st.tuples(requirements, extra_requirements), min_size=1, max_size=5)
problems = st.fixed_dictionaries(dict.fromkeys(NAMES, packages))
some_roots = st.dictionaries(st.sampled_from(NAMES[:3]), version_sets, min_size=1)

few_versions = st.integers(1, 4)
# Most releases require nothing, so that most problems have many stacks.
wide = st.builds(VersionSet, st.frozensets(few_versions, min_size=2).map(frozenset))
needs: st.SearchStrategy[Requirements] = st.just({}) | st.dictionaries(st.sampled_from("abcd"), wide, max_size=1)
releases_of_one: st.SearchStrategy[dict[int, tuple[Requirements, Requirements]]] = st.dictionaries(
    few_versions, st.tuples(needs, st.just({})), min_size=2, max_size=4
)
many_stacks = st.fixed_dictionaries(dict.fromkeys("abcd", releases_of_one))
any_version = VersionSet(frozenset(range(1, 5)))
roots_with_a = st.sets(st.sampled_from("bcd")).map(lambda names: dict.fromkeys(["a", *sorted(names)], any_version))


def problem(roots: Mapping[str, VersionSet]) -> ResolutionProblem:
    return build_problem(*(str(requirement(name, version_set)) for name, version_set in sorted(roots.items())))


def plain(optimum: Optimum) -> Stack:
    return {str(c.name): c.version.major for c in optimum.stack}


def newest_first(stack: Stack) -> tuple[int, ...]:
    """Return a rank that prefers absent packages, then newer versions, in the order of names."""
    return tuple(-stack.get(name, NEWEST + 1) for name in NAMES)


def criteria_for(
    roots: Mapping[str, VersionSet],
    source: FixedCandidates,
    estimator: Estimator,
    objective: ObjectiveName = "performance",
    *,
    builds: TargetBuilds | None = None,
    baseline: CandidateStack = NO_PACKAGES,
    policy: CandidatePolicy | None = None,
) -> StackScore:
    """Create the score of a problem, by default on a machine without rules."""
    score = score_of(problem(roots), source, objective, builds=builds, estimator=estimator)
    return replace(score, baseline=baseline, policy=policy or CandidatePolicy())


@dataclass(frozen=True)
class FixedCosts:
    """Objectives and limits that a test states.

    Attributes:
        objectives: Returns the objectives for the packages loaded so far.
        limits: Returns what is excluded.
        rewarded: Packages that may have negative costs.
    """

    objectives: Callable[[Candidates], Sequence[Objective]]
    limits: Callable[[Candidates], Limits] = lambda _: Limits(forbidden={})
    rewarded: tuple[NormalizedName, ...] = ()

    def compared_beyond(self, stack: object) -> tuple[NormalizedName, ...]:
        """Return the packages that may have negative costs."""
        return self.rewarded


def request_of(roots: Mapping[str, VersionSet], source: FixedCandidates, score: StackScore) -> ResolutionRequest:
    """Create the request for the best stack of a problem."""
    return ResolutionRequest(
        problem=problem(roots),
        score=replace(score, source=cast(IndexCandidates, source)),
        effort=Effort(),
    )


def solve_problem(
    roots: Mapping[str, VersionSet], source: FixedCandidates, score: StackScore, explicit: int = INITIAL_EXPLICIT
) -> Optimum | None:
    """Return the optimum; none if there is no stack."""
    try:
        return optimise(problem(roots), source, CriterionCosts(score), start=(), explicit=explicit)
    except InfeasibleError:
        return None


def over_newest(
    score: StackScore, releases: Releases, roots: Mapping[str, VersionSet], source: FixedCandidates
) -> tuple[StackScore, Stack]:
    """Return a score that compares speed with the newest stack, and this stack; it is empty if there is none."""
    newest = min(stacks(releases, roots), key=Ages(roots, source).rank, default={})
    names = [canonicalize_name(name) for name in newest]
    reference = CandidateStack(c for n in names for c in source.candidates(n) if c.version.major == newest[n])
    return replace(score, reference=reference), newest


class Ages:
    """How old the stacks of a problem are."""

    def __init__(self, roots: Mapping[str, VersionSet], source: FixedCandidates) -> None:
        self._roots = tuple(roots)
        names = map(canonicalize_name, NAMES)
        self._hours = {name: hours_behind(source.candidates(name)) for name in names}

    def hours(self, stack: Stack) -> tuple[int, int]:
        """Return how far the packages of the project, and all packages, are behind the newest."""

        def behind(names: Iterable[str]) -> int:
            return sum(self._hours[canonicalize_name(name)][Version(str(stack[name]))] for name in names)

        return behind([name for name in self._roots if name in stack]), behind(stack)

    def rank(self, stack: Stack) -> tuple[object, ...]:
        """Return a rank that prefers the newest stack."""
        return *self.hours(stack), newest_first(stack)
