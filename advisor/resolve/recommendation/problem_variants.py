"""The best of several variants of a problem: other packages or extras for the target, or another interpreter.

A variant differs in something that is not a version, so that each has its own candidates. Each is solved exactly, and
the variants are compared by one score: the value of each criterion, plus what the variant itself costs by it. These
additions do not depend on the chosen versions, so the best of the best stacks is the best of all stacks.

One addition does: an sdist whose build was not tried is no violated rule in the stack of a plain resolver, because a
variant may have no other; but it counts as one against the best stacks of other variants, which may have wheels.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from packaging.utils import NormalizedName

from advisor.domain.progress import progress
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.candidates.problem import Candidate, CandidateStack, NoStackError
from advisor.resolve.explanation.findings import AdviceFinding
from advisor.resolve.optimum.request import ResolutionRequest, Solved, solve, solve_newest
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.score.criteria import CRITERIA, hours_behind, untried_sdists
from knowledge.domain.errors import UnavailableError


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A request, and how it was selected among several ways to state a problem.

    Attributes:
        request: The request.
        optimum: Its best stack, if the comparison found it; else `None`.
        compared: Packages that were read to compare it with other requests.
        findings: Findings about the comparison.
        not_compared: Which other requests were not compared with it; empty if all were.
        is_verified: Whether the independent resolver has accepted this stack for another target.
    """

    request: ResolutionRequest
    optimum: Optimum | None = None
    compared: frozenset[NormalizedName] = frozenset()
    findings: tuple[AdviceFinding, ...] = ()
    not_compared: str = ""
    is_verified: bool = False

    @property
    def loaded_packages(self) -> frozenset[NormalizedName]:
        """Packages whose index pages were read to find its best stack."""
        return self.compared.union(self.request.source.loaded_packages)

    def solve(self) -> Solved:
        """Return the best stack; see :func:`advisor.resolve.optimum.request.solve`."""
        return Solved(request=self.request, optimum=self.optimum or solve(self.request))


@dataclass(frozen=True, kw_only=True)
class ProblemVariant:
    """One way to state a problem.

    Attributes:
        label: What it is, for people.
        select: Returns its request.
        costs: What the variant itself costs, by criterion.
        replaced: Packages that others take the place of, by those.
    """

    label: str
    select: Callable[[], Selection]
    costs: Mapping[str, int] = field(default_factory=dict)
    replaced: Mapping[NormalizedName, NormalizedName] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SolvedVariant:
    """A variant with its best stack; the selection has the baseline of the reference.

    The score has the value of each criterion, with what the variant itself costs; empty until variants are compared.
    """

    variant: ProblemVariant
    selection: Selection
    optimum: Optimum
    score: Mapping[str, int] = field(default_factory=dict)

    @property
    def request(self) -> ResolutionRequest:
        """Its request."""
        return self.selection.request

    @property
    def untried_sdists(self) -> tuple[Candidate, ...]:
        """Packages of its best stack that are sdists whose build was not tried."""
        return untried_sdists(self.optimum.stack, self.request.problem.policy)


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
    variants: Sequence[ProblemVariant], *, limit: TimeLimit, direct: Iterable[NormalizedName]
) -> VariantComparison:
    """Solve the variants of a problem, and sort them by their score.

    Speed is compared with one stack for all of them: the newest that runs on the target in any variant. `direct` are
    the packages that the project's own requirements name, before any of them is replaced.

    Raises:
        KeyboardInterrupt: If the user interrupts the search before a stack is found.
        UnavailableError: If an index cannot be read, and there is no stack without it.
    """
    attempts = _Attempts(limit)
    is_single = len(variants) == 1
    solved: list[SolvedVariant] = []
    for variant in variants:
        if limit.is_over:
            attempts.leave_out(variant, f"not considered: {limit.reason}")
        else:
            solved += attempts.solve(variant, partial(_solve_first, variant, with_speed=is_single))
    names = sorted(direct)
    reference: CandidateStack | None = None
    if solved and not is_single:
        reference = _sorted(solved, names)[0].optimum.stack
        newest, solved = solved, []
        for one in newest:
            solved += attempts.solve(one.variant, partial(_solve_again, one, reference))
    attempts.check(solved)
    return VariantComparison(
        solved=tuple(_sorted(solved, names, reference)),
        obstacles=attempts.obstacles,
        stopped=tuple(attempts.stopped),
        too_large=tuple(attempts.too_large),
        undecided=attempts.undecided + sum(bool(one.selection.not_compared) for one in solved),
    )


def _solve_first(variant: ProblemVariant, *, with_speed: bool) -> SolvedVariant:
    selection = variant.select()
    optimum = selection.solve().optimum if with_speed else solve_newest(selection.request)
    return SolvedVariant(variant=variant, selection=selection, optimum=optimum)


def _solve_again(newest: SolvedVariant, reference: CandidateStack) -> SolvedVariant:
    """Return the best stack of a variant whose newest stack is known, compared with one stack for all variants."""
    request = newest.request.with_score(reference=reference)
    selection = replace(newest.selection, request=request, optimum=None)
    return replace(newest, selection=selection, optimum=solve(request, newest.optimum))


class _Attempts:
    """Solves variants one after the other, and collects why some have no proven best stack."""

    def __init__(self, limit: TimeLimit) -> None:
        self.obstacles: dict[str, str] = {}
        self.stopped: list[SolvedVariant] = []
        self.too_large: list[Optimum] = []
        self.undecided = 0
        self._limit = limit
        self._failure: UnavailableError | None = None

    def solve(self, variant: ProblemVariant, solve: Callable[[], SolvedVariant]) -> tuple[SolvedVariant, ...]:
        """Return a variant with its request and best stack, or nothing if it has none."""
        limit = self._limit
        progress("searching for the best stack with %s", variant.label)
        try:
            solved = solve()
            if solved.request.effort.limit.interrupted:
                limit.interrupt()
        except KeyboardInterrupt:
            if not limit.keeps_result:
                raise
            limit.interrupt()
            return self.leave_out(variant, f"not considered: {limit.reason}")
        except StackTooLargeError as error:
            self.obstacles[variant.label] = error.message
            self.too_large.append(error.smallest)
            return ()
        except (InfeasibleError, NoStackError) as error:
            self.obstacles[variant.label] = error.message
            return ()
        except SearchLimitError as error:
            return self.leave_out(variant, f"not considered: {error.message}")
        except UnavailableError as error:
            self._failure = self._failure or error
            return self.leave_out(variant, error.message)
        if solved.optimum.stopped:
            self.stopped.append(solved)
            return self.leave_out(variant, f"not considered: {solved.optimum.stopped}")
        return (solved,)

    def leave_out(self, variant: ProblemVariant, reason: str) -> tuple[SolvedVariant, ...]:
        """Note why a variant is not considered; return nothing."""
        self.obstacles[variant.label] = reason
        self.undecided += 1
        return ()

    def check(self, solved: Sequence[SolvedVariant]) -> None:
        """Raise the error that explains why no variant has a stack, unless each has its reason."""
        if solved or self.stopped:
            return
        if self._limit.interrupted:
            raise KeyboardInterrupt
        if self._failure is not None:
            raise self._failure


def _sorted(
    solved: Sequence[SolvedVariant], direct: Sequence[NormalizedName], reference: CandidateStack | None = None
) -> list[SolvedVariant]:
    """Return solved variants, the best first; without a reference, speed is not compared."""
    additions = _additions(solved, direct)
    if reference:
        _add_speed(additions, solved, reference)
    results = [replace(one, score=_score(one, added)) for one, added in zip(solved, additions, strict=True)]
    return sorted(results, key=lambda result: tuple(result.score.values()))


def _add_speed(additions: Sequence[Counter[str]], solved: Sequence[SolvedVariant], reference: CandidateStack) -> None:
    """Add the distance of the fastest candidate of each framework of a variant from the fastest one of all variants."""
    scores = [replace(one.request.score, reference=reference) for one in solved]
    gains = [
        score.best_speed_steps(one.optimum.stack) if score.includes_speed else {}
        for one, score in zip(solved, scores, strict=True)
    ]
    for framework in {name for of_variant in gains for name in of_variant}:
        best = max(of_variant.get(framework, 0) for of_variant in gains)
        for added, of_variant in zip(additions, gains, strict=True):
            added["speed"] += best - of_variant.get(framework, 0)


def _score(solved: SolvedVariant, additions: Counter[str]) -> dict[str, int]:
    values = Counter({bound.objective: bound.value for bound in solved.optimum.bounds})
    values.update(additions)
    values["rules"] += len(solved.untried_sdists)
    return {name: values[name] for name in CRITERIA[solved.request.score.objective]}


def _additions(solved: Sequence[SolvedVariant], direct: Sequence[NormalizedName]) -> list[Counter[str]]:
    """Return what each variant costs by each criterion, whatever versions are chosen.

    Costs of a version are distances from the best candidate of the variant; the additions are the distances of that
    candidate from the best one of all variants.
    """
    additions = [Counter(one.variant.costs) for one in solved]
    for name in direct:
        names = [
            next((other for other, replaced in one.variant.replaced.items() if replaced == name), name)
            for one in solved
        ]
        offered = [one.request.source.candidates(own) for own, one in zip(names, solved, strict=True)]
        behind = hours_behind(itertools.chain(*offered))
        only_prereleases = [bool(own) and all(c.version.is_prerelease for c in own) for own in offered]
        idle = [one.request.score.builds.all_idle(candidates) for candidates, one in zip(offered, solved, strict=True)]
        for added, candidates, is_prerelease, is_idle in zip(additions, offered, only_prereleases, idle, strict=True):
            if candidates:
                added["freshness-direct"] += behind[candidates[0].version]
                added["freshness"] += behind[candidates[0].version]
            # Only a project that names a pre-release wants one: a variant without a final release is discouraged.
            added["rules"] += is_prerelease and not all(only_prereleases)
            added["idle-builds"] += is_idle and not all(idle)
    return additions
