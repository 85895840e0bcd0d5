"""The problem of a project as the gate reads it: without its own pins, with readable packages from other places."""

from __future__ import annotations

import logging
from dataclasses import replace

from packaging.requirements import Requirement

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.index.client import IndexClient
from advisor.locks.lock import Lock
from advisor.resolve.candidates.direct import with_direct_packages
from advisor.resolve.candidates.problem import ResolutionProblem
from knowledge.domain.errors import AdvisorError

logger = logging.getLogger(__name__)


def with_readable_packages(problem: ResolutionProblem, client: IndexClient) -> ResolutionProblem:
    """Return the problem with the packages that come from no index and can be read; a warning names the others.

    Raises:
        InputError: If a package has another name than required.
        UnsatisfiableError: If a package comes from two places.
    """

    def skip(error: AdvisorError) -> None:
        logger.warning("what a package from another place than an index requires is not checked: %s", error.message)

    return with_direct_packages(problem, client, skip=skip)


def references_of(problem: ResolutionProblem) -> tuple[DirectReference, ...]:
    """Return where the packages of a project come from, other than indexes."""
    required = [root.direct for root in (*problem.roots, *problem.overrides) if root.direct is not None]
    further = [package.candidate.direct for package in problem.direct.values() if package.candidate.direct is not None]
    return tuple(dict.fromkeys([*required, *further]))


def without_pins(problem: ResolutionProblem, lock: Lock) -> ResolutionProblem:
    """Return a problem without its pins, if the lock is the project's own pinned requirements file.

    A pin in such a file is the locked version, not a requirement.
    """
    if not lock.is_project:
        return problem
    return replace(problem, roots=tuple(map(_unpinned, problem.roots)))


def _unpinned(root: RootRequirement) -> RootRequirement:
    if root.constraint or not any(s.operator in ("==", "===") for s in root.requirement.specifier):
        return root
    free = Requirement(str(root.requirement))
    free.specifier = type(free.specifier)()
    return replace(root, requirement=free, hashes=frozenset())
