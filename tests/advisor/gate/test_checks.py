"""Each check is one function of a module that names the codes of its findings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

from advisor.gate import checks, policy
from advisor.gate.base import policy as base_policy
from advisor.gate.check import CHANGE_CHECKS, STATE_CHECKS, unreadable
from advisor.gate.findings import gate_codes

NAMES = [module.name for module in pkgutil.iter_modules(checks.__path__)]
MODULES = [importlib.import_module(f"{checks.__name__}.{name}") for name in NAMES]


def codes_in(text: str) -> set[str]:
    """Return the codes that a text names in quotes."""
    return set(re.findall(r'"(ADV\d{3})"', text))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_module_names_the_codes_of_its_findings(module: ModuleType) -> None:
    source = inspect.getsource(module)
    declaration = re.search(r"^CODES = \((.*?)\)$", source, re.MULTILINE | re.DOTALL)

    assert declaration is not None
    assert set(module.CODES) <= set(gate_codes())
    assert set(module.CODES) == codes_in(source.replace(declaration[0], "")) - _read_by(module)


def _read_by(module: ModuleType) -> set[str]:
    """Return codes that a module compares with those of other findings."""
    return {"ADV014", "ADV024"} if module.__name__.endswith("artifacts") else set()


def test_each_code_belongs_to_a_check_or_to_the_policy() -> None:
    of_checks = {code for module in MODULES for code in module.CODES}
    others = inspect.getsource(policy) + inspect.getsource(base_policy) + inspect.getsource(unreadable)

    assert of_checks | codes_in(others) == set(gate_codes())


def test_each_check_has_one_argument_and_is_called() -> None:
    listed = {*STATE_CHECKS, *CHANGE_CHECKS}
    defined = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("check_") and function.__module__ == module.__name__
    }

    assert {function.__name__ for function in defined - listed} == {"check_gap"}
    assert all(list(inspect.signature(check).parameters) == ["scope"] for check in listed)
