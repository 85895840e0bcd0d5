"""Why one package has its version: who requires it, why not the newest, and what the runner-up loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.resolve.conflict import find_conflict, tell
from advisor.resolve.explain import PROJECT, dependency_graph
from advisor.resolve.optimise import NoSolution, Optimum, SearchLimitError
from advisor.resolve.prices import differences
from advisor.resolve.problem import ResolutionProblem
from advisor.resolve.recommend import Advice, ResolutionRequest
from knowledge.domain.errors import InputError
from knowledge.estimate.interface import Prediction

if TYPE_CHECKING:
    import networkx

    Graph = networkx.DiGraph[NormalizedName]

MAX_PATHS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best stack in which a package has another version.

    Attributes:
        version: The version.
        conflict: Why there is no such stack, a line each; empty where there is one.
        worse: By how much each objective is worse, in order of importance, where it differs.
        libyears: By how many years the stack is staler.
        prediction: Predicted speed-up over the advised stack.
        changes: Name, version in the advice and version here of each package that differs.
    """

    version: Version
    conflict: tuple[str, ...] = ()
    worse: tuple[tuple[str, int], ...] = ()
    libyears: float = 0.0
    prediction: Prediction | None = None
    changes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that bears on one package of a stack.

    Attributes:
        name: The package.
        version: Its version in the stack.
        newest: The newest candidate.
        why: A few words.
        required_by: Who requires it: the package, or the project, and what it asks for.
        paths: Every path of requirements from the project to it, the shortest first, at most :data:`MAX_PATHS`.
        more_paths: Whether there are more.
        verdicts: What the rules say of its version.
        prediction: Predicted speed-up of the stack over the baseline.
        against_newest: The best stack with the newest version; none where that is the advised one.
        runner_up: The best stack with any other version than the advised and the newest; none where there is none.
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


def explain_package(inquiry: ResolutionRequest, advice: Advice, name: NormalizedName) -> Explanation:
    """Explain one package of the advised stack.

    Raises:
        InputError: If the stack does not hold it.
    """
    chosen = next((c for c in advice.optimum.stack if c.name == name), None)
    if chosen is None:
        raise InputError(
            f"the advised stack does not hold `{name}`", hint="`advisor tree` shows the packages that it holds"
        )
    offered = inquiry.source.candidates(name)
    newest = offered[0].version
    graph = dependency_graph(inquiry.problem, inquiry.source, advice.optimum.stack)
    paths, more = _paths(graph, name)
    against = None if newest == chosen.version else _forced(inquiry, advice.optimum, name, newest)
    return Explanation(
        name=name,
        version=chosen.version,
        newest=newest,
        why=advice.why[name],
        required_by=_required_by(graph, name),
        paths=paths,
        more_paths=more,
        verdicts=tuple(f"{v.message} ({v.source})" for v in inquiry.rules.judge(name, chosen.version)),
        prediction=advice.prediction,
        against_newest=against,
        runner_up=_runner_up(inquiry, advice.optimum, name, {chosen.version, newest}),
    )


def _required_by(graph: Graph, name: NormalizedName) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"{parent} {graph.nodes[parent]['version']}" if parent else "the project", ", ".join(about["requirements"]))
        for parent, _, about in sorted(graph.in_edges(name, data=True), key=lambda edge: edge[0])
    )


def _paths(graph: Graph, name: NormalizedName) -> tuple[tuple[tuple[str, ...], ...], bool]:
    import itertools

    import networkx

    simple = networkx.shortest_simple_paths(graph, PROJECT, name)
    found = [tuple(str(node) for node in path[1:]) for path in itertools.islice(simple, MAX_PATHS + 1)]
    return tuple(found[:MAX_PATHS]), len(found) > MAX_PATHS


def _forced(inquiry: ResolutionRequest, optimum: Optimum, name: NormalizedName, version: Version) -> Alternative:
    return _alternative(inquiry, optimum, name, Requirement(f"{name}==={version}"), version)


def _runner_up(
    inquiry: ResolutionRequest, optimum: Optimum, name: NormalizedName, taken: set[Version]
) -> Alternative | None:
    """Return the best stack with another version than those taken."""
    excluded = ",".join(f"!={version}" for version in sorted(taken))
    found = _alternative(inquiry, optimum, name, Requirement(f"{name}{excluded}"), None)
    return found if not found.conflict else None


def _alternative(
    inquiry: ResolutionRequest, optimum: Optimum, name: NormalizedName, demand: Requirement, version: Version | None
) -> Alternative:
    other = inquiry.instead(_demanding(inquiry.problem, demand))
    try:
        best = other.best()
    except (NoSolution, SearchLimitError):
        return Alternative(version=version or Version("0"), conflict=_reason(other))
    values = zip(best.bounds, optimum.bounds, strict=True)
    return Alternative(
        version=next((c.version for c in best.stack if c.name == name), version or Version("0")),
        worse=tuple((b.objective, b.value - a.value) for b, a in values if b.value != a.value),
        libyears=inquiry.libyears(best.stack) - inquiry.libyears(optimum.stack),
        prediction=inquiry.predict(best.stack, {str(c.name): c.version for c in optimum.stack}),
        changes=differences(optimum.stack, best.stack),
    )


def _demanding(problem: ResolutionProblem, demand: Requirement) -> ResolutionProblem:
    """Return a problem with one more requirement of the user's own."""
    root = RootRequirement(requirement=demand, origin="asked for here")
    return replace(problem, roots=(*problem.roots, root))


def _reason(inquiry: ResolutionRequest) -> tuple[str, ...]:
    found = find_conflict(
        inquiry.problem, inquiry.source, limits=inquiry.criteria.limits, start=inquiry.baseline, effort=inquiry.effort
    )
    return tell(found, inquiry.source, inquiry.source.reasons) if found else ("no stack was found",)


def alternatives_of(explanation: Explanation) -> Sequence[tuple[str, Alternative]]:
    """Return the alternatives with what they are called."""
    named = (("the newest", explanation.against_newest), ("the runner-up", explanation.runner_up))
    return [(name, alternative) for name, alternative in named if alternative is not None]
