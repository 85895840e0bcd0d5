"""The recommendation: from a problem over baseline, rules, score and optimum to a verified stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packaging.version import Version

from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, NoStackError, ResolutionProblem
from advisor.resolve.explanation.advice import Advice, score_basis
from advisor.resolve.explanation.conflict import is_contradictory
from advisor.resolve.explanation.findings import collect_findings, prefetch_proposals, run_obstacle
from advisor.resolve.explanation.no_stack import (
    error_about_size,
    error_without_versions,
    no_stack_error,
    untried_sdists_error,
)
from advisor.resolve.explanation.reasons import explain_stack, with_reasons_of_age
from advisor.resolve.optimum.baseline import (
    FIRST_ROUNDS,
    BaselineLimitError,
    check_roots,
    resolve_newest_stack,
    verify,
    without_versions,
)
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import Criteria, ObjectiveName
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.estimate.interface import Estimator, Prediction


def make_request(
    problem: ResolutionProblem,
    source: IndexCandidates,
    *,
    builds: TargetBuilds,
    estimator: Estimator,
    objective: ObjectiveName,
    young_after: str = "",
    effort: Effort | None = None,
    settings: TargetSettings | None = None,
) -> ResolutionRequest:
    """Resolve the baseline of a problem, and return the request for its best stack.

    Args:
        problem: The problem.
        source: The candidates.
        builds: The builds on the target, with the rules that apply to it.
        estimator: Predictions from the observations.
        objective: The objective.
        young_after: ISO 8601 time in UTC; files uploaded later count as young.
        effort: Limits of the search.
        settings: The run-time settings that may be chosen; none by default.

    Raises:
        NoStackError: If a required package is not on any index, or no stack satisfies the requirements.
        UnavailableError: If the index cannot be read.
    """
    effort = effort or Effort()
    check_roots(problem, source)
    unsatisfied = without_versions(problem, source)
    direct = {root.name for root in problem.roots if not root.constraint}

    def with_baseline(baseline: tuple[Candidate, ...]) -> ResolutionRequest:
        stack = {str(c.name): c.version for c in baseline}
        own_settings = settings.in_one_process(stack, estimator) if settings else None
        criteria = Criteria(
            builds=builds,
            estimator=estimator,
            objective=objective,
            direct=direct,
            baseline=baseline,
            source=source,
            young_after=young_after,
            policy=problem.policy,
        ).with_settings(own_settings)
        return ResolutionRequest(
            problem=problem,
            source=source,
            rules=builds.rules,
            builds=builds,
            estimator=estimator,
            objective=objective,
            criteria=criteria,
            baseline=baseline,
            effort=effort,
            settings=own_settings,
        )

    if unsatisfied:
        raise error_without_versions(with_baseline(()), unsatisfied)
    try:
        return with_baseline(resolve_newest_stack(problem, source, effort.limit, max_rounds=FIRST_ROUNDS))
    except BaselineLimitError:
        # The exact search finds a contradiction in seconds for which the plain resolver needs minutes.
        request = with_baseline(())
        if is_contradictory(request.with_untried_sdists()):
            raise no_stack_error(request, baseline=False) from None
    except NoStackError:
        raise no_stack_error(with_baseline(()), baseline=False) from None
    try:
        # A part of the time is left for the exact search.
        limit = effort.limit.at_most(effort.limit.seconds_left / 2)
        return with_baseline(resolve_newest_stack(problem, source, limit))
    except BaselineLimitError:
        # The optimum does not need a baseline.
        return with_baseline(())
    except NoStackError:
        raise no_stack_error(with_baseline(()), baseline=False) from None


def recommend(request: ResolutionRequest, *, current: Mapping[str, Version] | None = None) -> Advice:
    """Return the recommended stack for a request.

    Args:
        request: The problem with its baseline.
        current: Currently locked versions, by package.

    Raises:
        NoStackError: If no stack satisfies the requirements and the rules.
        SearchLimitError: If a limit is reached before a stack or a proof is found.
        UnavailableError: If the index cannot be read.
        VerificationError: If the independent resolver rejects the optimum.
    """
    problem, source, baseline = request.problem, request.source, request.baseline
    prefetch_proposals(request)
    try:
        optimum = request.best()
    except StackTooLargeError as error:
        raise error_about_size(request, [error.smallest], not_compared=request.not_compared) from None
    except InfeasibleError:
        if request.not_compared:
            raise SearchLimitError(
                f"no stack was found, and no proof that there is none: {request.not_compared}",
                hint="allow more time with `--time-limit`, or fewer replacements",
            ) from None
        raise untried_sdists_error(request) or no_stack_error(request, baseline=bool(baseline)) from None
    if request.not_compared:
        stopped = optimum.stopped or request.effort.limit.reason
        optimum = replace(optimum, not_compared=request.not_compared, stopped=stopped)
    verify(problem, source, optimum.stack)
    versions = {str(c.name): c.version for c in baseline}
    stack = {str(c.name): c.version for c in optimum.stack}
    prediction = _predict(request, optimum, versions, label="the baseline")
    reasons = explain_stack(
        problem,
        source,
        stack=optimum.stack,
        baseline=baseline,
        rules=request.rules,
        builds=request.builds,
        prediction=prediction,
        settings=request.settings.missing_in(versions, stack, request.estimator) if request.settings else {},
    )
    return Advice(
        objective=request.objective,
        baseline=baseline,
        optimum=optimum,
        prediction=prediction,
        basis=score_basis(
            stack,
            versions,
            objective=request.objective,
            estimator=request.estimator,
            min_gain=request.criteria.min_gain,
            unmeasured=prediction.unmeasured,
        ),
        findings=collect_findings(request, optimum, prediction, current=current),
        reasons=with_reasons_of_age(reasons, optimum),
        libyears=(request.libyears(optimum.stack), request.libyears(baseline)),
        current=None if current is None else (current, _predict(request, optimum, current, label="the current stack")),
    )


def _predict(request: ResolutionRequest, optimum: Optimum, before: Mapping[str, Version], *, label: str) -> Prediction:
    """Predict the speed-up of the best stack over another one, or say why one of them does not run."""
    stack = {str(c.name): c.version for c in optimum.stack}
    obstacle = run_obstacle("the recommended stack", stack, request) or run_obstacle(label, before, request)
    return replace(request.predict(optimum.stack, before), obstacle=obstacle)
