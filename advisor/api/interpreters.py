"""The interpreter for which a project is resolved: one that the project supports and that has a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.api.context import TargetContext
from advisor.domain.target import NEWEST_PYTHON
from advisor.domain.time_limit import TimeLimit
from advisor.index.client import IndexClient
from advisor.project.interface import supported_pythons
from advisor.resolve.candidates.problem import NoStackError
from knowledge.domain.errors import UnavailableError
from knowledge.estimate.interface import Estimator

if TYPE_CHECKING:
    from advisor.resolve.recommendation.problem_variants import VariantComparison

_MAINTAINED = 5
"""Number of minor versions of CPython that are maintained at a time: one a year, each for five years (PEP 602)."""
_MOST_ROUNDS = 500
"""Limit of the search for a stack for one interpreter, in rounds of the plain resolver."""
_CHOICE_SECONDS = 10.0
"""Time limit of the choice of an interpreter that the project supports."""
_HINT_SECONDS = 5.0
"""Time limit of the search for an interpreter to name if there is no stack."""


def with_supported_python(context: TargetContext, client: IndexClient) -> TargetContext:
    """Return a target with the newest of its interpreters for which a stack exists; unchanged if none is known to.

    An interpreter whose stack contains sdists whose build was not tried is taken only if no other has fewer of them.

    Args:
        context: The target, whose `other_pythons` are tried in their order.
        client: The package indexes.

    Raises:
        UnavailableError: If an index cannot be read.
    """
    choice = _first_with_stack(context, context.other_pythons, client, TimeLimit(_CHOICE_SECONDS))
    return context if choice is None else context.with_python(choice)


def find_other_python(context: TargetContext, client: IndexClient, estimator: Estimator) -> str | None:
    """Return another interpreter that the project supports and for which a stack runs on the target, the nearest first.

    Interpreters whose stack needs no untried build come before others. ``None`` if no stack was found, or an
    index cannot be read.
    """
    from advisor.resolve.optimum.request import solve_newest
    from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
    from advisor.resolve.score.criteria import untried_sdists

    minor = context.target.python.minor
    others = [text for text in supported_pythons(context.project.requires_python) if int(text.split(".")[1]) != minor]
    # Of two that are equally near, the older one first: old releases, which run on old drivers, have wheels for it.
    nearest = sorted(others, key=lambda text: (abs(_minor(text) - minor), _minor(text)))
    limit = TimeLimit(_HINT_SECONDS)
    with_builds: str | None = None
    for python in nearest:
        try:
            # The plain resolver, which knows no rules, refuses most interpreters in little time.
            if _first_with_stack(context, [python], client, limit) is not None:
                request = context.with_python(python).request(client, estimator, limit=limit)
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


def compare_interpreters(
    context: TargetContext, client: IndexClient, estimator: Estimator, limit: TimeLimit
) -> VariantComparison:
    """Solve a project for each of the interpreters that are compared, and sort them by the score of their best stack.

    Interpreters that are not maintained any more (PEP 602: five years) are only compared if no other has a stack. The
    age of an interpreter counts as that of a package which the project names: a minor version behind the newest one
    counts as a year, because one is released each year (PEP 602).

    Args:
        context: The target, whose `compared_pythons` are compared.
        client: The package indexes.
        estimator: Predictions for the target.
        limit: Time limit of all searches.

    Raises:
        NoStackError: If there is no stack for any of them.
    """
    from advisor.resolve.optimum.result import SearchLimitError
    from advisor.resolve.recommendation.problem_variants import ProblemVariant, VariantComparison, compare_variants
    from advisor.resolve.score.criteria import HOURS_A_YEAR

    newest = max(_minor(python) for python in context.compared_pythons)
    maintained = [python for python in context.compared_pythons if _minor(python) > NEWEST_PYTHON - 1 - _MAINTAINED]
    others = [python for python in context.compared_pythons if python not in maintained]

    def share_of_limit() -> TimeLimit:
        # One difficult interpreter must not take the time of the others.
        return limit.at_most(limit.seconds_left / 2)

    def variant(python: str) -> ProblemVariant:
        age = round((newest - _minor(python)) * HOURS_A_YEAR)
        return ProblemVariant(
            label=f"Python {python}",
            select=lambda: context.with_python(python).select(client, estimator, limit=share_of_limit()),
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
    from advisor.resolve.candidates.direct import with_direct_packages
    from advisor.resolve.candidates.index import IndexCandidates
    from advisor.resolve.optimum.baseline import check_roots, resolve_baseline
    from advisor.resolve.score.criteria import untried_sdists

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
