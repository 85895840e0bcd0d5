"""The schema of `advisor-workload.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.workload import WORKLOAD_NAME, Direction, KernelShare, ProfiledWorkload, WorkloadPart
from knowledge.records import RecordError, value_from

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
    name: Annotated[str, Field(pattern=WORKLOAD_NAME)]
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


def workloads_from(document: Mapping[str, Any], path: Path) -> tuple[ProfiledWorkload, ...]:
    """Return the workloads of a file.

    Raises:
        InputError: If they do not match the schema, or the shares of a workload do not add up.
    """
    try:
        return tuple(_value(workload) for workload in value_from(_File, document).workload)
    except RecordError as error:
        raise InputError(
            f"`{path}` is not valid: {error.reason}" + (f", in `{error.place}`" if error.place else ""),
            hint="profile the program again with `advisor workload profile`",
        ) from None
    except AdvisorError as error:
        error.message = f"{error.message}, in `{path}`"
        raise


def _value(workload: _Workload) -> ProfiledWorkload:
    fields = workload.model_dump(exclude={"part", "kernel", "command"})
    return ProfiledWorkload(
        **fields,
        command=tuple(workload.command),
        parts=tuple(WorkloadPart(**part.model_dump()) for part in workload.part),
        kernels=tuple(KernelShare(**kernel.model_dump()) for kernel in workload.kernel),
    )
