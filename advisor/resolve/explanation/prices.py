"""The price of each constraint of the project: relax it, solve again exactly, and compare."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from advisor.domain.progress import progress
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import quoted, size_text
from advisor.resolve.candidates.problem import NoStackError
from advisor.resolve.explanation.conflict import relax_requirement
from advisor.resolve.optimum.baseline import FIRST_ROUNDS, resolve_newest_stack
from advisor.resolve.optimum.request import ResolutionRequest, Solved, solve
from advisor.resolve.optimum.result import InfeasibleError, SearchLimitError
from advisor.resolve.score.criteria import HOURS_A_YEAR, hours_behind, untried_sdists
from knowledge.domain.errors import UnavailableError
from knowledge.estimate.interface import Prediction

PYTHON_SECONDS = 30.0
"""Time limit of the price of one other interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The gain from removing one constraint.

    Attributes:
        constraint: The constraint, as written, or the other interpreter.
        origin: Where it is written.
        binds: Whether the best stack without the constraint is another one, or the other interpreter has a better one.
        prediction: Predicted speed-up of the stack without the constraint over the stack with it; `None` if there is no
            stack without it.
        libyears: By how many years the packages of both stacks are newer without it.
        changes: Name, version with and version without the constraint of each package that differs; ``-`` is absent.
        obstacle: Why there is no stack without it; empty if there is one.
    """

    constraint: str
    origin: str
    binds: bool = False
    prediction: Prediction | None = None
    libyears: float = 0.0
    changes: tuple[tuple[str, str, str], ...] = ()
    obstacle: str = ""

    @property
    def speedup(self) -> float:
        """The predicted speed-up; 1 without a prediction."""
        return self.prediction.speedup if self.prediction else 1.0


def constraint_prices(solved: Solved) -> tuple[Price, ...]:
    """Return the price of each requirement and constraint of the project that limits versions, highest first."""
    request = solved.request
    prices: list[Price] = []
    if (max_size := request.score.max_size) is not None:
        progress("pricing the limit of the download")
        unlimited = request.with_score(max_size=None)
        limit = f"--max-size {size_text(max_size)}"
        prices.append(_price_of(limit, "limit of the download", solved, lambda: unlimited))
    for root in request.problem.roots:
        if root.is_added or not request.problem.applies(root.requirement):
            continue
        problem = relax_requirement(request.problem, root)
        if problem is not None:
            progress("pricing `%s`", root.requirement)
            relaxed = request.with_problem(problem)
            make_request = partial(with_own_baseline, relaxed)
            prices.append(_price_of(str(root.requirement), root.origin, solved, make_request))
    return tuple(sorted(prices, key=lambda price: (not price.binds, -price.speedup, -price.libyears)))


def _price_of(constraint: str, origin: str, solved: Solved, make_request: Callable[[], ResolutionRequest]) -> Price:
    """Return the price of a constraint; without it, the request is the one that `make_request` returns."""

    def solve_without() -> Solved:
        request = make_request()
        return Solved(request=request, optimum=solve(request))

    other = _attempt(solve_without, solved.request.effort.limit)
    if isinstance(other, str):
        return Price(constraint=constraint, origin=origin, obstacle=other)
    # Each problem has its own baseline, which speed is compared with: so the stacks are compared, not their costs.
    return price_between(constraint, origin, solved, other)


def agreement_price(target: str, agreed: Solved, own: Solved) -> Price:
    """Return what one target loses by having the versions of the other targets."""
    return price_between("the same versions for all targets", f"target `{target}`", agreed, own)


def python_prices(
    solved: Solved,
    *,
    versions: Iterable[str],
    requires_python: str | None,
    solve_for: Callable[[str, TimeLimit], Solved],
) -> tuple[Price, ...]:
    """Return the gain from other interpreter versions, such as ``3.12``; `solve_for` has a time limit for each.

    Versions that the project's `requires-python` excludes are marked.
    """
    prices = []
    policy, limit = solved.request.problem.policy, solved.request.effort.limit
    for version in versions:
        if version == solved.request.problem.target.python_minor:
            continue
        allowed = not requires_python or SpecifierSet(requires_python).contains(
            Version(f"{version}.0"), prereleases=True
        )
        origin = "another interpreter" if allowed else f"outside `requires-python = {requires_python}`"
        progress("pricing Python %s", version)
        other = _attempt(partial(solve_for, version, limit.at_most(PYTHON_SECONDS)), limit)
        if isinstance(other, str):
            prices.append(Price(constraint=f"Python {version}", origin=origin, obstacle=other))
            continue
        ours = {c.name for c in untried_sdists(solved.stack, policy)}
        further = [c for c in untried_sdists(other.stack, other.request.problem.policy) if c.name not in ours]
        if further:
            origin = f"{origin}, without a wheel of {quoted([f'{c.name} {c.version}' for c in further])}"
        price = price_between(f"Python {version}", origin, solved, other)
        # Each interpreter has its own candidates, so values of objectives cannot be compared.
        prices.append(replace(price, binds=price.speedup > 1 or price.libyears > 0))
    return tuple(prices)


def with_own_baseline(request: ResolutionRequest) -> ResolutionRequest:
    """Return the request with the baseline of its own problem, or unchanged if the plain resolver finds none."""
    try:
        baseline = resolve_newest_stack(request.problem, request.source, request.effort.limit, max_rounds=FIRST_ROUNDS)
    except NoStackError:
        return request
    return request.with_score(baseline=baseline)


def _attempt(solve_other: Callable[[], Solved], limit: TimeLimit) -> Solved | str:
    """Return the best stack of another request, or why there is none; an interruption by the user ends the limit."""
    if limit.is_over:
        return f"not priced: {limit.reason}"
    try:
        other = solve_other()
    except KeyboardInterrupt:
        limit.interrupt()
        return f"not priced: {limit.reason}"
    except (InfeasibleError, NoStackError, SearchLimitError, UnavailableError) as error:
        return error.message
    if other.request.effort.limit.interrupted:
        limit.interrupt()
    return f"not priced: {other.optimum.stopped}" if other.optimum.stopped else other


def price_between(constraint: str, origin: str, solved: Solved, other: Solved) -> Price:
    """Return what one stack loses compared with another one, which is without a constraint."""
    changes = differences(solved.stack.versions, other.stack.versions)
    return Price(
        constraint=constraint,
        origin=origin,
        binds=bool(changes),
        prediction=solved.request.score.estimator.predict(other.stack.versions, solved.stack.versions),
        libyears=_libyears_gained(solved, other),
        changes=changes,
    )


def _libyears_gained(solved: Solved, other: Solved) -> float:
    """Return by how many years the packages of both stacks are newer in the other one, over the candidates of both."""
    before = solved.stack.versions
    hours = 0
    for candidate in other.stack:
        if candidate.name in before and before[candidate.name] != candidate.version:
            sides = (side.request.source.candidates(candidate.name) for side in (solved, other))
            behind = hours_behind(itertools.chain(*sides))
            hours += behind[before[candidate.name]] - behind[candidate.version]
    return hours / HOURS_A_YEAR


def differences(before: Mapping[str, Version], after: Mapping[str, Version]) -> tuple[tuple[str, str, str], ...]:
    """Return name, version before and version after of each package that differs; ``-`` is absent."""
    texts = ((name, str(before.get(name, "-")), str(after.get(name, "-"))) for name in sorted({**before, **after}))
    return tuple(change for change in texts if change[1] != change[2])
