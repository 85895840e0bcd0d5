"""The price of each constraint of the project: relax it, solve again exactly, and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from advisor.domain.progress import progress
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import quoted, size_text
from advisor.resolve.candidates.problem import Candidate, NoStackError, ResolutionProblem
from advisor.resolve.explanation.conflict import relax_requirement
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError
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
        prediction: Predicted speed-up of the stack without the constraint over the stack with it; none if there is no
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


def constraint_prices(request: ResolutionRequest, optimum: Optimum) -> tuple[Price, ...]:
    """Return the price of each requirement and constraint of the project that limits versions, highest first."""
    prices: list[tuple[float, Price]] = []
    if request.criteria.max_size is not None:
        prices.append(_price_of_size(request, optimum, request.criteria.max_size))
    for root in request.problem.roots:
        if root.is_added or not request.problem.applies(root.requirement):
            continue
        problem = relax_requirement(request.problem, root)
        if problem is None:
            continue
        progress("pricing `%s`", root.requirement)
        solved = _solve(partial(_relaxed, request, problem), request.effort.limit)
        if isinstance(solved, str):
            prices.append((0.0, Price(constraint=str(root.requirement), origin=root.origin, obstacle=solved)))
            continue
        other, free = solved
        # Each problem has its own baseline, which speed is compared with: so the stacks are compared, not their costs.
        price = _price(str(root.requirement), root.origin, (request, optimum), (other, free))
        gain = price.prediction.speedup if price.prediction else 1.0
        prices.append((gain, replace(price, binds=bool(price.changes))))
    prices.sort(key=lambda item: (not item[1].binds, -item[0], -item[1].libyears))
    return tuple(price for _, price in prices)


def _price_of_size(request: ResolutionRequest, optimum: Optimum, max_size: int) -> tuple[float, Price]:
    """Return the gain without the limit of the download, and the price of the limit."""
    constraint, origin = f"--max-size {size_text(max_size)}", "limit of the download"
    progress("pricing the limit of the download")
    solved = _solve(lambda: request.with_max_size(None), request.effort.limit)
    if isinstance(solved, str):
        return 0.0, Price(constraint=constraint, origin=origin, obstacle=solved)
    price = _price(constraint, origin, (request, optimum), solved)
    return price.prediction.speedup if price.prediction else 1.0, replace(price, binds=bool(price.changes))


def agreement_price(
    target: str, agreed: tuple[ResolutionRequest, Optimum], own: tuple[ResolutionRequest, Optimum]
) -> Price:
    """Return what one target loses by having the versions of the other targets.

    Args:
        target: Name of the target.
        agreed: Request and best stack with the common versions.
        own: Request and best stack without the other targets.
    """
    price = _price("the same versions for all targets", f"target `{target}`", agreed, own)
    return replace(price, binds=bool(price.changes))


def python_prices(
    request: ResolutionRequest,
    optimum: Optimum,
    *,
    versions: Iterable[str],
    requires_python: str | None,
    make_request: Callable[[str, TimeLimit], ResolutionRequest],
) -> tuple[Price, ...]:
    """Return the gain from other interpreter versions.

    Args:
        request: The request for the target's interpreter.
        optimum: Its result.
        versions: Interpreter versions, such as ``3.12``.
        requires_python: The project's ``requires-python``, or none; versions that it excludes are marked.
        make_request: Returns the request for an interpreter version, with its own time limit.
    """
    prices = []
    limit = request.effort.limit
    for version in versions:
        if version == request.problem.target.python_minor:
            continue
        allowed = not requires_python or SpecifierSet(requires_python).contains(
            Version(f"{version}.0"), prereleases=True
        )
        origin = "another interpreter" if allowed else f"outside `requires-python = {requires_python}`"
        progress("pricing Python %s", version)
        part = limit.at_most(PYTHON_SECONDS)
        solved = _solve(partial(make_request, version, part), limit)
        if isinstance(solved, str):
            prices.append(Price(constraint=f"Python {version}", origin=origin, obstacle=solved))
            continue
        other, free = solved
        ours = {c.name for c in untried_sdists(optimum.stack, request.problem.policy)}
        builds = [
            f"{c.name} {c.version}" for c in untried_sdists(free.stack, other.problem.policy) if c.name not in ours
        ]
        if builds:
            origin = f"{origin}, without a wheel of {quoted(builds)}"
        price = _price(f"Python {version}", origin, (request, optimum), (other, free))
        # Each interpreter has its own candidates, so values of objectives cannot be compared.
        faster = price.prediction is not None and price.prediction.speedup > 1
        prices.append(replace(price, binds=faster or price.libyears > 0))
    return tuple(prices)


def _relaxed(request: ResolutionRequest, problem: ResolutionProblem) -> ResolutionRequest:
    return request.with_problem(problem).with_own_baseline()


def _solve(make_request: Callable[[], ResolutionRequest], limit: TimeLimit) -> tuple[ResolutionRequest, Optimum] | str:
    """Return a request and its best stack, or why there is none.

    Args:
        make_request: Returns the request.
        limit: Time limit of all prices; interrupted if the user interrupts the search.
    """
    if limit.is_over:
        return f"not priced: {limit.reason}"
    try:
        request = make_request()
        optimum = request.best()
    except KeyboardInterrupt:
        limit.interrupt()
        return f"not priced: {limit.reason}"
    except (InfeasibleError, NoStackError, SearchLimitError, UnavailableError) as error:
        return error.message
    if request.effort.limit.interrupted:
        limit.interrupt()
    return f"not priced: {optimum.stopped}" if optimum.stopped else (request, optimum)


def _price(
    constraint: str,
    origin: str,
    current: tuple[ResolutionRequest, Optimum],
    other_side: tuple[ResolutionRequest, Optimum],
) -> Price:
    before, after = current[1].stack, other_side[1].stack
    return Price(
        constraint=constraint,
        origin=origin,
        prediction=current[0].predict(after, {str(c.name): c.version for c in before}),
        libyears=_libyears_gained(current, other_side),
        changes=differences(before, after),
    )


def _libyears_gained(
    current: tuple[ResolutionRequest, Optimum], other_side: tuple[ResolutionRequest, Optimum]
) -> float:
    """Return by how many years the packages of both stacks are newer in the other one, over the candidates of both."""
    before = {c.name: c.version for c in current[1].stack}
    hours = 0
    for candidate in other_side[1].stack:
        if candidate.name in before and before[candidate.name] != candidate.version:
            candidates = {
                c.version: c for request, _ in (current, other_side) for c in request.source.candidates(candidate.name)
            }
            behind = hours_behind([candidates[version] for version in sorted(candidates, reverse=True)])
            hours += behind[before[candidate.name]] - behind[candidate.version]
    return hours / HOURS_A_YEAR


def differences(before: Iterable[Candidate], after: Iterable[Candidate]) -> tuple[tuple[str, str, str], ...]:
    """Return name, version before and version after of each package that differs; ``-`` is absent."""
    old = {str(c.name): str(c.version) for c in before}
    new = {str(c.name): str(c.version) for c in after}
    names = sorted({**old, **new})
    return tuple((n, old.get(n, "-"), new.get(n, "-")) for n in names if old.get(n) != new.get(n))
