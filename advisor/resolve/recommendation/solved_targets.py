"""The best stack of a target from that of another one that differs in the machine only.

Machines often differ in nothing that decides about a stack. The search of one target has loaded candidates. If each of
them costs the same for the other target, and the same choices are excluded, then the same search finds the same stack
there. Speed is compared again: it is the criterion whose costs differ between machines. So the result is as exact as a
search of its own. If anything differs, the target needs that search, which starts from the same baseline: the plain
resolver knows no machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import AllowedReplacements, Candidate, ResolutionProblem
from advisor.resolve.optimum.request import ResolutionRequest, Solved, solve
from advisor.resolve.optimum.result import Optimum
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.package_choices import has_package_choices
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.score.costs import Candidates, Choice, Limits, Objective
from advisor.resolve.score.criteria import StackScore
from advisor.resolve.score.criterion_costs import CriterionCosts


class SolvedTargets:
    """Solved targets of one project, whose best stacks may be those of further targets.

    All targets have the same allowed replacements of packages.
    """

    def __init__(self, allowed: AllowedReplacements) -> None:
        self._allowed = allowed
        self._targets: list[_SolvedTarget] = []
        self._shared: list[Optimum] = []

    def add(self, solved: Solved) -> None:
        """Add a solved target, whose stack the independent resolver accepted, unless it has the stack of another."""
        if not any(solved.optimum is shared for shared in self._shared):
            self._targets.append(_SolvedTarget(request=solved.request, optimum=solved.optimum))

    def selection_for(self, problem: ResolutionProblem, score: StackScore, effort: Effort) -> Selection | None:
        """Return the request of another target, with its best stack if a solved target has the same.

        Args:
            problem: What the other target needs.
            score: Its score, without a baseline and with candidates that are not read.
            effort: Limits of its search.

        Returns:
            The selection; ``None`` if all solved targets differ from it in more than the machine.
        """
        like = [target for target in self._targets if target.differs_in_machine_only(problem, score)]
        if not like:
            return None
        requests = [target.like(problem, score, effort) for target in like]
        for target, request in zip(like, requests, strict=True):
            if target.has_stack_of(request, self._allowed):
                optimum = solve(request, target.optimum)
                self._shared.append(optimum)
                is_same = optimum.stack == target.optimum.stack
                return Selection(request=request, optimum=optimum, is_verified=is_same)
        return Selection(request=requests[0])


@dataclass(frozen=True, kw_only=True)
class _SolvedTarget:
    """A target with its best stack."""

    request: ResolutionRequest
    optimum: Optimum

    def differs_in_machine_only(self, problem: ResolutionProblem, score: StackScore) -> bool:
        """Whether a problem has the same candidates, requirements and policy, and the score the same indexes."""
        own, target = self.request.problem, self.request.problem.target
        is_like = (problem.target.python, problem.target.platform) == (target.python, target.platform)
        same_indexes = score.source.has_indexes_of(self.request.source)
        return is_like and same_indexes and replace(problem, target=target) == own and not problem.policy.variants

    def like(self, problem: ResolutionProblem, score: StackScore, effort: Effort) -> ResolutionRequest:
        """Return the request of another target, with the candidates and the baseline of this one."""
        own, settings = self.request, score.settings
        if settings is not None:
            settings = settings.in_one_process(own.baseline.versions, score.estimator)
        source = own.source.for_problem(problem)
        other = replace(score, source=source, baseline=own.baseline, ages=own.score.ages, settings=settings)
        return ResolutionRequest(problem=problem, score=other, effort=effort)

    def has_stack_of(self, other: ResolutionRequest, allowed: AllowedReplacements) -> bool:
        """Whether the best stack of another target, apart from speed, is the best one of this target."""
        optimum = self.optimum
        if optimum.stopped or optimum.not_compared or optimum.stack != optimum.newest:
            return False
        if any(has_package_choices(request, self._candidates, allowed) for request in (self.request, other)):
            return False
        return _costs(other.score, self._candidates) == self._costs

    @cached_property
    def _candidates(self) -> Candidates:
        source = self.request.source
        return {name: source.candidates(name) for name in source.loaded_packages}

    @cached_property
    def _costs(self) -> _Costs:
        return _costs(self.request.score, self._candidates)


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """What decides about a stack, apart from speed and from the texts of reasons."""

    objectives: tuple[Objective, ...]
    forbidden: frozenset[Choice]
    exclusive: tuple[tuple[frozenset[Choice], ...], ...]
    limits: Limits


def _costs(score: StackScore, candidates: Mapping[NormalizedName, Sequence[Candidate]]) -> _Costs:
    costs = CriterionCosts(score.without("speed"))
    limits = costs.limits(candidates)
    return _Costs(
        objectives=costs.objectives(candidates),
        forbidden=frozenset(limits.forbidden),
        exclusive=tuple(sides for sides, _ in limits.exclusive),
        limits=replace(limits, forbidden={}, exclusive=()),
    )
