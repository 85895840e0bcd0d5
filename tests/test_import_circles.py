"""No module imports itself through others, also not inside functions and for types; no test imports another test."""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import networkx as nx

ROOT = Path(__file__).parents[1]


def test_there_are_no_circles_of_modules() -> None:
    graph = grimp.build_graph("advisor", "knowledge", "pi_runners", cache_dir=None)
    imports = nx.DiGraph(
        (module, imported) for module in graph.modules for imported in graph.find_modules_directly_imported_by(module)
    )

    packages = ("advisor", "knowledge", "pi_runners")
    files = {path.with_suffix("") for package in packages for path in (ROOT / package).rglob("*.py")}
    # Templates of migrations and the like are in folders that are no packages.
    modules = {".".join(path.relative_to(ROOT).parts).removesuffix(".__init__") for path in files}
    assert graph.modules <= modules
    assert len(graph.modules) > 0.95 * len(modules)
    assert graph.direct_import_exists(importer="pi_runners.harness.worker", imported="pi_runners.indicators")
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == []


def test_no_test_module_imports_another() -> None:
    paths = [*Path(__file__).parent.rglob("*.py")]
    imported = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)

    assert len(paths) > 200
    assert [path.name for path in paths if imported.search(path.read_text(encoding="utf-8"))] == []
