"""The checks of the gate: a check is a function of one module here, and the list of checks is what the modules list.

A module lists its checks of one state of a project in `STATE_CHECKS`: a change is not blamed for findings of its base.
It lists its checks of a change in `CHANGE_CHECKS`; without a base, only the limit of the download applies.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Literal

from advisor.gate.scope import Check

_FIRST = ("compatibility", "settings", "unindexed", "artifacts", "requirements", "speed_limits")
"""Modules that come first; if an index cannot be read, the findings of earlier checks are reported."""


def checks_of(kind: Literal["STATE_CHECKS", "CHANGE_CHECKS"]) -> tuple[Check, ...]:
    """Return the checks of all modules, those that need no index first."""
    others = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _FIRST)
    modules = [importlib.import_module(f"{__name__}.{name}") for name in (*_FIRST, *others)]
    return tuple(check for module in modules for check in getattr(module, kind, ()))
