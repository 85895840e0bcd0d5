"""`advisor bisect`: find what makes a program slower, or fail, with one stack compared with another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.option import MEASURING, read_duration
from advisor.api.options import ProjectOptions
from advisor.cli.console import duration, print_report, report_layout, say
from advisor.cli.options import FormatOption, Only, expand_options, print_json
from advisor.domain.words import count, slowdown_text
from advisor.experiment.bisection import Combination
from advisor.report.bisection import bisection_json, bisection_markdown, bisection_text
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically

_Limits = Annotated[ExperimentOptions, Only(("tolerance", "max_download_bytes", "max_disk_bytes", "max_load"))]
_UNKNOWN = 4
"""Exit code if the time is over before it is certain whether there is a loss."""


@expand_options
def bisect(
    project: ProjectOptions,
    limits: _Limits,
    good: Annotated[
        str, typer.Option("--good", metavar="STACK", help="Lock, commit or date with which the program was fast.")
    ],
    bad: Annotated[
        str | None,
        typer.Option("--bad", metavar="STACK", help="Lock, commit or date with which it is slow (default: the lock)."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option("--budget", metavar="TIME", rich_help_panel=MEASURING, help="Maximum time for measuring."),
    ] = "20m",
    format: FormatOption = "text",
    issue: Annotated[
        Path | None, typer.Option("--issue", metavar="FILE", help="Write a Markdown text for an upstream issue.")
    ] = None,
) -> None:
    """Find the packages, builds and settings that make a program slower with one lock than with another one.

    The project's benchmark, or what stands for it, runs with both stacks, in rounds, until it is certain whether they
    differ, and then with stacks in between. Exit codes: 0 no loss; 1 a loss or a failure was found; 4 the time was over
    before that was certain.
    """
    if issue is not None and not issue.parent.is_dir():
        raise InputError(f"`{issue.parent}` is not a directory")
    limits = replace(limits, budget_seconds=read_duration(budget))
    with api.bisect.open_bisection(project, limits, good=good, bad=bad) as result:
        number, most = count(len(result.pair.all), "difference"), duration(limits.budget_seconds or 0)
        say(f"{number}, at most {most}; Ctrl-C keeps everything")
        if result.bisection.earlier_runs:
            say(f"{count(result.bisection.earlier_runs, 'run')} of earlier experiments count")
        result.run(lambda number, combination: say(_state(result, number, combination)))
        written = issue if result.culprits else None
        if written is not None:
            write_atomically(written, bisection_markdown(result))
        if format == "json":
            print_json(bisection_json(result))
        else:
            print_report(bisection_text(result, report_layout(), written=written))
    if result.bisection.ending == "interrupted":
        raise KeyboardInterrupt
    if result.has_loss:
        raise typer.Exit(1)
    if result.bisection.verdict == "open":
        raise typer.Exit(_UNKNOWN)


def _state(result: api.bisect.ProjectBisection, number: int, combination: Combination | None) -> str:
    """Return what a bisection does now, and what is known."""
    state, slowdown = result.bisection, result.slowdown
    text = f"round {number + 1}: {result.label(combination)}"
    culprits = f" | {count(len(state.culprits), 'culprit')} found"
    if state.bad in state.failures:
        return f"{text} | bad fails{culprits}"
    loss = f" | bad: {slowdown_text(slowdown)}" if slowdown else ""
    remaining = duration(state.seconds_left()) if slowdown else "the first runs"
    return f"{text}{loss}{culprits if state.verdict == 'slower' else ''} | {remaining} left"
