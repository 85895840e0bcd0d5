"""Why each package has its version, and which requirements brought it into the stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.utils import NormalizedName

from advisor.resolve.problem import Candidate, CandidateSource, Dependency, ResolutionProblem
from knowledge.estimate.interface import Prediction
from knowledge.rules.engine import RuleBook

if TYPE_CHECKING:
    import networkx

PROJECT = NormalizedName("")
"""The node that stands for the project itself."""


def requirements_within(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> dict[NormalizedName, dict[NormalizedName, tuple[str, ...]]]:
    """Return, for :data:`PROJECT` and each package of a stack, what it requires and what it asks for there.

    What is required and not in the stack is there, and requires nothing.
    """
    chosen = {candidate.name: candidate for candidate in stack}
    found: dict[NormalizedName, dict[NormalizedName, tuple[str, ...]]] = {PROJECT: {}}
    seen: set[tuple[NormalizedName, NormalizedName | None]] = set()
    queue: list[tuple[NormalizedName, NormalizedName | None]] = []

    def require(parent: NormalizedName, dependency: Dependency) -> None:
        text = str(dependency.requirement).partition(";")[0].strip()
        asked = found[parent].get(dependency.name, ())
        found[parent][dependency.name] = tuple(dict.fromkeys((*asked, text)))
        queue.extend((dependency.name, extra) for extra in (None, *dependency.extras))

    for root in problem.roots:
        if not root.constraint and problem.applies(root.requirement):
            require(PROJECT, Dependency(name=root.name, requirement=root.requirement))
    while queue:
        name, extra = queue.pop()
        if (name, extra) not in seen:
            seen.add((name, extra))
            found.setdefault(name, {})
            if name not in chosen:
                continue
            for dependency in source.dependencies(chosen[name], extra) or ():
                require(name, dependency)
    return found


def dependency_graph(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> networkx.DiGraph[NormalizedName]:
    """Return who requires whom in a stack, from :data:`PROJECT` down.

    An edge runs from what requires to what is required; its ``requirements`` say what is asked for. A node's
    ``version`` is that of the stack.
    """
    import networkx

    graph: networkx.DiGraph[NormalizedName] = networkx.DiGraph()
    graph.add_node(PROJECT)
    graph.add_nodes_from((candidate.name, {"version": str(candidate.version)}) for candidate in stack)
    for parent, required in requirements_within(problem, source, stack).items():
        graph.add_edges_from((parent, name, {"requirements": texts}) for name, texts in required.items())
    return graph


def _shortest_paths(
    required: Mapping[NormalizedName, Collection[NormalizedName]],
) -> dict[NormalizedName, list[NormalizedName]]:
    """Return the shortest path from the project to each package; networkx would take longer to load than to search."""
    paths: dict[NormalizedName, list[NormalizedName]] = {PROJECT: []}
    queue = [PROJECT]
    for parent in queue:
        for name in required[parent]:
            if name not in paths:
                paths[name] = [*paths[parent], name]
                queue.append(name)
    return paths


def explain_stack(
    problem: ResolutionProblem,
    source: CandidateSource,
    *,
    stack: Sequence[Candidate],
    baseline: Sequence[Candidate],
    rules: RuleBook,
    prediction: Prediction,
) -> dict[str, str]:
    """Say for each package of a stack, in a few words, why it has its version and what requires it."""
    paths = _shortest_paths(requirements_within(problem, source, stack))
    plain = {c.name: c for c in baseline}
    blamed = _forbidden_below(problem, source, baseline, rules)
    reasons: dict[str, str] = {}
    for candidate in stack:
        reason = _reason(candidate, plain.get(candidate.name), source, blamed, prediction)
        between = paths[candidate.name][:-1]
        reasons[candidate.name] = f"{reason}; via {' > '.join(between)}" if between else reason
    return reasons


def _forbidden_below(
    problem: ResolutionProblem, source: CandidateSource, baseline: Sequence[Candidate], rules: RuleBook
) -> dict[NormalizedName, str]:
    """Return, for each package of the baseline that is forbidden or requires what is, the rule's message."""
    forbidden = [
        (candidate.name, verdict.message)
        for candidate in baseline
        for verdict in rules.judge(candidate.name, candidate.version)
        if verdict.severity == "forbidden"
    ]
    if not forbidden:
        return {}
    import networkx

    graph = dependency_graph(problem, source, baseline)
    blamed: dict[NormalizedName, str] = {}
    for package, message in forbidden:
        for name in sorted((networkx.ancestors(graph, package) - {PROJECT}) | {package}):
            blamed.setdefault(name, message)
    return blamed


def _reason(
    candidate: Candidate,
    plain: Candidate | None,
    source: CandidateSource,
    blamed: Mapping[NormalizedName, str],
    prediction: Prediction,
) -> str:
    for change in prediction.changes:
        if change.package == candidate.name and plain is not None:
            return f"predicted {change.speedup:.3f}x the speed of {plain.version} [{change.low:.3f}, {change.high:.3f}]"
    if candidate.version == source.candidates(candidate.name)[0].version:
        return "newest for the target"
    if plain is None:
        return "newest that the other choices admit"
    if plain.version == candidate.version:
        return "newest that the requirements admit"
    if candidate.name in blamed:
        return f"{plain.version} does not run on the target: {blamed[candidate.name]}"
    return "follows from the other choices"
