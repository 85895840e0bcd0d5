"""Imports every module of this project and the libraries that commands need, for the fork server."""

from __future__ import annotations

import gc
import importlib
import pkgutil

import advisor
import knowledge
import pi_runners
from knowledge.estimate.workloads import workload_catalogue
from knowledge.rules.catalogue import shipped_rules

# Libraries that are imported inside functions.
_LAZY = (
    "alembic.command",
    "kubernetes",
    "lxml.html",
    "networkx",
    "numpy",
    "ortools.sat.python.cp_model_helper",
    "requests",
    "rich.console",
    "yaml",
)
for _name in (*_LAZY, "scipy.linalg", "scipy.optimize", "scipy.special"):
    importlib.import_module(_name)
for _package in (advisor, knowledge, pi_runners):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        if (
            not _module.name.endswith("__main__")
            and ".backends." not in _module.name
            and ".migrations" not in _module.name
        ):
            importlib.import_module(_module.name)
# Shipped data that functions read once per process.
shipped_rules()
workload_catalogue()
# Garbage collection in a forked process does not visit, and so does not copy, what they share.
gc.freeze()
