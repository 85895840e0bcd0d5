"""What each of the user's own constraints costs: relaxed in turn, solved again exactly, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from advisor.resolve.baseline import Impossible
from advisor.resolve.conflict import without
from advisor.resolve.objectives import HOURS_A_YEAR, hours_behind
from advisor.resolve.optimise import NoSolution, Optimum, SearchLimitError
from advisor.resolve.problem import Candidate
from advisor.resolve.recommend import ResolutionRequest
from knowledge.domain.errors import UnavailableError
from knowledge.estimate.interface import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What giving up one constraint would buy.

    Attributes:
        constraint: The constraint, as written, or the interpreter that is taken instead.
        origin: Where it stands.
        binds: Whether another stack would be better without the constraint, or with the interpreter.
        prediction: Predicted speed-up of the stack without the constraint over the stack with it; none where there is
            no stack without it.
        libyears: By how many years the packages that both stacks hold are fresher without it.
        changes: Name, version with and version without the constraint of each package that differs; ``-`` is absent.
        obstacle: Why there is no stack without it; empty where there is one.
    """

    constraint: str
    origin: str
    binds: bool = False
    prediction: Prediction | None = None
    libyears: float = 0.0
    changes: tuple[tuple[str, str, str], ...] = ()
    obstacle: str = ""


def constraint_prices(inquiry: ResolutionRequest, optimum: Optimum) -> tuple[Price, ...]:
    """Return the price of every requirement and constraint of the user's own that limits versions, dearest first."""
    found: list[tuple[tuple[int, ...], Price]] = []
    for root in inquiry.problem.roots:
        if not inquiry.problem.applies(root.requirement):
            continue
        problem = without(inquiry.problem, root)
        if problem is None:
            continue
        other = inquiry.instead(problem)
        try:
            free = other.best()
        except (NoSolution, SearchLimitError):
            # Only where the search gave up: what has a solution has one with less asked of it.
            obstacle = "not solved within the allowed work"
            found.append(((), Price(constraint=str(root.requirement), origin=root.origin, obstacle=obstacle)))
            continue
        costs, before = (tuple(bound.value for bound in each.bounds) for each in (free, optimum))
        price = _price(str(root.requirement), root.origin, (inquiry, optimum), (other, free))
        found.append((costs, replace(price, binds=costs < before)))
    return tuple(price for _, price in sorted(found, key=lambda item: (not item[1].binds, item[0])))


def python_prices(
    inquiry: ResolutionRequest,
    optimum: Optimum,
    *,
    versions: Iterable[str],
    admitted: str | None,
    ask: Callable[[str | None], ResolutionRequest],
) -> tuple[Price, ...]:
    """Return what other interpreter versions would buy.

    Args:
        inquiry: The inquiry for the target's interpreter.
        optimum: Its answer.
        versions: Interpreter versions, such as ``3.12``.
        admitted: The project's ``requires-python``, or none; versions beyond it are marked.
        ask: Makes the inquiry for an interpreter version.
    """
    found = []
    for version in versions:
        if version == inquiry.problem.target.python_minor:
            continue
        allowed = not admitted or SpecifierSet(admitted).contains(Version(f"{version}.0"), prereleases=True)
        origin = "another interpreter" if allowed else f"beyond `requires-python = {admitted}`"
        try:
            other = ask(version)
        except (Impossible, UnavailableError) as error:
            found.append(Price(constraint=f"Python {version}", origin=origin, obstacle=error.message))
            continue
        try:
            free = other.best()
        except (NoSolution, SearchLimitError):
            obstacle = "no set of versions satisfies both the requirements and the rules"
            found.append(Price(constraint=f"Python {version}", origin=origin, obstacle=obstacle))
            continue
        price = _price(f"Python {version}", origin, (inquiry, optimum), (other, free))
        # Each interpreter has candidates of its own, so what the objectives cost cannot be compared.
        faster = price.prediction is not None and price.prediction.speedup > 1
        found.append(replace(price, binds=faster or price.libyears > 0))
    return tuple(found)


def _price(
    constraint: str, origin: str, here: tuple[ResolutionRequest, Optimum], there: tuple[ResolutionRequest, Optimum]
) -> Price:
    before, after = here[1].stack, there[1].stack
    return Price(
        constraint=constraint,
        origin=origin,
        prediction=here[0].predict(after, {str(c.name): c.version for c in before}),
        libyears=_fresher(here, there),
        changes=differences(before, after),
    )


def _fresher(here: tuple[ResolutionRequest, Optimum], there: tuple[ResolutionRequest, Optimum]) -> float:
    """Return by how many years the packages of both stacks are fresher there, over the candidates of both."""
    before = {c.name: c.version for c in here[1].stack}
    hours = 0
    for candidate in there[1].stack:
        if candidate.name in before and before[candidate.name] != candidate.version:
            offered = {c.version: c for inquiry, _ in (here, there) for c in inquiry.source.candidates(candidate.name)}
            behind = hours_behind([offered[version] for version in sorted(offered, reverse=True)])
            hours += behind[before[candidate.name]] - behind[candidate.version]
    return hours / HOURS_A_YEAR


def differences(before: Iterable[Candidate], after: Iterable[Candidate]) -> tuple[tuple[str, str, str], ...]:
    """Return name, version before and version after of each package that differs; ``-`` is absent."""
    old = {str(c.name): str(c.version) for c in before}
    new = {str(c.name): str(c.version) for c in after}
    names = sorted({**old, **new})
    return tuple((n, old.get(n, "-"), new.get(n, "-")) for n in names if old.get(n) != new.get(n))
