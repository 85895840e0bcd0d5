"""The best of several variants of a problem: other packages or extras for the target, or another interpreter.

A variant differs in something that is not a version, so that each has its own candidates. Each is solved exactly, and
the variants are compared by one score: the value of each criterion, plus what the variant itself costs by it. These
additions do not depend on the chosen versions, so the best of the best stacks is the best of all stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import NormalizedName

from advisor.domain.progress import progress
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.baseline import NoStackError
from advisor.resolve.freshness import hours_behind
from advisor.resolve.objectives import CRITERIA
from advisor.resolve.optimum import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.problem import Candidate
from advisor.resolve.request import ResolutionRequest
from knowledge.domain.errors import UnavailableError


@dataclass(frozen=True, kw_only=True)
class ProblemVariant:
    """One way to state a problem.

    Attributes:
        label: What it is, for people.
        make_request: Returns its request.
        costs: What the variant itself costs, by criterion.
        replaced: Packages that others take the place of, by those.
    """

    label: str
    make_request: Callable[[], ResolutionRequest]
    costs: Mapping[str, int] = field(default_factory=dict)
    replaced: Mapping[NormalizedName, NormalizedName] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SolvedVariant:
    """A variant with its best stack.

    Attributes:
        variant: The variant.
        request: Its request, with the baseline of the reference.
        optimum: Its best stack.
        score: The value of each criterion, with what the variant itself costs.
    """

    variant: ProblemVariant
    request: ResolutionRequest
    optimum: Optimum
    score: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class VariantComparison:
    """The variants of a problem.

    Attributes:
        solved: Those with a stack, the best first; of equal ones, the one that was named first.
        obstacles: Why each of the others has none, by its label.
        stopped: Those whose search ended before the proof, in the order in which they were named.
        too_large: The smallest stack of each of those that exceed the limit of the download.
        undecided: Number of those that may have a better stack: their search ended before the proof.
    """

    solved: tuple[SolvedVariant, ...]
    obstacles: Mapping[str, str]
    stopped: tuple[SolvedVariant, ...] = ()
    too_large: tuple[Optimum, ...] = ()
    undecided: int = 0


def compare_variants(
    variants: Sequence[ProblemVariant],
    *,
    baseline: Sequence[Candidate],
    limit: TimeLimit,
    direct: Iterable[NormalizedName],
) -> VariantComparison:
    """Solve the variants of a problem, and sort them by their score.

    Args:
        variants: The variants.
        baseline: The stack that speed is compared with, in all of them.
        limit: Time limit of the searches.
        direct: Packages that the project's own requirements name, before any of them is replaced.

    Raises:
        KeyboardInterrupt: If the user interrupts the search before a stack is found.
        UnavailableError: If an index cannot be read, and there is no stack without it.
    """
    solved: list[tuple[ProblemVariant, ResolutionRequest, Optimum]] = []
    obstacles: dict[str, str] = {}
    stopped: list[SolvedVariant] = []
    too_large: list[Optimum] = []
    undecided = 0
    failure: UnavailableError | None = None
    for variant in variants:
        if limit.is_over:
            obstacles[variant.label] = f"not considered: {limit.reason}"
            undecided += 1
            continue
        progress("searching for the best stack with %s", variant.label)
        try:
            request = variant.make_request().compared_with(baseline)
            optimum = request.best()
            if request.effort.limit.interrupted:
                limit.interrupt()
        except KeyboardInterrupt:
            if not limit.keeps_result:
                raise
            limit.interrupt()
            obstacles[variant.label] = f"not considered: {limit.reason}"
            undecided += 1
        except StackTooLargeError as error:
            obstacles[variant.label] = error.message
            too_large.append(error.smallest)
        except InfeasibleError as error:
            obstacles[variant.label] = error.message
        except SearchLimitError as error:
            obstacles[variant.label] = f"not considered: {error.message}"
            undecided += 1
        except UnavailableError as error:
            obstacles[variant.label] = error.message
            undecided += 1
            failure = failure or error
        except NoStackError as error:
            obstacles[variant.label] = error.message
        else:
            if optimum.stopped:
                obstacles[variant.label] = f"not considered: {optimum.stopped}"
                undecided += 1
                stopped.append(SolvedVariant(variant=variant, request=request, optimum=optimum, score={}))
            else:
                solved.append((variant, request, optimum))
                undecided += bool(request.not_compared)
    if not solved and not stopped:
        if limit.interrupted:
            raise KeyboardInterrupt
        if failure is not None:
            raise failure
    own = [(variant, request) for variant, request, _ in solved]
    additions = _additions(own, sorted(direct))
    results = [
        SolvedVariant(variant=variant, request=request, optimum=optimum, score=_score(request, optimum, added))
        for (variant, request, optimum), added in zip(solved, additions, strict=True)
    ]
    results.sort(key=lambda result: tuple(result.score.values()))
    return VariantComparison(
        solved=tuple(results),
        obstacles=obstacles,
        stopped=tuple(stopped),
        too_large=tuple(too_large),
        undecided=undecided,
    )


def _score(request: ResolutionRequest, optimum: Optimum, additions: Mapping[str, int]) -> dict[str, int]:
    values = {bound.objective: bound.value for bound in optimum.bounds}
    return {name: values.get(name, 0) + additions.get(name, 0) for name in CRITERIA[request.objective]}


def _additions(
    variants: Sequence[tuple[ProblemVariant, ResolutionRequest]], direct: Sequence[NormalizedName]
) -> list[dict[str, int]]:
    """Return what each variant costs by each criterion, whatever versions are chosen.

    Costs of a version are distances from the best candidate of the variant; the additions are the distances of that
    candidate from the best one of all variants.
    """
    additions = [dict(variant.costs) for variant, _ in variants]
    for name in direct:
        names = [
            next((other for other, replaced in variant.replaced.items() if replaced == name), name)
            for variant, _ in variants
        ]
        offered = [request.source.candidates(own) for own, (_, request) in zip(names, variants, strict=True)]
        by_version = {c.version: c for candidates in offered for c in candidates}
        behind = hours_behind([by_version[version] for version in sorted(by_version, reverse=True)])
        for added, candidates in zip(additions, offered, strict=True):
            if candidates:
                hours = behind[candidates[0].version]
                added["freshness-direct"] = added.get("freshness-direct", 0) + hours
                added["freshness"] = added.get("freshness", 0) + hours
        only_prereleases = [bool(own) and all(c.version.is_prerelease for c in own) for own in offered]
        for added, is_prerelease in zip(additions, only_prereleases, strict=True):
            # Only a project that names a pre-release wants one: a variant without a final release is discouraged.
            if is_prerelease and not all(only_prereleases):
                added["rules"] = added.get("rules", 0) + 1
        idle = [request.builds.all_idle(candidates) for candidates, (_, request) in zip(offered, variants, strict=True)]
        for added, is_idle in zip(additions, idle, strict=True):
            if is_idle and not all(idle):
                added["idle-builds"] = added.get("idle-builds", 0) + 1
    gains = [request.criteria.best_speed_steps() for _, request in variants]
    for framework in {name for of_variant in gains for name in of_variant}:
        best = max(of_variant.get(framework, 0) for of_variant in gains)
        for added, of_variant in zip(additions, gains, strict=True):
            added["speed"] = added.get("speed", 0) + best - of_variant.get(framework, 0)
    return additions
