"""Prints how large the program is, and how its modules depend on each other.

    python -m benchmarks.structure [FOLDER]

FOLDER is another working tree of this repository.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx as nx

PACKAGES = ("advisor", "knowledge", "pi_runners")
SHORT = 60
"""Modules with fewer lines are short."""


def modules(folder: Path) -> Iterator[Path]:
    """Yield the modules of the program, without those that only make a folder a package."""
    for package in PACKAGES:
        yield from (path for path in sorted((folder / package).rglob("*.py")) if path.stat().st_size > 0)


def imports_inside(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the imports inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (own for own in ast.walk(node) if isinstance(own, ast.Import | ast.ImportFrom))


def is_for_types(node: ast.AST) -> bool:
    """Whether a statement is a block of imports that only annotations use."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def circles(folder: Path) -> list[list[str]]:
    """Return the groups of modules that import each other, also inside functions and for types."""
    sys.path.insert(0, str(folder))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = nx.DiGraph(
        (own, other) for own in graph.modules for other in graph.find_modules_directly_imported_by(own)
    )
    return [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    folder = parser.parse_args().folder.resolve()
    texts = {path.relative_to(folder): path.read_text(encoding="utf-8") for path in modules(folder)}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: text.count("\n") for path, text in texts.items()}
    for package in PACKAGES:
        own = {path: count for path, count in lines.items() if path.parts[0] == package}
        print(f"{package}: {sum(own.values())} lines in {len(own)} modules")
    rest = sum(count for path, count in lines.items() if path.parts[:2] != ("knowledge", "estimate"))
    print(f"lines without knowledge/estimate: {rest}")
    print(f"modules with fewer than {SHORT} lines: {sum(count < SHORT for count in lines.values())}")
    print(f"imports inside functions: {sum(len(set(imports_inside(tree))) for tree in trees.values())}")
    print(f"blocks of imports for types: {sum(is_for_types(n) for tree in trees.values() for n in ast.walk(tree))}")
    print(f"circles of modules: {len(found := circles(folder))}", *(" ".join(circle) for circle in found), sep="\n  ")


if __name__ == "__main__":
    main()
