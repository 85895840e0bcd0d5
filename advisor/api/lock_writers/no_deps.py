"""Whether pip installs a requirements file of a stack only without looking at dependencies."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.resolve.candidates.problem import Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.explanation.stack_requirements import replaced_packages


def no_deps_reasons(problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]) -> tuple[str, ...]:
    """Return why pip needs `--no-deps` for a requirements file of a stack; empty if it does not need it.

    pip requires what the metadata of the packages require, and does not know what takes its place in the stack.

    Args:
        problem: What was resolved.
        source: The candidates.
        stack: The packages.

    Returns:
        One text for each package that a package of the stack requires and another one takes the place of.
    """
    return tuple(
        f"{', '.join(replaced.required_by)} {'requires' if len(replaced.required_by) == 1 else 'require'} "
        f"{replaced.name}, which {replaced.replacement} replaces"
        for replaced in replaced_packages(problem, source, stack)
        if replaced.required_by
    )
