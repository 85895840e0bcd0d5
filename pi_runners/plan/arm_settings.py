"""Environment variables for the settings of an arm, and why an arm cannot be measured with its settings."""

from __future__ import annotations

import platform
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from os import environ
from typing import Any

from packaging.version import Version

from knowledge.catalogue.fit import misfit_of
from knowledge.catalogue.settings import choices_of, environment_of, measured_statements_of, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.observation import Scalar
from knowledge.domain.stack import Stack
from knowledge.hardware.this_machine import installed_libraries

_UNKNOWN_FLAG = re.compile(r"Unknown flags? in (?:TF_)?XLA_FLAGS.*")


def variables_of(settings: Mapping[str, Scalar], backends: Iterable[str]) -> dict[str, str]:
    """Return the environment variables that apply settings on this machine, for the frameworks that run."""
    variables: dict[str, str] = {}
    for backend in backends:
        names = {name for _, choice in choices_of(settings, backend) for name in choice.library}
        libraries = {name: str(path) for name, path in installed_libraries(sorted(names)).items()}
        variables.update(environment_of(settings, backend, present=environ, libraries=libraries))
    return variables


def processors_of(settings: Mapping[str, Scalar], backends: Iterable[str]) -> int | None:
    """Return the number of processors that settings bind a program to; ``None`` if they bind it to none."""
    counts = [
        int(value)
        for backend in backends
        for value, choice in choices_of(settings, backend)
        if choice.processors == "count"
    ]
    return min(counts, default=None)


def import_request(settings: Mapping[str, Scalar], backends: Collection[str]) -> dict[str, Any]:
    """Return the part of a request that applies settings after imports of the program; JSON-ready.

    A program need not import a framework for a setting that the environment applies in another one.
    """
    statements = [asdict(part) for backend in backends for part in measured_statements_of(settings, backend)]
    from_outside = {
        f"{name}={value}"
        for name, value in settings.items()
        for backend in backends
        if (choice := shipped_settings()[name].choice(backend, value)) and (choice.environment or choice.processors)
    }
    required = dict.fromkeys(part["setting"] for part in statements if part["setting"] not in from_outside)
    return {"statements": statements, "import_settings": list(required)}


def obstacle(settings: Mapping[str, Scalar], backends: Iterable[str], stack: Stack) -> str:
    """Return why settings cannot be applied on this machine in a stack; empty if nothing speaks against it."""
    for backend in backends:
        for name, value in sorted(settings.items()):
            choice = shipped_settings()[name].choice(backend, value)
            if choice is None:
                continue
            misfit = misfit_of(choice, system=platform.system().lower(), libraries=installed_libraries)
            if misfit is not None and misfit.subject == "system":
                return f"`{name}={value}` needs {' or '.join(choice.systems)}, and this is {platform.system()}"
            if misfit is not None:
                return f"`{name}={value}` needs {' or '.join(f'`{n}`' for n in choice.library)}, which is not installed"
            for distribution, provided in FRAMEWORKS.items():
                version = stack.version_of(distribution)
                if provided == backend and version is not None and not choice.admits(Version(str(version))):
                    return f"`{name}={value}` needs {distribution}{choice.versions}, not {version}"
    return ""


def unknown_flag(error_output: str) -> str:
    """Return the message with which XLA refused a flag that it does not know; empty if there is none."""
    match = _UNKNOWN_FLAG.search(error_output)
    return match.group() if match else ""
