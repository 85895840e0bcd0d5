"""Checks of the project's own requirements that need no search: each has a version that the target can install."""

from __future__ import annotations

from advisor.domain.requirement import RootRequirement
from advisor.resolve.baseline import NoStackError
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.problem import ResolutionProblem, admits, prefetch_roots


def without_versions(problem: ResolutionProblem, source: IndexCandidates) -> list[RootRequirement]:
    """Return the requirements of the project that admit no version of a package that it requires.

    These are single requirements or, if each of them admits a version, all requirements on the package.

    Args:
        problem: The problem.
        source: The candidates.
    """
    unsatisfied: list[RootRequirement] = []
    for name in sorted({r.name for r in problem.roots if not r.constraint and problem.applies(r.requirement)}):
        roots = problem.roots_of(name)
        versions = [candidate.version for candidate in source.candidates(name)]
        if any(all(admits(root.requirement, v) for root in roots) for v in versions):
            continue
        single = [root for root in roots if not any(admits(root.requirement, v) for v in versions)]
        unsatisfied += single or roots
    return unsatisfied


def check_roots(problem: ResolutionProblem, source: IndexCandidates) -> None:
    """Check that each package that the project requires has a version that the target can install.

    Raises:
        NoStackError: If one has none; the message contains the reason.
        UnavailableError: If an index cannot be read.
    """
    prefetch_roots(problem, source)
    for root in problem.roots:
        if root.constraint or not problem.applies(root.requirement):
            continue
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
