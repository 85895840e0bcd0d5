"""Which requirements lead to the packages of a stack, and which of these packages take the place of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import (
    PROJECT,
    Candidate,
    CandidateSource,
    Dependency,
    Node,
    ResolutionProblem,
    walk,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedPackage:
    """A package that is required, and that another one in the stack takes the place of, as a source states."""

    name: NormalizedName
    replacement: NormalizedName
    by_project: bool
    required_by: tuple[NormalizedName, ...]
    source: str


def requirements_of_stack(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> Iterator[tuple[NormalizedName, Dependency]]:
    """Return each requirement of :data:`PROJECT` and of the packages of a stack, with what has the requirement.

    Of the extras of a package, those that something requires count.
    """
    candidates = {candidate.name: candidate for candidate in stack}

    def dependencies_of(node: Node) -> Iterable[Dependency]:
        name, extra = node
        return (source.dependencies(candidates[name], extra) or ()) if name in candidates else ()

    return walk(problem.required, dependencies_of)


def requirements_within(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> dict[NormalizedName, dict[NormalizedName, tuple[str, ...]]]:
    """Return the requirements of :data:`PROJECT` and of each package of a stack, by required package.

    A required package that is not in the stack is included, without requirements.
    """
    requirements: dict[NormalizedName, dict[NormalizedName, tuple[str, ...]]] = {PROJECT: {}}
    names: list[NormalizedName] = []
    for parent, dependency in requirements_of_stack(problem, source, stack):
        text = str(dependency.requirement).partition(";")[0].strip()
        required = requirements.setdefault(parent, {})
        required[dependency.name] = tuple(dict.fromkeys((*required.get(dependency.name, ()), text)))
        names.append(dependency.name)
    return requirements | {name: {} for name in names if name not in requirements}


def replaced_packages(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> tuple[ReplacedPackage, ...]:
    """Return the required packages that others in a stack take the place of, by name."""
    if all(s.replacement == s.package for s in problem.substitutions.values()):
        return ()
    requirers: dict[tuple[NormalizedName, NormalizedName], set[NormalizedName]] = {}
    for parent, dependency in requirements_of_stack(problem, source, stack):
        if dependency.instead_of is not None:
            requirers.setdefault((dependency.instead_of, dependency.name), set()).add(parent)
    return tuple(
        ReplacedPackage(
            name=name,
            replacement=replacement,
            by_project=PROJECT in parents,
            required_by=tuple(sorted(parents - {PROJECT})),
            source=problem.substitutions[name].source,
        )
        for (name, replacement), parents in sorted(requirers.items())
    )


def replaced_by_replacement(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> dict[NormalizedName, list[NormalizedName]]:
    """Return the required packages that each package of a stack takes the place of."""
    names: dict[NormalizedName, list[NormalizedName]] = {}
    for replaced in replaced_packages(problem, source, stack):
        names.setdefault(replaced.replacement, []).append(replaced.name)
    return names
