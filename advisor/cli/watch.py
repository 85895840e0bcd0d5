"""`advisor watch`: what new releases do to a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import ProjectOptions
from advisor.cli.check import GateReport, GateReportOptions
from advisor.cli.console import say
from advisor.cli.options import Only, expand_options
from advisor.cli.verdict import say_state
from advisor.domain.words import count
from advisor.report.check.formats import CHECK_FORMATS
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically

_Limits = Annotated[ExperimentOptions, Only(("budget_seconds", "max_download_bytes", "max_disk_bytes", "max_load"))]


@expand_options
def watch(
    project: ProjectOptions,
    limits: _Limits,
    reported: GateReportOptions,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="What was reported (default: the user's own).")
    ] = None,
    pr_body: Annotated[
        Path | None, typer.Option("--pr-body", metavar="FILE", help="Write the fastest new stack as Markdown.")
    ] = None,
) -> None:
    """Report what the new releases that the constraints admit do to the speed, once for each release.

    One pass, for cron, CI or a CronJob: the newest release of each package is compared with the lock by evidence, and
    within the time of `--measure` by measurement. It is faster, slower, does not run, makes no difference, or is not
    known. Exit codes are those of `check`; `extend-fail` of the policy says which findings fail.
    """
    if pr_body is not None and not pr_body.parent.is_dir():
        raise InputError(f"`{pr_body.parent}` is not a directory")
    report = GateReport(reported)
    with api.watch.open_watch(project, limits, state=state, notify=say_state) as found:
        result = found.result()
        report.write(result)
        best = found.best()
        if pr_body is not None and best is None:
            # That of an earlier pass is not of this one.
            pr_body.unlink(missing_ok=True)
        elif pr_body is not None and best is not None:
            steps = "".join(f"\nTo do: {step}.\n" for step in best.steps)
            write_atomically(pr_body, CHECK_FORMATS.render("markdown", found.result(best)) + steps)
        if not result.findings:
            say(f"nothing new: {count(len(found.packages), 'package')} watched")
        found.keep()
    report.exit(result)
