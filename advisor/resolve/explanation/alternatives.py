"""Explanation of one package's version: what requires it, why it is not the newest, and the second-best version."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.explanation.advice import Advice
from advisor.resolve.explanation.conflict import describe_conflict, find_conflict
from advisor.resolve.explanation.prices import differences
from advisor.resolve.explanation.stack_requirements import ReplacedPackage, replaced_packages
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from knowledge.domain.errors import InputError
from knowledge.estimate.interface import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best stack with another version of a package.

    Attributes:
        version: The version.
        conflict: Lines that explain why there is no such stack, or why none is known; empty if there is one.
        worse: Name of each objective whose value differs, and by how much it is worse, in order of importance.
        libyears: Difference in libyears behind the newest versions; positive if this stack is older.
        prediction: Predicted speed-up over the recommended stack.
        changes: Name, recommended version and version in this stack of each package that differs.
    """

    version: Version
    conflict: tuple[str, ...] = ()
    worse: tuple[tuple[str, int], ...] = ()
    libyears: float = 0.0
    prediction: Prediction | None = None
    changes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of one package of a stack.

    Attributes:
        name: The package.
        version: Its version in the stack.
        newest: The newest candidate.
        why: The reason for its version, in a few words.
        required_by: Each package that requires it (or the project), with the requirement.
        paths: Paths of requirements from the project to it, the shortest first, at most 20.
        more_paths: Whether there are more paths.
        verdicts: Messages of the rules that apply to its version.
        prediction: Predicted speed-up of the stack over the baseline.
        against_newest: The best stack with the newest version; `None` if the recommended version is the newest.
        runner_up: The best stack with neither the recommended nor the newest version; `None` if there is none.
        replaces: Required packages that it takes the place of.
    """

    name: NormalizedName
    version: Version
    newest: Version
    why: str
    required_by: tuple[tuple[str, str], ...]
    paths: tuple[tuple[str, ...], ...]
    more_paths: bool
    verdicts: tuple[str, ...]
    prediction: Prediction
    against_newest: Alternative | None
    runner_up: Alternative | None
    replaces: tuple[ReplacedPackage, ...] = ()


def explain_package(request: ResolutionRequest, advice: Advice, name: NormalizedName) -> Explanation:
    """Explain one package of the recommended stack, or the package that takes its place.

    Raises:
        InputError: If the stack contains neither.
    """
    stack = advice.optimum.stack.by_name
    replaced = replaced_packages(request.problem, request.source, advice.optimum.stack)
    if name not in stack:
        name = next((r.replacement for r in replaced if r.name == name), name)
    candidate = stack.get(name)
    if candidate is None:
        raise InputError(f"the recommended stack does not contain `{name}`", hint="`advisor tree` lists its packages")
    newest = request.source.candidates(name)[0].version
    from advisor.resolve.explanation import graph as graphs

    graph = graphs.dependency_graph(request.problem, request.source, advice.optimum.stack)
    paths, has_more = graphs.paths_to(graph, name)
    against_newest = None
    if newest != candidate.version:
        against_newest = best_alternative(request, advice.optimum, name, f"==={newest}", newest)
    others = ",".join(f"!={version}" for version in sorted({candidate.version, newest}))
    runner_up = best_alternative(request, advice.optimum, name, others, newest)
    return Explanation(
        name=name,
        version=candidate.version,
        newest=newest,
        why=advice.reasons[name],
        required_by=graphs.requirements_on(graph, name),
        paths=paths,
        more_paths=has_more,
        verdicts=tuple(f"{v.message} ({v.source})" for v in request.score.rules.judge(name, candidate.version)),
        prediction=advice.prediction,
        against_newest=against_newest,
        runner_up=None if runner_up.conflict else runner_up,
        replaces=tuple(r for r in replaced if r.replacement == name),
    )


def best_alternative(
    request: ResolutionRequest, optimum: Optimum, name: NormalizedName, specifier: str, version: Version
) -> Alternative:
    """Return the best stack whose version of a package a specifier admits; without one, its version is `version`."""
    own = request.with_score(reference=optimum.newest)
    root = RootRequirement(requirement=Requirement(f"{name}{specifier}"), origin="assumed for this comparison")
    other = own.with_problem(request.problem.with_roots([root]))
    try:
        best = solve(other)
    except (StackTooLargeError, SearchLimitError) as error:
        return Alternative(version=version, conflict=(error.message,))
    except InfeasibleError:
        conflict = find_conflict(other)
        lines = ("no stack was found",) if conflict is None else describe_conflict(conflict, other)
        return Alternative(version=version, conflict=lines)
    if best.stopped:
        return Alternative(version=version, conflict=(f"not compared: {best.stopped}",))
    values = zip(best.bounds, optimum.bounds, strict=True)
    return Alternative(
        version=best.stack.versions.get(name, version),
        worse=tuple((b.objective, b.value - a.value) for b, a in values if b.value != a.value),
        libyears=request.score.libyears(best.stack) - request.score.libyears(optimum.stack),
        prediction=request.score.estimator.predict(best.stack.versions, optimum.stack.versions),
        changes=differences(optimum.stack.versions, best.stack.versions),
    )
