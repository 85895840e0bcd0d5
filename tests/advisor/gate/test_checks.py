"""Each check is one function of a module, and a new check is one file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from advisor.gate import checks, policy, releases
from advisor.gate.base import policy as base_policy
from advisor.gate.check import unreadable
from advisor.gate.checks import checks_of
from advisor.gate.findings import gate_codes
from advisor.gate.problem import find_unchecked_locks
from tests.advisor.gate.steps import Run

NAMES = [module.name for module in pkgutil.iter_modules(checks.__path__)]
MODULES = [importlib.import_module(f"{checks.__name__}.{name}") for name in NAMES]
_TOY = '''
def check_names(scope):
    """Yield a note for each locked package."""
    yield from (scope.finding("ADV022", f"the lock has `{name}`", package=name) for name in scope.lock.packages)


STATE_CHECKS = (check_names,)
'''


def test_each_code_belongs_to_a_check_or_to_the_policy() -> None:
    parts: tuple[Any, ...] = (*MODULES, policy, base_policy, unreadable, find_unchecked_locks, releases)

    codes = {code for part in parts for code in re.findall(r'"(ADV\d{3})"', inspect.getsource(part))}

    assert codes == set(gate_codes())


def test_each_check_has_one_argument_and_is_listed() -> None:
    listed = {*checks_of("STATE_CHECKS"), *checks_of("CHANGE_CHECKS")}
    defined = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("check_") and function.__module__ == module.__name__
    }

    assert {function.__name__ for function in defined - listed} == {"check_gap"}
    assert all(list(inspect.signature(check).parameters) == ["scope"] for check in listed)


def test_a_file_is_a_check(project: Path, check: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "toy.py").write_text(_TOY)
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(folder)])

    messages = {finding["message"] for finding in check()["findings"]}

    assert {"the lock has `a`", "the lock has `b`"} <= messages
