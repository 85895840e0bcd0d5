"""A search for the best stack of a target: its request, and the interpreter that it is for.

This module loads the solver, so it is imported when a search begins.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from advisor.api.context import AdviceInputs, TargetContext
from advisor.api.options import REDUCED_PRECISION
from advisor.domain.progress import activity
from advisor.domain.target import NEWEST_PYTHON, Target
from advisor.domain.time_limit import TimeLimit
from advisor.index.client import IndexClient
from advisor.project.interface import supported_pythons
from advisor.resolve.candidates.direct import with_direct_packages
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import NoStackError, ResolutionProblem, prefetch_roots
from advisor.resolve.optimum.baseline import check_roots, resolve_baseline
from advisor.resolve.optimum.request import ResolutionRequest, solve_newest
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.package_choices import with_best_packages
from advisor.resolve.recommendation.problem_variants import (
    ProblemVariant,
    Selection,
    VariantComparison,
    compare_variants,
)
from advisor.resolve.recommendation.recommend import make_request
from advisor.resolve.recommendation.solved_targets import SolvedTargets
from advisor.resolve.score.builds import TargetBuilds
from advisor.resolve.score.criteria import HOURS_A_YEAR, OBJECTIVES, StackScore, untried_sdists
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.catalogue.builds import shipped_builds
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import shipped_rules
from knowledge.domain.errors import InputError, UnavailableError

logger = logging.getLogger(__name__)

_MAINTAINED = 5
"""Number of minor versions of CPython that are maintained at a time: one a year, each for five years (PEP 602)."""
_MOST_ROUNDS = 500
"""Limit of the search for a stack for one interpreter, in rounds of the plain resolver."""
_CHOICE_SECONDS = 10.0
"""Time limit of the choice of an interpreter that the project supports."""
_HINT_SECONDS = 5.0
"""Time limit of the search for an interpreter to name if there is no stack."""


def select(inputs: AdviceInputs, *, limit: TimeLimit | None = None, others: SolvedTargets | None = None) -> Selection:
    """Return the request with the extras and replacements whose best stack has the best score.

    It is that of one of some other targets where nothing but the machine differs, in no way that matters.

    Raises:
        InputError: If there is no objective of the name.
        NoStackError: If no stack satisfies the requirements.
        UnavailableError: If an index cannot be read.
    """
    problem, score, effort = _prepared(inputs, limit)
    shared = None if others is None else others.selection_for(problem, score, effort)
    if shared is not None and shared.optimum is not None:
        return shared
    request = _with_baseline(problem, score, effort) if shared is None else shared.request
    return with_best_packages(request, inputs.context.allowed)


def prepare_request(inputs: AdviceInputs, *, limit: TimeLimit | None = None) -> ResolutionRequest:
    """Resolve the baseline of a target and prepare the search for the best stack, by default with its own time limit.

    Raises:
        InputError: If there is no objective of the name.
        NoStackError: If no stack satisfies the requirements.
        UnavailableError: If an index cannot be read.
    """
    return _with_baseline(*_prepared(inputs, limit))


def _with_baseline(problem: ResolutionProblem, score: StackScore, effort: Effort) -> ResolutionRequest:
    prefetch_roots(problem, score.source)
    return make_request(problem, score, effort)


def _prepared(inputs: AdviceInputs, limit: TimeLimit | None) -> tuple[ResolutionProblem, StackScore, Effort]:
    """Return the problem of a target, its score without a baseline, and the limits of its search."""
    context, options = inputs.context, inputs.context.options
    objective = options.objective or ""
    if objective not in OBJECTIVES:
        raise InputError(f"there is no objective `{objective}`", hint=f"take one of {', '.join(OBJECTIVES)}")
    problem = with_direct_packages(context.problem, inputs.client)
    needs_sizes = objective == "size" or options.max_size is not None
    candidates = IndexCandidates(inputs.client, problem, advisories=objective == "security", sizes=needs_sizes)
    until = problem.policy.exclude_newer
    now = datetime.fromisoformat(until) if until else datetime.now(UTC)
    score = StackScore(
        objective=objective,
        builds=target_builds(context.target),
        estimator=inputs.estimator,
        source=candidates,
        direct=problem.direct_names,
        policy=problem.policy,
        young_after=(now - timedelta(days=options.min_age_days or 0)).isoformat(),
        settings=target_settings(context),
        min_gain=options.min_gain_fraction,
        max_size=options.max_size_bytes,
    )
    effort = Effort(workers=options.workers, limit=limit or TimeLimit(options.time_limit))
    return problem, score, effort


def target_builds(target: Target) -> TargetBuilds:
    """Return the builds on a target, with the rules that apply to it."""
    return TargetBuilds(shipped_builds(), RuleBook(shipped_rules(), target.hardware), target.build_machine)


def target_settings(context: TargetContext) -> TargetSettings | None:
    """Return the run-time settings that may be chosen for a target; ``None`` if none may."""
    options, hardware = context.options, context.target.hardware
    allows_reduced = REDUCED_PRECISION in options.allow
    return TargetSettings(hardware=hardware, allows_reduced=allows_reduced) if options.recommend_settings else None


def with_supported_python(context: TargetContext, client: IndexClient) -> TargetContext:
    """Return a target with the newest of its interpreters for which a stack exists, and log a warning.

    The interpreters are its `other_pythons`. Some stacks contain sdists whose build was not tried: the interpreter with
    the fewest of them is taken. The target is unchanged if no stack is found for any interpreter.

    Raises:
        UnavailableError: If an index cannot be read.
    """
    with activity("looking for an interpreter that the project supports"):
        choice = _first_with_stack(context, context.other_pythons, client, TimeLimit(_CHOICE_SECONDS))
    context = context if choice is None else context.with_python(choice)
    logger.warning(
        "the project requires Python `%s`: the stack is for Python %s; choose another with `--python`",
        context.project.requires_python,
        context.target.python_minor,
    )
    return context


def find_other_python(inputs: AdviceInputs) -> str | None:
    """Return another interpreter that the project supports and for which a stack runs on the target, the nearest first.

    Interpreters whose stack needs no untried build come before others. ``None`` if no stack was found, or an
    index cannot be read.
    """
    context = inputs.context
    minor = context.target.python.minor
    others = [text for text in supported_pythons(context.project.requires_python) if int(text.split(".")[1]) != minor]
    # Of two that are equally near, the older one first: old releases, which run on old drivers, have wheels for it.
    nearest = sorted(others, key=lambda text: (abs(_minor(text) - minor), _minor(text)))
    limit = TimeLimit(_HINT_SECONDS)
    with_builds: str | None = None
    for python in nearest:
        try:
            # The plain resolver, which knows no rules, refuses most interpreters in little time.
            if _first_with_stack(context, [python], inputs.client, limit) is not None:
                request = prepare_request(inputs.with_python(python), limit=limit)
                newest = solve_newest(request)
                if not newest.stopped and not untried_sdists(newest.stack, request.problem.policy):
                    return python
                if not newest.stopped:
                    with_builds = with_builds or python
        except (InfeasibleError, NoStackError):
            pass
        except (SearchLimitError, UnavailableError):
            # The error that there is no stack is more important; offline, other interpreters are rarely in the cache.
            return None
        if limit.is_over:
            break
    return with_builds


def compare_interpreters(inputs: AdviceInputs, limit: TimeLimit) -> VariantComparison:
    """Solve a project for each of the interpreters that are compared, and sort them by the score of their best stack.

    Interpreters that are not maintained any more (PEP 602: five years) are only compared if no other has a stack. An
    old interpreter costs as much as an old package that the project names: each minor version behind the newest one
    counts as a year, because one is released each year (PEP 602).

    Raises:
        NoStackError: If there is no stack for any of them.
    """
    context, pythons = inputs.context, inputs.context.compared_pythons
    newest = max(map(_minor, pythons))
    maintained = [python for python in pythons if _minor(python) > NEWEST_PYTHON - 1 - _MAINTAINED]
    others = [python for python in pythons if python not in maintained]

    def share_of_limit() -> TimeLimit:
        # One difficult interpreter must not take the time of the others.
        return limit.at_most(limit.seconds_left / 2)

    def variant(python: str) -> ProblemVariant:
        age = round((newest - _minor(python)) * HOURS_A_YEAR)
        return ProblemVariant(
            label=f"Python {python}",
            select=lambda: select(inputs.with_python(python), limit=share_of_limit()),
            costs={"freshness-direct": age, "freshness": age},
        )

    comparison = VariantComparison(solved=(), obstacles={})
    for group in (maintained, others):
        if not comparison.solved:
            solved = compare_variants(list(map(variant, group)), limit=limit, direct=context.problem.direct_names)
            comparison = replace(
                solved,
                obstacles={**comparison.obstacles, **solved.obstacles},
                undecided=comparison.undecided + solved.undecided,
            )
    if comparison.solved or comparison.stopped:
        return comparison
    if comparison.undecided:
        reasons = "; ".join(f"{label}: {obstacle}" for label, obstacle in comparison.obstacles.items())
        raise SearchLimitError(
            f"no interpreter has a stack that was found within the limits of the search ({reasons})",
            hint="allow more time with `--time-limit`, or choose an interpreter with `--python`",
        )
    raise NoStackError(
        "there is no stack for any interpreter that the project supports",
        details=tuple(f"{label}: {obstacle}" for label, obstacle in comparison.obstacles.items()),
        hint="choose one with `--python` to see why",
    )


def _minor(python: str) -> int:
    return int(python.split(".")[1])


def _first_with_stack(
    context: TargetContext, versions: Sequence[str], client: IndexClient, limit: TimeLimit
) -> str | None:
    """Return the interpreter with a stack that needs the fewest builds that were not tried, the first of equal ones.

    ``None`` if there is no stack among those that the time limit admits.
    """
    fewest: tuple[int, str] | None = None
    for version in versions:
        try:
            problem = with_direct_packages(context.with_python(version).problem, client)
            source = IndexCandidates(client, problem)
            check_roots(problem, source)
            stack = resolve_baseline(problem, source, max_rounds=_MOST_ROUNDS, limit=limit)
        except NoStackError:
            if limit.is_over:
                break
            continue
        builds = len(untried_sdists(stack, problem.policy))
        if fewest is None or builds < fewest[0]:
            fewest = builds, version
        if not builds:
            break
    return fewest[1] if fewest else None
