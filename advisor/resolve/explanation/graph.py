"""The graph of requirements of a stack (networkx, which is slow to import: import this module where it is needed)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from networkx import DiGraph, shortest_simple_paths
from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import PROJECT, Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.explanation.stack_requirements import replaced_by_replacement, requirements_within

MAX_PATHS = 20
"""Maximum number of paths that are listed."""


def dependency_graph(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate]
) -> DiGraph[NormalizedName]:
    """Return the dependency graph of a stack, starting at :data:`PROJECT`.

    An edge leads from a package to one that it requires and has the ``requirements`` as texts; a node has its
    ``version`` in the stack, and the packages that it is there ``instead_of``.
    """
    graph: DiGraph[NormalizedName] = DiGraph()
    graph.add_node(PROJECT)
    replaced = replaced_by_replacement(problem, source, stack)
    graph.add_nodes_from(
        (c.name, {"version": str(c.version), "instead_of": tuple(replaced.get(c.name, ()))}) for c in stack
    )
    for parent, required in requirements_within(problem, source, stack).items():
        graph.add_edges_from((parent, name, {"requirements": texts}) for name, texts in required.items())
    return graph


def requirements_on(graph: DiGraph[NormalizedName], name: NormalizedName) -> tuple[tuple[str, str], ...]:
    """Return what requires a package of a stack, each with the requirements."""
    return tuple(
        (f"{parent} {graph.nodes[parent]['version']}" if parent else "the project", ", ".join(about["requirements"]))
        for parent, _, about in sorted(graph.in_edges(name, data=True), key=lambda edge: edge[0])
    )


def paths_to(graph: DiGraph[NormalizedName], name: NormalizedName) -> tuple[tuple[tuple[str, ...], ...], bool]:
    """Return the shortest paths from the project to a package, and whether there are more of them."""
    simple = shortest_simple_paths(graph, PROJECT, name)
    paths = [tuple(str(node) for node in path[1:]) for path in itertools.islice(simple, MAX_PATHS + 1)]
    return tuple(paths[:MAX_PATHS]), len(paths) > MAX_PATHS
