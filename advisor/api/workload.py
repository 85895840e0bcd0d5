"""Profiled workloads of a project: profile a program, import a trace, read and write `advisor-workload.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.project.code.files import project_files
from advisor.project.workload.file import check_name, read_workloads, write_workload
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.workload import ProfiledWorkload
from knowledge.hardware.profiles import find_profile
from pi_runners.profile.read import read_trace
from pi_runners.profile.run import ProfileRequest, profile_program
from pi_runners.profile.summary import workload_of

__all__ = ["ProfileRequest", "WorkloadResult", "import_trace", "profile_workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """A workload that was written to the file of a project.

    Attributes:
        workload: The workload.
        replaced: Whether it replaced one with the same name.
        warnings: What the user should know about the profile, as sentences.
    """

    workload: ProfiledWorkload
    replaced: bool
    warnings: tuple[str, ...]


def profile_workload(request: ProfileRequest, *, name: str | None = None) -> WorkloadResult:
    """Profile a program, and write its workload, by default with the name of its file, to the file of the project.

    Raises:
        InputError: If the program cannot be profiled, or the file is not valid.
    """
    # An invalid file or name is reported before the program runs.
    read_workloads(request.directory)
    name = check_name(name or _name_of(request.command))
    before = _source_state(request.directory)
    profile = profile_program(request)
    changed = _changed_files(before, _source_state(request.directory))
    cpu = find_profile("detect").cpu
    workload = workload_of(
        profile.summary,
        name=name,
        source="advisor workload profile",
        command=request.command,
        versions=profile.versions,
        framework=_distribution(profile.summary.framework, profile.versions),
        hardware=cpu.model or cpu.microarchitecture,
    )
    replaced = write_workload(request.directory, workload)
    return WorkloadResult(workload=workload, replaced=replaced, warnings=(*profile.warnings, *changed))


def import_trace(
    trace: Path, *, project: Path, name: str | None = None, framework: str | None = None, steps: int = 0
) -> WorkloadResult:
    """Read a trace, and write its workload, by default with the name of its file, to the file of a project.

    Args:
        trace: The trace.
        project: Directory of the project.
        name: Name of the workload.
        framework: Distribution and version that were profiled, such as ``torch==2.9.1``; unknown by default.
        steps: Steps in a trace that does not mark them; 0 if unknown.

    Raises:
        InputError: If the trace or the file of the project is not valid.
    """
    read_workloads(project)
    distribution, version = _framework_version(framework) if framework else ("", "")
    name = check_name(name or _name_of((trace.name,)))
    summary = read_trace(trace, steps=steps)
    if distribution and FRAMEWORKS.get(distribution, distribution) != summary.framework:
        raise InputError(f"the trace is of `{summary.framework}`, not of `{distribution}`")
    workload = workload_of(
        summary,
        name=name,
        source=trace.name,
        versions={distribution: version} if distribution else {},
        framework=distribution,
    )
    replaced = write_workload(project, workload)
    return WorkloadResult(workload=workload, replaced=replaced, warnings=summary.warnings)


def _source_state(directory: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of the source files of a project."""
    return {file.name: (file.size, file.modified) for file in project_files(directory)}


def _changed_files(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a warning if source files changed while the program ran."""
    changed = sorted(name for name, state in before.items() if after.get(name) != state)
    if not changed:
        return []
    names = ", ".join(f"`{name}`" for name in changed[:5]) + (", ..." if len(changed) > 5 else "")
    return [f"the program changed its own source files: {names}; the profile may be of another program"]


def _name_of(words: tuple[str, ...]) -> str:
    """Return a name from the first file name of a command, without its suffixes."""
    names = [Path(word).name for word in words]
    file = next((n for n in names if n.endswith((".py", ".json", ".gz", ".pb"))), names[-1] if names else "")
    stem = re.sub(r"(\.pt)?(\.trace)?(\.xplane)?\.(py|json|pb)(\.gz)?$", "", file)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100] or "workload"


def _distribution(framework: str, versions: Mapping[str, str]) -> str:
    """Return the installed distribution of a framework, such as ``tensorflow-cpu``."""
    return next((name for name, backend in FRAMEWORKS.items() if backend == framework and name in versions), framework)


def _framework_version(text: str) -> tuple[str, str]:
    name, _, version = text.partition("==")
    try:
        return canonicalize_name(name.strip()), str(Version(version))
    except InvalidVersion:
        raise InputError(
            f"`{text}` is not a framework with a version", hint="write `--framework torch==2.9.1`"
        ) from None
