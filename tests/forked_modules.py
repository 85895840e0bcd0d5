"""Imports every module of this project and the libraries that commands need, for the fork server."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil

from requests.utils import DEFAULT_CA_BUNDLE_PATH

import advisor
import knowledge
import pi_runners
from advisor.gate.findings import all_codes
from advisor.index.http.connection import trust_in
from advisor.project.settings.code_patterns import code_patterns
from knowledge.catalogue.builds import shipped_builds
from knowledge.catalogue.rules import shipped_rules, undeclared_requirements
from knowledge.catalogue.settings import shipped_settings
from knowledge.catalogue.variant_properties import variant_namespaces
from knowledge.estimate.workloads import workload_catalogue
from knowledge.hardware.detect import detect
from knowledge.hardware.profiles import find_profile

# Libraries that are imported inside functions.
_LAZY = (
    "alembic.command",
    "archspec.cpu",
    "email.policy",
    "kubernetes.client.api.batch_v1_api",
    "kubernetes.client.api.core_v1_api",
    "lxml.html",
    "networkx",
    "numpy",
    "ortools.sat.python.cp_model_helper",
    "packaging.metadata",
    "pip_requirements_parser",
    "platformdirs.unix",
    "requests",
    "rich.console",
    "sqlalchemy.dialects.sqlite",
    "tomli_w",
    "typer._adapters",
    "yaml",
)
for _name in (*_LAZY, "scipy.linalg", "scipy.optimize", "scipy.special"):
    importlib.import_module(_name)
for _package in (advisor, knowledge, pi_runners):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        if (
            not _module.name.endswith(("__main__", "sitecustomize"))
            and ".frameworks." not in _module.name
            and ".migrations" not in _module.name
        ):
            importlib.import_module(_module.name)
# What functions read once per process: shipped data, this machine, certificates.
for _read in (
    *(all_codes, code_patterns, shipped_builds, variant_namespaces, shipped_rules, undeclared_requirements),
    *(shipped_settings, workload_catalogue, detect),
):
    _read()
find_profile("cpu-zen4")
trust_in(os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH)
# Garbage collection in a forked process does not visit, and so does not copy, what they share.
gc.freeze()
