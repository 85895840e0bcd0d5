"""The recommendation: from a problem over baseline, rules, score and optimum to a verified stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packaging.version import Version

from advisor.resolve.candidates.problem import NO_PACKAGES, CandidateStack, NoStackError, ResolutionProblem
from advisor.resolve.explanation.advice import Advice, score_basis
from advisor.resolve.explanation.conflict import is_contradictory
from advisor.resolve.explanation.findings import collect_findings, prefetch_proposals, run_obstacle, sorted_findings
from advisor.resolve.explanation.no_stack import (
    admitting_untried_sdists,
    error_about_size,
    error_without_versions,
    no_stack_error,
    untried_sdists_error,
)
from advisor.resolve.explanation.reasons import explain_stack
from advisor.resolve.optimum.baseline import (
    FIRST_ROUNDS,
    BaselineLimitError,
    check_roots,
    resolve_newest_stack,
    verify,
    without_versions,
)
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.score.criteria import StackScore
from knowledge.estimate.interface import Prediction


def make_request(problem: ResolutionProblem, score: StackScore, effort: Effort) -> ResolutionRequest:
    """Resolve the baseline of a problem, and return the request for its best stack.

    The baseline and the settings of the score become those of the problem.

    Raises:
        NoStackError: If a required package is not on any index, or no stack satisfies the requirements.
        UnavailableError: If the index cannot be read.
    """
    source = score.source
    check_roots(problem, source)
    unsatisfied = without_versions(problem, source)

    def with_baseline(baseline: CandidateStack) -> ResolutionRequest:
        settings = score.settings.in_one_process(baseline.versions, score.estimator) if score.settings else None
        own_score = replace(score, baseline=baseline, settings=settings)
        return ResolutionRequest(problem=problem, score=own_score, effort=effort)

    if unsatisfied:
        raise error_without_versions(with_baseline(NO_PACKAGES), unsatisfied)
    try:
        return with_baseline(resolve_newest_stack(problem, source, effort.limit, max_rounds=FIRST_ROUNDS))
    except BaselineLimitError:
        # The exact search finds a contradiction in seconds for which the plain resolver needs minutes.
        request = with_baseline(NO_PACKAGES)
        if is_contradictory(admitting_untried_sdists(request)):
            raise no_stack_error(request, baseline=False) from None
    except NoStackError:
        raise no_stack_error(with_baseline(NO_PACKAGES), baseline=False) from None
    try:
        # A part of the time is left for the exact search.
        limit = effort.limit.at_most(effort.limit.seconds_left / 2)
        return with_baseline(resolve_newest_stack(problem, source, limit))
    except BaselineLimitError:
        # The optimum does not need a baseline.
        return with_baseline(NO_PACKAGES)
    except NoStackError:
        raise no_stack_error(with_baseline(NO_PACKAGES), baseline=False) from None


def recommend(selection: Selection, *, current: Mapping[str, Version] | None = None) -> Advice:
    """Return the recommended stack for a request.

    Raises:
        NoStackError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a stack or a proof is found.
        UnavailableError: If the index cannot be read.
        VerificationError: If the independent resolver rejects the optimum.
    """
    request, baseline = selection.request, selection.request.baseline
    prefetch_proposals(request)
    optimum = _solve_or_explain(selection)
    if not selection.is_verified:
        verify(request.problem, request.source, optimum.stack)
    versions, score = optimum.stack.versions, request.score
    prediction = _predict(request, optimum, baseline.versions, label="the baseline")
    settings = score.settings.missing_in(baseline.versions, versions, score.estimator) if score.settings else {}
    return Advice(
        objective=score.objective,
        baseline=baseline,
        optimum=optimum,
        prediction=prediction,
        basis=score_basis(versions, baseline.versions, score=score, unmeasured=prediction.unmeasured),
        findings=sorted_findings(
            (*selection.findings, *collect_findings(request, optimum, prediction, current=current or {}))
        ),
        reasons=explain_stack(request, optimum, prediction=prediction, settings=settings),
        libyears=(score.libyears(optimum.stack), score.libyears(baseline)),
        current=None if current is None else (current, _predict(request, optimum, current, label="the current stack")),
    )


def _solve_or_explain(selection: Selection) -> Optimum:
    request, not_compared = selection.request, selection.not_compared
    try:
        optimum = selection.optimum or solve(request)
    except StackTooLargeError as error:
        raise error_about_size(request, [error.smallest], not_compared=not_compared) from None
    except InfeasibleError:
        if not_compared:
            raise SearchLimitError(
                f"no stack was found, and no proof that there is none: {not_compared}",
                hint="allow more time with `--time-limit`, or fewer replacements",
            ) from None
        raise untried_sdists_error(request) or no_stack_error(request, baseline=bool(request.baseline)) from None
    if not_compared:
        stopped = optimum.stopped or request.effort.limit.reason
        optimum = replace(optimum, not_compared=not_compared, stopped=stopped)
    return optimum


def _predict(request: ResolutionRequest, optimum: Optimum, before: Mapping[str, Version], *, label: str) -> Prediction:
    """Predict the speed-up of the best stack over another one, or say why one of them does not run."""
    stack, score = optimum.stack.versions, request.score
    obstacle = run_obstacle("the recommended stack", stack, score) or run_obstacle(label, before, score)
    return replace(score.estimator.predict(stack, before), obstacle=obstacle)
