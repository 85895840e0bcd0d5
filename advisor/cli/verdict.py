"""`advisor verdict`: what a change of a lock does to the speed of the project."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import ProjectOptions
from advisor.cli.check import BaseOption, GateReport, GateReportOptions
from advisor.cli.console import duration, say
from advisor.cli.options import Only, expand_options
from advisor.domain.words import slowdown_text
from advisor.experiment.bisection import Combination
from knowledge.domain.errors import InputError

_Limits = Annotated[ExperimentOptions, Only(("budget_seconds", "max_download_bytes", "max_disk_bytes", "max_load"))]
_OPERATOR = re.compile(r"[=<>~!]")


@expand_options
def verdict(
    project: ProjectOptions,
    limits: _Limits,
    reported: GateReportOptions,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PACKAGE==VERSION]...", help="Versions that the lock is changed to."),
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="LOCK", help="Lock after the change (default: the project's).")
    ] = None,
    base: BaseOption = None,
) -> None:
    """Say what a change of the lock does to speed, for each target: better, worse, no difference, or not known.

    The change is the smallest one that has the named versions, or the difference between two locks. It also names
    documented slow-downs, rules, the size, vulnerabilities, and what recovers a loss. With `--measure`, the project's
    benchmark, or what stands for it, runs with both stacks. Exit codes are those of `check`.
    """
    words = [str(project.files.directory), *(changes or ())]
    upgrades, directories = [w for w in words if _OPERATOR.search(w)], [w for w in words if not _OPERATOR.search(w)]
    if len(directories) > 1 and directories[0] == ".":
        del directories[0]
    if len(directories) > 1:
        raise InputError(f"`{directories[1]}` does not say what to change", hint="write it as `torch==2.13.0`")
    directory = Path(directories[0] if directories else ".")
    files = replace(project.files, directory=directory, current=head or project.files.current)
    report = GateReport(reported)
    project = replace(project, files=files)
    with api.gate_session.open_verdict(project, upgrades, base=base) as (result, opened):
        if limits.budget_seconds:
            result = api.measured_verdict.with_measurement(result, opened, project, limits, say_state)
        else:
            result = api.measured_verdict.with_minutes(result, opened)
        report.write(result)
    report.exit(result)


def say_state(comparison: api.bisect.ProjectBisection, number: int, combination: Combination | None) -> None:
    """Say what a measurement does now, and what is known."""
    label = "before again (A/A)" if combination is None else "after" if combination else "before"
    text = f"round {number + 1}: {label}"
    if slowdown := comparison.slowdown:
        text += f" | after: {slowdown_text(slowdown)} | {duration(comparison.bisection.seconds_left())} left"
    say(text)
