"""Only the modules that say so import what opens network connections; ruff and import-linter refuse others."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return the imports of the program, with those of other distributions and of the standard library."""
    return grimp.build_graph("advisor", "knowledge", "pi_runners", include_external_packages=True, cache_dir=None)


def is_kept(graph: grimp.ImportGraph) -> bool:
    """Whether imports keep the contract about sockets."""
    configuration = read_configuration(str(ROOT / "pyproject.toml"))
    [contract] = [c for c in configuration["contracts_options"] if c["name"].endswith("open sockets")]
    checked = ForbiddenContract(contract["name"], configuration["session_options"], contract)
    return checked.check(graph, verbose=False).kept


def test_the_program_keeps_the_contract_about_sockets(graph: grimp.ImportGraph) -> None:
    assert is_kept(copy.deepcopy(graph))


@pytest.mark.parametrize("package", ["http", "kubernetes", "requests", "socket", "urllib3"])
@pytest.mark.parametrize(
    "module",
    ["advisor.domain.target", "advisor.index.configuration", "knowledge.service.app", "pi_runners.plan.matrix"],
)
def test_an_import_of_what_opens_connections_breaks_it(module: str, package: str, graph: grimp.ImportGraph) -> None:
    other = copy.deepcopy(graph)
    assert module in other.modules
    other.add_import(importer=module, imported=package)

    assert not is_kept(other)


@pytest.mark.parametrize(
    "line", ["import urllib.request", "from urllib import request", "from urllib.request import urlopen"]
)
def test_an_import_of_urllib_request_is_refused(line: str) -> None:
    command = [
        "ruff",
        "check",
        "--output-format=concise",
        "--select=TID251",
        "--stdin-filename=advisor/domain/own.py",
        "-",
    ]

    run = subprocess.run(command, input=f"{line}\n", cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 1, run.stderr
    assert "`urllib.request` is banned: read an index through `advisor/index`" in run.stdout
