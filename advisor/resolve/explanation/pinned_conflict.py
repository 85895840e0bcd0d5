"""Conflicts that are visible without a search: of requirements that admit one version each.

Most conflicts of real projects are of this kind, because `pip freeze` and conda environments pin every package.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.candidates.problem import Candidate, CandidateSource, ResolutionProblem, admits
from advisor.resolve.explanation.conflict import Conflict

_MOST_DEMANDS = 200
"""Maximum number of requirements on one package that are compared in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """A requirement that holds in every stack with a requirement of the project.

    Attributes:
        requirement: The requirement.
        root: The requirement of the project.
        parent: The package that requires it; `None` if the project does.
    """

    requirement: Requirement
    root: RootRequirement
    parent: NormalizedName | None

    def admits(self, version: Version) -> bool:
        return admits(self.requirement, version)


def find_pinned_conflict(problem: ResolutionProblem, source: CandidateSource) -> Conflict | None:
    """Return a conflict of at most two requirements of the project that admit only one version each.

    They conflict with each other, or the two versions need different versions of a third package.

    Returns:
        The conflict; `None` if there is none of this kind, although there may be others.
    """
    demands: dict[NormalizedName, list[_Demand]] = {}
    pinned: list[tuple[RootRequirement, Candidate]] = []
    for name in sorted({root.name for root in problem.required}):
        for root in problem.roots_of(name):
            demands.setdefault(root.name, []).append(_Demand(requirement=root.requirement, root=root, parent=None))
            admitted = [c for c in source.candidates(name) if admits(root.requirement, c.version)]
            if len(admitted) == 1:
                pinned.append((root, admitted[0]))
    source.fetch(candidate for _, candidate in pinned)
    for root, candidate in pinned:
        for extra in (None, *sorted(root.requirement.extras)):
            for dependency in source.dependencies(candidate, NormalizedName(extra) if extra else None) or ():
                demand = _Demand(requirement=dependency.requirement, root=root, parent=candidate.name)
                demands.setdefault(dependency.name, []).append(demand)
    source.prefetch(sorted(demands))
    conflicts = [
        conflict for name in sorted(demands) if (conflict := _conflict_on(name, demands[name], source)) is not None
    ]
    return min(conflicts, key=lambda conflict: len(conflict.roots), default=None)


def _conflict_on(name: NormalizedName, demands: Sequence[_Demand], source: CandidateSource) -> Conflict | None:
    """Return the smallest conflict of at most two requirements on one package; `None` if there is none."""
    versions = [candidate.version for candidate in source.candidates(name)]
    if any(all(demand.admits(version) for demand in demands) for version in versions):
        return None
    for size in (1, 2):
        for some in itertools.combinations(demands[:_MOST_DEMANDS], size):
            if not any(all(demand.admits(version) for demand in some) for version in versions):
                roots = tuple(dict.fromkeys(demand.root for demand in some))
                relations = sorted({(demand.parent, name) for demand in some if demand.parent is not None})
                return Conflict(roots=roots, relations=tuple(relations), rules=())
    return None
