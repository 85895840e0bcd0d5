"""`advisor-workload.toml`: the profiled workloads of a project."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knowledge.domain.atomic_file import write_atomically
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.file_lock import locked_directory
from knowledge.domain.suggestions import suggest
from knowledge.domain.toml import parse_toml
from knowledge.domain.workload import Direction, KernelShare, ProfiledWorkload, WorkloadPart

WORKLOAD_FILE = "advisor-workload.toml"
SCHEMA_VERSION = 1
_MAX_BYTES = 16_000_000
_HEADER = "# Profiled workloads of this project, written by `advisor workload`.\n"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

_Text = Annotated[str, Field(max_length=10_000)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Model):
    indicator: _Text
    share: _Amount
    calls: _Amount = 0.0
    parameters: dict[str, int | str] = {}
    dtype: _Text = ""
    direction: Direction = ""


class _Kernel(_Model):
    name: _Text
    share: _Amount


class _Workload(_Model):
    name: Annotated[str, Field(pattern=_NAME)]
    framework: _Text
    framework_version: _Text = ""
    device: Literal["cpu", "cuda"] = "cpu"
    hardware: _Text = ""
    command: list[_Text] = []
    source: _Text = ""
    steps: Annotated[int, Field(ge=0)] = 0
    seconds_per_step: _Amount = 0.0
    unattributed: _Amount
    versions: dict[str, str] = {}
    layers: dict[str, _Amount] = {}
    kernel: list[_Kernel] = []
    part: list[_Part] = []


class _File(_Model):
    schema_version: Literal[1]
    workload: list[_Workload] = []


def read_workloads(project: Path) -> tuple[ProfiledWorkload, ...]:
    """Return the profiled workloads of a project, in the order of its file; none if the file does not exist.

    Args:
        project: Directory of the project.

    Raises:
        InputError: If the file is not valid, or if the shares of a workload do not add up.
    """
    path = project / WORKLOAD_FILE
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"`{path}` is larger than {_MAX_BYTES // 1_000_000} MB: it is not a file of workloads")
        document = parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"`{path}` could not be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        # Errors of the encoding and of TOML, and an integer with too many digits.
        raise InputError(f"`{path}` is not valid TOML: {error}") from None
    try:
        content = _File.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"`{path}` is not valid: {first['msg'].lower()}" + (f", in `{place}`" if place else ""),
            hint="profile the program again with `advisor workload profile`",
        ) from None
    try:
        workloads = tuple(_value(workload) for workload in content.workload)
    except AdvisorError as error:
        error.message = f"{error.message}, in `{path}`"
        raise
    names = [workload.name for workload in workloads]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"`{path}` has two workloads with the name `{duplicate}`", hint="rename or remove one of them")
    return workloads


def select_workload(project: Path, name: str | None) -> ProfiledWorkload:
    """Return one profiled workload of a project.

    Args:
        project: Directory of the project.
        name: Its name; none for the only one.

    Raises:
        InputError: If the file is not valid, or has no workload with this name, or several and no name is given.
    """
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

    Args:
        project: Directory of the project.
        workload: The workload.

    Returns:
        Whether a workload was replaced.

    Raises:
        InputError: If the file is not valid or cannot be written.
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
    import tomli_w

    ordered = sorted(workloads, key=lambda w: w.name)
    document = {"schema_version": SCHEMA_VERSION, "workload": [workload_record(w) for w in ordered]}
    return _HEADER + tomli_w.dumps(document)


def workload_record(workload: ProfiledWorkload) -> dict[str, Any]:
    """Return a workload as values for TOML and JSON; values that are unknown are left out."""
    fields: dict[str, Any] = {
        "name": workload.name,
        "framework": workload.framework,
        "framework_version": workload.framework_version,
        "device": workload.device,
        "hardware": workload.hardware,
        "command": list(workload.command),
        "source": workload.source,
        "steps": workload.steps,
        "seconds_per_step": _rounded(workload.seconds_per_step),
        "unattributed": _rounded(workload.unattributed),
        "versions": dict(sorted(workload.versions.items())),
        "layers": {layer: _rounded(share) for layer, share in workload.layers.items()},
        "kernel": [{"name": k.name, "share": _rounded(k.share)} for k in workload.kernels],
        "part": [_part_record(part) for part in workload.parts],
    }
    return {key: value for key, value in fields.items() if value not in ("", [], {})}


def _part_record(part: WorkloadPart) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "indicator": part.indicator,
        "share": _rounded(part.share),
        "calls": _rounded(part.calls),
        "dtype": part.dtype,
        "direction": part.direction,
        "parameters": dict(part.parameters),
    }
    return {key: value for key, value in fields.items() if value not in ("", {})}


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def check_name(name: str) -> str:
    """Return the name of a workload.

    Raises:
        InputError: If it is not valid.
    """
    if not re.match(_NAME, name):
        raise InputError(
            f"`{name}` is not a valid name of a workload", hint="use letters, digits, `.`, `_` and `-`, at most 100"
        )
    return name


def _value(workload: _Workload) -> ProfiledWorkload:
    fields = workload.model_dump(exclude={"part", "kernel", "command"})
    return ProfiledWorkload(
        **fields,
        command=tuple(workload.command),
        parts=tuple(WorkloadPart(**part.model_dump()) for part in workload.part),
        kernels=tuple(KernelShare(**kernel.model_dump()) for kernel in workload.kernel),
    )
