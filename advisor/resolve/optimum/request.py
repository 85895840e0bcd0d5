"""A request for the best stack of a problem, and the exact answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidateStack, ResolutionProblem
from advisor.resolve.optimum.optimise import optimise
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.criteria import StackScore
from advisor.resolve.score.criterion_costs import CriterionCosts

MOST_UNCOUNTED = 50
"""Number of combinations of versions whose gain does not count, beyond which the search for a faster stack ends."""


@dataclass(frozen=True, kw_only=True)
class ResolutionRequest:
    """A problem with everything that is needed to solve it; the score has the candidates and the baseline."""

    problem: ResolutionProblem
    score: StackScore
    effort: Effort

    @property
    def source(self) -> IndexCandidates:
        """The candidates."""
        return self.score.source

    @property
    def baseline(self) -> CandidateStack:
        """The stack that a plain resolver chooses, which the search starts from; empty if it found none."""
        return self.score.baseline

    def with_problem(self, problem: ResolutionProblem) -> Self:
        """Return the request for a problem that differs only in the project's own requirements.

        Costs stay the same, so that the two results can be compared.
        """
        return replace(self, problem=problem).with_score(source=self.source.for_problem(problem))

    def begun_now(self, *, keeps_result: bool, most_seconds: float = math.inf) -> Self:
        """Return the request with a time limit that begins now; see :class:`advisor.domain.time_limit.TimeLimit`."""
        limit = self.effort.limit.begun_now(keeps_result=keeps_result, most_seconds=most_seconds)
        return replace(self, effort=replace(self.effort, limit=limit))

    def with_score(self, **changes: Any) -> Self:
        """Return the request with a score that differs in some fields of :class:`StackScore`."""
        return replace(self, score=replace(self.score, **changes))


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A request with its best stack, and the proof."""

    request: ResolutionRequest
    optimum: Optimum

    @property
    def stack(self) -> CandidateStack:
        """The best stack."""
        return self.optimum.stack


def solve(request: ResolutionRequest, newest: Optimum | None = None) -> Optimum:
    """Return the best stack of a request.

    That is the newest stack that runs on the target, or one that is faster, by a gain that counts: it is significant
    for the whole stack, and at least the smallest gain of the score.

    Raises:
        InfeasibleError: If there is no stack.
        StackTooLargeError: If all are larger than the limit of the download.
        SearchLimitError: If a limit is reached before a stack or a proof is found.
    """
    score = request.score
    newest = newest or solve_newest(request)
    if not score.includes_speed:
        return newest
    reference = newest.stack if score.reference is None else score.reference
    if score.reference is None:
        score = replace(score, reference=reference)
    else:
        score = score.without_uncounted_gain(newest.stack) or score
    newest = replace(newest, bounds=score.with_speed_bound(newest.bounds, newest.stack), newest=reference)
    if newest.stopped or not any(bound.value for bound in newest.bounds if bound.objective == "speed"):
        # No stack is faster than the bound, so the newest of all is the best.
        return newest
    fastest = _faster(replace(request, score=score), newest)
    gain, _ = score.whole_gain(fastest.stack)
    return replace(fastest, iterations=newest.iterations + fastest.iterations, newest=reference, gain=gain)


def solve_newest(request: ResolutionRequest) -> Optimum:
    """Return the best stack by all criteria but speed.

    Raises:
        InfeasibleError: If there is none.
        StackTooLargeError: If all are larger than the limit of the download.
        SearchLimitError: If a limit is reached before a stack or a proof is found.
    """
    request = replace(request, score=request.score.without("speed"))
    if request.score.max_size is None:
        return _search(request, request.baseline)
    smallest, start = None, request.baseline
    if not start or request.score.is_too_large(start):
        # Solving for the size alone is much faster than for the best stack below a limit that nothing satisfies.
        with suppress(SearchLimitError):
            smallest = _smallest(request)
            start = smallest.stack
    try:
        return _search(request, start)
    except InfeasibleError:
        raise StackTooLargeError(smallest or _smallest(request)) from None


def _faster(request: ResolutionRequest, newest: Optimum) -> Optimum:
    """Return the best stack; one whose gain over the reference does not count is as fast as the reference."""
    for _ in range(MOST_UNCOUNTED):
        optimum = _search(request, newest.stack)
        corrected = None if optimum.stopped else request.score.without_uncounted_gain(optimum.stack)
        if corrected is None:
            return optimum
        request = replace(request, score=corrected)
    return replace(newest, not_compared=f"more than {MOST_UNCOUNTED} combinations whose gain does not count")


def _smallest(request: ResolutionRequest) -> Optimum:
    """Return the stack with the smallest download, or the baseline if a part of the time is not enough."""
    limit = request.effort.limit
    part = replace(request.effort, limit=limit.at_most(limit.seconds_left / 2))
    by_size = replace(request, effort=part).with_score(names=("size",), max_size=None, change=None)
    smallest = _search(by_size, request.baseline)
    if request.score.is_above_max_size(smallest.bounds[0].bound):
        raise StackTooLargeError(smallest)
    if smallest.interrupted:
        limit.interrupt()
        if request.score.is_too_large(smallest.stack):
            raise KeyboardInterrupt
    return smallest


def _search(request: ResolutionRequest, start: Sequence[Candidate]) -> Optimum:
    costs = CriterionCosts(request.score)
    return optimise(request.problem, request.source, costs, start=start, effort=request.effort)
