"""The dependency tree of a stack: text, JSON, Mermaid, DOT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import networkx
from packaging.utils import NormalizedName

from advisor.resolve.candidates.problem import PROJECT
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra

Graph: TypeAlias = "networkx.DiGraph[NormalizedName]"
FORMATS = ("text", "json", "mermaid", "dot")


def tree_report(graph: Graph, *, format: str, invert: bool, package: NormalizedName | None, depth: int | None) -> str:
    """Return a stack's requirements in a format of :data:`FORMATS`.

    Args:
        graph: The dependency graph, from the project down.
        format: The format.
        invert: Whether to list, below each package, the packages that require it.
        package: Where to start; if another package takes its place, that one. By default the project, or inverted,
            every package that requires nothing.
        depth: Levels to show; by default all.

    Raises:
        InputError: If the stack does not contain the package.
    """
    if package is not None and package not in graph:
        package = next((name for name in sorted(graph) if package in _replaced(graph, name)), package)
    if package is not None and package not in graph:
        raise InputError(
            f"the recommended stack does not contain `{package}`", hint="`advisor tree` lists its packages"
        )
    oriented = graph.reverse() if invert else graph
    starts = [package] if package is not None else [PROJECT]
    if invert and package is None:
        starts = sorted(name for name in graph if graph.out_degree(name) == 0 and name != PROJECT)
    paths = (networkx.single_source_shortest_path_length(oriented, start, cutoff=depth) for start in starts)
    part: Graph = oriented.subgraph(set().union(*paths)).copy()
    if format == "text":
        return "\n".join(line for start in starts for line in _lines(part, start))
    if format == "mermaid":
        return "\n".join(_mermaid(part))
    if format == "dot":
        return _dot(part)
    return json.dumps(_document(graph), indent=2)


def _label(graph: Graph, name: NormalizedName) -> str:
    if name == PROJECT:
        return "the project"
    replaced = ", ".join(_replaced(graph, name))
    return f"{name} {graph.nodes[name]['version']}{f' (instead of {replaced})' if replaced else ''}"


def _replaced(graph: Graph, name: NormalizedName) -> Sequence[NormalizedName]:
    """Return the required packages that a package takes the place of."""
    replaced: Sequence[NormalizedName] = graph.nodes[name].get("instead_of", ())
    return replaced


def _lines(graph: Graph, start: NormalizedName) -> Iterator[str]:
    """Yield a line for each package, indented below its parent; repeated packages are marked."""
    visited: set[NormalizedName] = set()

    def dependencies_of(name: NormalizedName, indent: str) -> Iterator[str]:
        children = sorted(graph.successors(name))
        for place, child in enumerate(children):
            last = place == len(children) - 1
            repeated = child in visited and any(True for _ in graph.successors(child))
            requirements = ", ".join(_specifiers(graph, name, child))
            yield f"{indent}{'└──' if last else '├──'} {_label(graph, child)}{requirements}{' (*)' if repeated else ''}"
            if child not in visited:
                visited.add(child)
                yield from dependencies_of(child, indent + ("    " if last else "│   "))

    visited.add(start)
    yield _label(graph, start)
    yield from dependencies_of(start, "")


def _specifiers(graph: Graph, parent: NormalizedName, child: NormalizedName) -> list[str]:
    """Return the requirements of a parent on a child, unless they admit every version."""
    requirements = graph.edges[parent, child]["requirements"]
    return [f" [{', '.join(requirements)}]"] if any(set(text) & set("<>=!~[") for text in requirements) else []


def _mermaid(graph: Graph) -> Iterator[str]:
    names = {name: f"n{place}" for place, name in enumerate(sorted(graph))}
    yield "flowchart LR"
    for name, node in names.items():
        yield f'    {node}["{_label(graph, name)}"]'
    for parent, child in sorted(graph.edges):
        yield f"    {names[parent]} --> {names[child]}"


def _dot(graph: Graph) -> str:
    labelled: networkx.DiGraph[str] = networkx.DiGraph(name="stack")
    for name in sorted(graph):
        labelled.add_node(f'"{name or "the project"}"', label=f'"{_label(graph, name)}"')
    labelled.add_edges_from((f'"{a or "the project"}"', f'"{b or "the project"}"') for a, b in sorted(graph.edges))
    with needs_extra("dot", "`--format dot`"):
        return str(networkx.nx_pydot.to_pydot(labelled).to_string()).rstrip()


def _document(graph: Graph) -> dict[str, object]:
    return {
        "schema_version": 1,
        "packages": [
            {
                "name": name,
                "version": graph.nodes[name]["version"],
                "instead_of": list(_replaced(graph, name)),
                "required_by": [
                    {"name": parent or None, "requirements": list(graph.edges[parent, name]["requirements"])}
                    for parent in sorted(graph.predecessors(name))
                ],
            }
            for name in sorted(graph)
            if name != PROJECT
        ],
    }
