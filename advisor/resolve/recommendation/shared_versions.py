"""Equal versions in the stacks of several targets, for one lock, where that costs neither speed nor safety."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import CandidateStack, NoStackError
from advisor.resolve.explanation.prices import with_own_baseline
from advisor.resolve.optimum.request import ResolutionRequest, Solved, solve
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
from advisor.resolve.score.costs import Bound

_ORIGIN = "shared with the other targets of the lock"
_FRESHNESS = ("freshness-direct", "freshness")


def share_versions(solved: Mapping[str, Solved], *, limit: TimeLimit) -> dict[str, ResolutionRequest]:
    """Return requests with more requirements, such that their best stacks have as many versions in common as possible.

    A version is shared if each target has a stack with it that is as good by every criterion except freshness. Packages
    are tried one after the other, by name, and of each the newest versions first. Targets with different interpreters
    keep their own versions: an old interpreter must not hold back the others.

    Args:
        solved: The best stack of each target.
        limit: Time limit; versions that were not tried until then are not shared.

    Returns:
        The request of each target, unchanged if it shares nothing more than before.
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
    limited = RootRequirement(requirement=Requirement(f"{package}==={version}"), origin=_ORIGIN, constraint=True)
    shared: dict[str, Solved] = {}
    for target, own in solved.items():
        request, optimum = own.request, own.optimum
        if all(c.version == version for c in optimum.stack if c.name == package):
            shared[target] = own
            continue
        request = replace(request, score=replace(request.score, reference=optimum.newest))
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
