"""Equal versions in the stacks of several targets, for one lock, where that costs neither speed nor safety."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError
from advisor.resolve.score.costs import Bound

_ORIGIN = "shared with the other targets of the lock"
_FRESHNESS = ("freshness-direct", "freshness")


def share_versions(
    solved: Mapping[str, tuple[ResolutionRequest, Optimum]], *, limit: TimeLimit
) -> dict[str, ResolutionRequest]:
    """Return requests with more requirements, such that their best stacks have as many versions in common as possible.

    A version is shared if each target has a stack with it that is as good by every criterion except freshness. Packages
    are tried one after the other, by name, and of each the newest versions first. Targets with different interpreters
    keep their own versions: an old interpreter must not hold back the others.

    Args:
        solved: Request and best stack of each target.
        limit: Time limit; versions that were not tried until then are not shared.

    Returns:
        The request of each target, unchanged if it shares nothing more than before.
    """
    requests = {name: request for name, (request, _) in solved.items()}
    optima = {name: optimum for name, (_, optimum) in solved.items()}
    groups: dict[str, list[str]] = {}
    for name, request in requests.items():
        groups.setdefault(request.problem.target.python_minor, []).append(name)
    for group in groups.values():
        for package in sorted({c.name for name in group for c in optima[name].stack}):
            for version in _different_versions(package, [optima[name] for name in group]):
                if limit.is_over:
                    return requests
                if (shared := _with_version(package, version, {n: (requests[n], optima[n]) for n in group})) is None:
                    continue
                requests |= {name: request for name, (request, _) in shared.items()}
                optima |= {name: optimum for name, (_, optimum) in shared.items()}
                break
    return requests


def _different_versions(package: NormalizedName, optima: list[Optimum]) -> list[Version]:
    """Return the versions of a package in some stacks, newest first; none if they are equal or of no index."""
    candidates = [c for optimum in optima for c in optimum.stack if c.name == package]
    versions = {c.version for c in candidates}
    if len(versions) < 2 or any(c.direct is not None for c in candidates):
        return []
    return sorted(versions, reverse=True)


def _with_version(
    package: NormalizedName, version: Version, solved: Mapping[str, tuple[ResolutionRequest, Optimum]]
) -> dict[str, tuple[ResolutionRequest, Optimum]] | None:
    """Return requests and best stacks with a version of a package wherever it is needed; none if one gets worse."""
    limited = RootRequirement(requirement=Requirement(f"{package}==={version}"), origin=_ORIGIN, constraint=True)
    shared: dict[str, tuple[ResolutionRequest, Optimum]] = {}
    for name, (request, optimum) in solved.items():
        if all(c.version == version for c in optimum.stack if c.name == package):
            shared[name] = (request, optimum)
            continue
        own = request.over(optimum.newest)
        other = own.with_problem(replace(request.problem, roots=(*request.problem.roots, limited)))
        try:
            best = other.with_own_baseline().best()
        except (NoStackError, InfeasibleError, SearchLimitError):
            return None
        if best.stopped or not _is_as_good(best.bounds, optimum.bounds):
            return None
        shared[name] = (other, best)
    return shared


def _is_as_good(bounds: tuple[Bound, ...], before: tuple[Bound, ...]) -> bool:
    return all(
        bound.value <= earlier.value
        for bound, earlier in zip(bounds, before, strict=True)
        if bound.objective not in _FRESHNESS
    )
