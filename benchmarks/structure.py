"""Prints how large the program is, and how its modules depend on each other.

    python -m benchmarks.structure [FOLDER]
    python -m benchmarks.structure --way ARGUMENT...

FOLDER is another working tree of this repository. With `--way`, the program runs the command with these arguments,
such as `advise`, and prints which functions of `advisor` it passed through, and which of them only pass on: their body
is one call with nothing but names. Three kinds with such a body are listed apart and not counted: properties; methods
of value types (frozen dataclasses) and protocols that use `self`, because they add what the value has; functions inside
functions, because they postpone a call. These are rules, not judgements: read the list.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

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


def only_passes_on(function: ast.FunctionDef) -> bool:
    """Whether the body of a function is one call with nothing but names."""

    def is_name(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute | ast.Starred) and is_name(node.value))

    body = [own for own in function.body if not isinstance(own, ast.Import | ast.ImportFrom)]
    body = body[1:] if ast.get_docstring(function) is not None else body
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return | ast.Expr) else None
    if not isinstance(call, ast.Call) or not (call.args or call.keywords) or not is_name(call.func):
        return False
    return all(map(is_name, (*call.args, *(keyword.value for keyword in call.keywords))))


def functions_of(tree: ast.AST, parent: ast.AST | None = None) -> Iterator[tuple[ast.FunctionDef, ast.AST]]:
    """Yield the functions of a module, each with the module, class or function that it is in."""
    parent = parent or tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, parent
        is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions_of(node, node if is_scope else parent)


def needs_its_name(function: ast.FunctionDef, parent: ast.AST) -> bool:
    """Whether a function is a property, a method of a value type or a protocol that uses it, or inside a function."""
    if isinstance(parent, ast.ClassDef):
        signs = {ast.unparse(node) for node in (*function.decorator_list, *parent.bases)}
        is_value = "Protocol" in signs or any("frozen=True" in ast.unparse(d) for d in parent.decorator_list)
        uses_self = any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(function))
        return not signs.isdisjoint({"property", "cached_property"}) or (is_value and uses_self)
    return isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)


def print_way(arguments: Sequence[str]) -> None:
    """Run a command and print the functions of `advisor` that it passed through."""
    from advisor.cli.app import main as run_command

    places: dict[tuple[str, int], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/advisor/" in frame.f_code.co_filename:
            places[frame.f_code.co_filename, frame.f_code.co_firstlineno] = None

    sys.argv = ["advisor", *arguments]
    sys.setprofile(note)
    with suppress(SystemExit):
        run_command()
    sys.setprofile(None)
    functions = [
        (path, node, parent)
        for path in {path: None for path, _ in places}
        for node, parent in functions_of(ast.parse(Path(path).read_text(encoding="utf-8")))
        if (path, min([node.lineno, *(own.lineno for own in node.decorator_list)])) in places
    ]
    passing = [function for function in functions if only_passes_on(function[1])]
    apart = [function for function in passing if needs_its_name(*function[1:])]
    counted = [function for function in passing if function not in apart]
    print(f"\nfunctions of advisor: {len(functions)}; only pass on: {len(counted)}; not counted: {len(apart)}")
    for title, listed in (("only pass on", counted), ("not counted", apart)):
        print(
            f"{title}:",
            *(f"{path.rpartition('/advisor/')[2]}:{node.lineno} {node.name}" for path, node, _ in listed),
            sep="\n  ",
        )


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["--way"]:
        print_way(sys.argv[2:])
        return
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
