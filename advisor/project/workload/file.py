"""`advisor-workload.toml`: the profiled workloads of a project.

An `InputError` is raised for a file that is not valid or cannot be written, and for a name that is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.project.text_file import read_toml, toml_text
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.shared_files import locked_directory, write_atomically
from knowledge.domain.workload import WORKLOAD_NAME, ProfiledWorkload

WORKLOAD_FILE = "advisor-workload.toml"
SCHEMA_VERSION = 1
_FIELDS = (
    *("name", "framework", "framework_version", "device", "hardware", "command", "source", "steps"),
    *("seconds_per_step", "unattributed", "versions", "layers"),
)
_PART_FIELDS = ("indicator", "share", "calls", "dtype", "direction", "parameters")
_HEADER = "# Profiled workloads of this project, written by `advisor workload`.\n"


def read_workloads(project: Path) -> tuple[ProfiledWorkload, ...]:
    """Return the profiled workloads of a project, in the order of its file; nothing if the file does not exist."""
    path = project / WORKLOAD_FILE
    if not path.exists():
        return ()
    # Imported here, because most projects have no such file, and pydantic is slow to import.
    from advisor.project.workload.schema import workloads_from

    workloads = workloads_from(read_toml(path).document, path)
    names = [workload.name for workload in workloads]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"`{path}` has two workloads with the name `{duplicate}`", hint="rename or remove one of them")
    return workloads


def select_workload(project: Path, name: str | None) -> ProfiledWorkload:
    """Return the profiled workload with a name; without a name, the only one of the project."""
    path = project / WORKLOAD_FILE
    workloads = {workload.name: workload for workload in read_workloads(project)}
    if not workloads:
        raise InputError(
            f"`{path}` has no profiled workloads", hint="profile a program with `advisor workload profile`"
        )
    if name is None and len(workloads) == 1:
        return next(iter(workloads.values()))
    if name is None:
        raise InputError(f"`{path}` has {len(workloads)} profiled workloads", hint=suggest("", workloads))
    if name not in workloads:
        raise InputError(f"there is no profiled workload `{name}` in `{path}`", hint=suggest(name, workloads))
    return workloads[name]


def write_workload(project: Path, workload: ProfiledWorkload) -> bool:
    """Add a workload to the file of a project; one with the same name is replaced.

    Returns:
        Whether a workload was replaced.
    """
    try:
        with locked_directory(project):
            workloads = read_workloads(project)
            others = [w for w in workloads if w.name != workload.name]
            write_atomically(project / WORKLOAD_FILE, workloads_toml([*others, workload]))
    except OSError as error:
        raise InputError(f"`{project / WORKLOAD_FILE}` cannot be written: {error.strerror or error}") from None
    return len(others) < len(workloads)


def workloads_toml(workloads: Iterable[ProfiledWorkload]) -> str:
    """Return the content of a file with workloads, sorted by name; the same workloads give the same bytes."""
    ordered = sorted(workloads, key=lambda w: w.name)
    document = {"schema_version": SCHEMA_VERSION, "workload": [workload_record(w) for w in ordered]}
    return _HEADER + toml_text(document)


def workload_record(workload: ProfiledWorkload) -> dict[str, Any]:
    """Return a workload as values for TOML and JSON; values that are unknown are left out."""
    record = _record(replace(workload, versions=dict(sorted(workload.versions.items()))), _FIELDS)
    kernels = [{"name": kernel.name, "share": _plain(kernel.share)} for kernel in workload.kernels]
    parts = [_record(part, _PART_FIELDS) for part in workload.parts]
    return record | ({"kernel": kernels} if kernels else {}) | ({"part": parts} if parts else {})


def _record(value: object, names: Iterable[str]) -> dict[str, Any]:
    record = {name: _plain(getattr(value, name)) for name in names}
    return {name: plain for name, plain in record.items() if plain not in ("", [], {})}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return list(value) if isinstance(value, tuple) else value


def check_name(name: str) -> str:
    """Return the name of a workload."""
    if not re.match(WORKLOAD_NAME, name):
        raise InputError(
            f"`{name}` is not a valid name of a workload", hint="use letters, digits, `.`, `_` and `-`, at most 100"
        )
    return name
