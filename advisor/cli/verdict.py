"""`advisor verdict`: what a change of a lock does to the speed of the project."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.options import ProjectOptions
from advisor.cli.check import (
    BaseOption,
    DetailsOption,
    ExitZeroOption,
    GateFormatOption,
    GateReport,
    ReportFilesOption,
    exit_with,
)
from advisor.cli.options import expand_options
from knowledge.domain.errors import InputError

_OPERATOR = re.compile(r"[=<>~!]")


@expand_options
def verdict(
    project: ProjectOptions,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PACKAGE==VERSION]...", help="Versions that the lock is changed to."),
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="LOCK", help="Lock after the change (default: the project's).")
    ] = None,
    base: BaseOption = None,
    format: GateFormatOption = "text",
    output: ReportFilesOption = None,
    details: DetailsOption = False,
    exit_zero: ExitZeroOption = False,
) -> None:
    """Say what a change of the lock does to speed, for each target: better, worse, no difference, or not known.

    The change is the smallest one that has the named versions, or the difference between two locks. It also names
    documented slow-downs, rules, the size, vulnerabilities, and what recovers a loss. Exit codes are those of `check`.
    """
    words = [str(project.files.directory), *(changes or ())]
    upgrades, directories = [w for w in words if _OPERATOR.search(w)], [w for w in words if not _OPERATOR.search(w)]
    if len(directories) > 1 and directories[0] == ".":
        del directories[0]
    if len(directories) > 1:
        raise InputError(f"`{directories[1]}` does not say what to change", hint="write it as `torch==2.13.0`")
    directory = Path(directories[0] if directories else ".")
    files = replace(project.files, directory=directory, current=head or project.files.current)
    report = GateReport(format, output or (), details=details)
    with api.gate_session.open_verdict(replace(project, files=files), upgrades, base=base) as (result, _):
        report.write(result)
    exit_with(result, exit_zero=exit_zero)
