"""The choice of other packages or further extras for the hardware of a target, where a catalogue knows such."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.resolve.candidates.problem import AllowedReplacements, CandidateSource, ResolutionProblem, Substitution
from advisor.resolve.explanation.findings import AdviceFinding, untried_replacements_finding
from advisor.resolve.explanation.no_stack import error_about_size
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import Optimum
from advisor.resolve.recommendation.problem_variants import (
    ProblemVariant,
    Selection,
    VariantComparison,
    compare_variants,
)
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import StackScore
from knowledge.catalogue.builds import Replacement, shipped_builds
from knowledge.catalogue.entries import admits
from knowledge.domain.errors import InputError, suggest

_MOST_VARIANTS = 24
"""Number of combinations that are compared; beyond it, the last packages are left as they are required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One way to require a package: another one instead, or as it is; with what it costs by a criterion in a stack."""

    package: NormalizedName
    substitution: Substitution | None = None
    criterion: str = "build"
    cost: int = 0


def check_replacement(package: str, replacement: str) -> None:
    """Check that the catalogue knows that one package may replace another.

    Raises:
        InputError: If it does not.
    """
    replacements = {
        canonicalize_name(entry.replacement)
        for entry in shipped_builds()
        if isinstance(entry, Replacement) and canonicalize_name(entry.package) == canonicalize_name(package)
    }
    if canonicalize_name(replacement) not in replacements:
        raise InputError(
            f"`replace-packages`: the catalogue of builds does not know that `{replacement}` can replace `{package}`",
            hint=suggest(replacement, replacements)
            if replacements
            else "`override` replaces a requirement by any other one",
        )


def locked_replacements(
    builds: TargetBuilds, allowed: AllowedReplacements, locked: Container[NormalizedName]
) -> tuple[Substitution, ...]:
    """Return the allowed replacements that a lock has instead of other packages."""
    return tuple(
        _substitution(builds, entry)
        for entry in builds.replacements
        if allowed.admits(entry)
        and canonicalize_name(entry.replacement) in locked
        and canonicalize_name(entry.package) not in locked
    )


def locked_extras(
    problem: ResolutionProblem, source: CandidateSource, builds: TargetBuilds, locked: Mapping[str, Version]
) -> list[Substitution]:
    """Return the extras for the target's accelerator that a lock has."""
    substitutions: list[Substitution] = []
    for name, options in _all_extra_options(problem, builds).items():
        candidate = next((c for c in source.candidates(name) if c.version == locked.get(name)), None)
        if candidate is None:
            continue
        for option in options:
            if not admits(option.versions, candidate.version):
                continue
            extras = [source.dependencies(candidate, canonicalize_name(extra)) for extra in option.extras]
            required = {dependency.name for dependencies in extras for dependency in dependencies or ()}
            if required and all(other in locked for other in required):
                substitutions.append(option)
                break
    return substitutions


def with_best_packages(request: ResolutionRequest, allowed: AllowedReplacements) -> Selection:
    """Return the request with the packages and extras whose best stack has the best score.

    A package that uses no accelerator of the target counts as an idle build if an extra or an allowed replacement makes
    it use one. Of several extras, that with the newest runtime is preferred; they are chosen within one search. Each
    combination of replacements is a search of its own; a finding says if there are too many.
    """
    if not request.score.builds.has_extras and not (allowed.by_hardware or allowed.by_name):
        return Selection(request=request)
    considered = _packages_with_choices(request.source.loaded_packages, request, allowed)
    while True:
        choices, left_out = _compared_choices(request, considered, allowed)
        variants = [_variant(request, combination) for combination in itertools.product(*choices)]
        untried = math.prod(map(len, left_out.values())) * len(variants) - len(variants)
        comparison = compare_variants(variants, limit=request.effort.limit, direct=request.problem.direct_names)
        findings: tuple[AdviceFinding, ...] = ()
        if left_out:
            findings = (untried_replacements_finding(list(left_out), compared=len(variants), untried=untried),)
        every, missing = len(variants) + untried, comparison.undecided + untried
        not_compared = ""
        if missing and every > 1:
            not_compared = f"{missing} of {every} combinations of replacements were not compared"
        if not comparison.solved:
            best = _without_best(request, comparison, not_compared)
            return replace(best, findings=findings, not_compared=not_compared)
        solved = comparison.solved
        # The search reads what could be part of a better stack: a package that was not read is part of none.
        loaded = {name for variant in solved for name in variant.request.source.loaded_packages}
        fresh = _packages_with_choices(loaded, request, allowed) - considered
        if not fresh:
            best = replace(_with_chosen_extras(solved[0].request, solved[0].optimum), compared=frozenset(loaded))
            return replace(best, findings=findings, not_compared=not_compared)
        considered |= fresh


def _without_best(request: ResolutionRequest, comparison: VariantComparison, not_compared: str) -> Selection:
    """Return the request if no variant of it has a proven best stack."""
    if comparison.stopped:
        first = comparison.stopped[0]
        return Selection(request=first.request, optimum=first.optimum)
    if comparison.too_large:
        raise error_about_size(request, comparison.too_large, not_compared=not_compared)
    return Selection(request=request)


def _with_chosen_extras(request: ResolutionRequest, optimum: Optimum) -> Selection:
    """Return a request that requires the extras of its best stack, with this stack."""
    options = request.problem.extra_options
    substitutions = [options[name][place] for name, place in optimum.options.items()]
    # Other stacks, such as those without a requirement, are compared with it: they have the same extras and costs.
    costs = {"build": {name: place for name, place in optimum.options.items() if place}}
    costs["idle-builds"] = {c.name: 1 for c in optimum.stack if c.name in options and c.name not in optimum.options}
    plain = _with_extra_options(request, {})
    if substitutions:
        plain = plain.with_problem(plain.problem.with_substitutions(substitutions))
    request = replace(plain, score=_with_package_costs(plain.score, costs))
    return Selection(request=request, optimum=replace(optimum, options={}))


def _with_extra_options(
    request: ResolutionRequest, options: Mapping[NormalizedName, tuple[Substitution, ...]]
) -> ResolutionRequest:
    """Return the request with extras that packages may be required with in addition, and their costs."""
    score = replace(request.score, extra_options={name: len(several) for name, several in options.items()})
    return replace(request, problem=replace(request.problem, extra_options=options), score=score)


def _with_package_costs(score: StackScore, costs: Mapping[str, Mapping[NormalizedName, int]]) -> StackScore:
    before = score.package_costs
    merged = {name: {**before.get(name, {}), **costs.get(name, {})} for name in {*before, *costs}}
    return replace(score, package_costs=merged)


def has_package_choices(
    request: ResolutionRequest, names: Iterable[NormalizedName], allowed: AllowedReplacements
) -> bool:
    """Whether one of some packages could be replaced, or required with other extras, for the target."""
    return bool(_packages_with_choices(names, request, allowed))


def _packages_with_choices(
    names: Iterable[NormalizedName], request: ResolutionRequest, allowed: AllowedReplacements
) -> set[NormalizedName]:
    return {name for name in names if _choices(request, name, allowed)}


def _compared_choices(
    request: ResolutionRequest, names: Iterable[NormalizedName], allowed: AllowedReplacements
) -> tuple[list[list[_Choice]], dict[NormalizedName, list[_Choice]]]:
    """Return the choices whose combinations are compared, and those of packages that are left as required.

    Those that the user named come first, then those of other packages, by name.
    """
    choices: list[list[_Choice]] = []
    left_out: dict[NormalizedName, list[_Choice]] = {}
    for name in sorted(names, key=lambda name: (name not in allowed.by_name, name)):
        of_package = _choices(request, name, allowed)
        if math.prod(map(len, choices)) * len(of_package) <= _MOST_VARIANTS:
            choices.append(of_package)
        else:
            left_out[name] = of_package
    return choices, left_out


def _variant(request: ResolutionRequest, combination: Sequence[_Choice]) -> ProblemVariant:
    substitutions = tuple(choice.substitution for choice in combination if choice.substitution is not None)
    replaced = {s.replacement: s.package for s in substitutions if s.replacement != s.package}
    costs: dict[str, dict[NormalizedName, int]] = {}
    for choice in combination:
        name = choice.substitution.replacement if choice.substitution else choice.package
        costs.setdefault(choice.criterion, {})[name] = choice.cost

    def select() -> Selection:
        other = request
        if substitutions:
            other = request.with_problem(request.problem.with_substitutions(substitutions))
        other = _with_extra_options(other, _all_extra_options(other.problem, other.score.builds))
        direct = [new for new, package in replaced.items() if package in request.problem.direct_names]
        score = replace(_with_package_costs(other.score, costs), direct=other.score.direct.union(direct))
        return Selection(request=replace(other, score=score))

    return ProblemVariant(
        label=", ".join(map(str, substitutions)) or "the packages as they are required",
        select=select,
        replaced=replaced,
    )


def _choices(request: ResolutionRequest, name: NormalizedName, allowed: AllowedReplacements) -> list[_Choice]:
    """Return the ways to require a package, the preferred one first; empty if nothing may replace it."""
    replacements = [entry for entry in request.score.builds.replacements_of(name) if allowed.admits(entry)]
    if not replacements or name in request.problem.direct:
        return []
    # What fits any hardware is a matter of preference.
    serves_hardware = any(entry.when != "any" for entry in replacements)
    as_it_is = _Choice(package=name, criterion="idle-builds" if serves_hardware else "build", cost=1)
    return [
        *(_Choice(package=name, substitution=_substitution(request.score.builds, e)) for e in replacements),
        as_it_is,
    ]


def _all_extra_options(
    problem: ResolutionProblem, builds: TargetBuilds
) -> dict[NormalizedName, tuple[Substitution, ...]]:
    """Return the extras for the target's accelerator of the packages that the project names.

    Something else may need another package without an accelerator. If the project names extras of a package itself,
    there are no others.
    """
    if not builds.has_extras:
        return {}
    names = sorted({root.name for root in problem.roots if not root.constraint} - set(problem.direct))
    options = {
        name: tuple(
            Substitution(
                package=name,
                replacement=name,
                versions=extra.versions,
                extras=frozenset(extra.extras),
                source=extra.source,
            )
            for extra in builds.extras_of(name)
        )
        for name in names
        if not any(root.requirement.extras for root in problem.roots_of(name))
    }
    return {name: several for name, several in options.items() if several}


def _substitution(builds: TargetBuilds, entry: Replacement) -> Substitution:
    name = canonicalize_name(entry.package)
    return Substitution(
        package=name,
        replacement=canonicalize_name(entry.replacement),
        versions=entry.versions,
        dropped=builds.extra_names(name),
        source=entry.source,
    )
