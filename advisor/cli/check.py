"""`advisor check`: the gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.console import say, say_error
from advisor.cli.project_options import ProjectOptions, asks


@asks
def check(
    asked: ProjectOptions,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="REF|FILE", help="Judge only the change from a commit, or from a lock."),
    ] = None,
    policy_from_base: Annotated[
        bool,
        typer.Option(
            "--policy-from-base/--no-policy-from-base",
            help="Judge by the policy and targets of the base (without one: of the last commit), not by the change's.",
        ),
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="text|json|markdown|github|gitlab|sarif|junit|html",
            help="What to print on standard output.",
        ),
    ] = "text",
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="[FORMAT=]FILE", help="Write the report to a file, too (repeatable)."),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even where findings fail.")] = False,
) -> None:
    """Judge the stack that a project has now, for each of its targets: what does not run, lags behind, or is unsafe."""
    from advisor.cli.gate_session import judged
    from advisor.cli.options import check_format
    from advisor.gate.check import GateResult, unreadable
    from advisor.project.read_errors import UnreadableFileError
    from advisor.report.check.formats import FORMATS, format_report
    from knowledge.domain.atomic_file import write_atomically

    check_format(format, among=FORMATS)
    files = _files(output or ())

    def report(judgement: GateResult) -> None:
        for kind, path in files:
            write_atomically(path, format_report(judgement, kind) + "\n")
        typer.echo(format_report(judgement, format))

    try:
        with judged(asked, base, policy_from_base=policy_from_base) as (judgement, _):
            report(judgement)
    except UnreadableFileError as failure:
        # What annotates a change needs the place of this error, too.
        report(unreadable(failure))
        raise
    for name, error in judgement.failures:
        if name:
            say(f"target {name}:")
        say_error(error)
    if judgement.exit_code and not (exit_zero and judgement.exit_code == 1):
        raise typer.Exit(judgement.exit_code)


def _files(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the format and path of each file, before any work is done for it."""
    from advisor.report.check.formats import FORMATS, parse_report_option
    from knowledge.domain.errors import InputError

    found = []
    for word in words:
        told = parse_report_option(word)
        if told is None:
            raise InputError(
                f"`{word}` does not tell a format",
                hint=f"write it as `-o FORMAT=FILE`, with one of {', '.join(f'`{f}`' for f in FORMATS)}",
            )
        if not told[1].parent.is_dir():
            raise InputError(f"`{told[1].parent}` is not a directory")
        found.append(told)
    return found
