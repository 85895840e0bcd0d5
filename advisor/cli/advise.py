"""`advisor advise`: recommend a stack and write its lock, or update the present lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.option import Option
from advisor.api.options import ProjectOptions
from advisor.cli.console import print_report, report_layout
from advisor.cli.option_groups import expand_options, with_consent
from advisor.cli.options import check_format
from advisor.domain.words import in_words, quoted
from advisor.report.advice.formats import ADVICE_FORMATS
from advisor.report.formats import Presentation
from knowledge.domain.errors import InputError, UnsatisfiableError
from knowledge.domain.shared_files import write_atomically


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options about what is printed."""

    format: Annotated[str, Option("--format", metavar="FORMAT", help=f"{in_words(ADVICE_FORMATS.names, 'or')}.")] = (
        "text"
    )
    details: Annotated[bool, Option("--details", help="Print evidence, sizes, all settings, too.")] = False
    show_code: Annotated[bool, Option("--show-code", help="Print the code that settings need, too.")] = False

    def check(self) -> None:
        """Check the format.

        Raises:
            InputError: If it is not known, or has no place for details or lines of code.
        """
        check_format(self.format, among=ADVICE_FORMATS.names)
        for option, is_set in (("--details", self.details), ("--show-code", self.show_code)):
            if is_set and self.format != "text":
                raise InputError(
                    f"`{option}` and `--format {self.format}` contradict each other", hint="take `--format text`"
                )

    @property
    def question(self) -> str:
        """Everything that the printed text depends on, except the advice."""
        layout = f" {report_layout()} {self.details} {self.show_code}" if self.format == "text" else ""
        return f"{self.format}{layout}"


@expand_options
def advise(
    project: ProjectOptions,
    printed: ReportOptions,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Lock to write (default: pylock.toml).\n"
            "Also pylock.NAME.toml, *.txt, Pipfile.lock or *.cdx.json (repeatable).",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write no lock.")] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Change the lock only as much as needed.\n"
            "Make the smallest change of the lock that passes `advisor check`.",
        ),
    ] = False,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Ignore the versions of the lock (the default).")] = False,
    targets: Annotated[
        str | None,
        typer.Option("--targets", metavar="all", help="`all`: equal versions for all targets if possible."),
    ] = None,
    pr_body: Annotated[
        Path | None, typer.Option("--pr-body", metavar="FILE", help="Write the changes and their reasons as Markdown.")
    ] = None,
) -> None:
    """Recommend, verify and lock the best-scored stack of a project for a target machine."""
    from advisor.locks.registry import format_to_write

    printed.check()
    for path in output or ():
        format_to_write(path)
    if pr_body is not None and not pr_body.parent.is_dir():
        raise InputError(f"`{pr_body.parent}` is not a directory")
    if update and upgrade:
        raise InputError("`--update` and `--upgrade` contradict each other", hint="name one of them")
    if update and printed.show_code:
        raise InputError("`--update` recommends no settings", hint="take `--show-code` without `--update`")
    if update and printed.details:
        raise InputError("`--update` has no further details", hint="take `--update` without `--details`")
    if update and printed.format == "html":
        raise InputError(
            "`--update` has no HTML report", hint="take `--pr-body FILE`, or `advisor check --format html`"
        )

    if targets is not None:
        _check_targets(targets, project, update=update)

    def run(options: ProjectOptions) -> None:
        if update:
            _update(options, output or (), printed.format, dry_run=dry_run, pr_body=pr_body)
        else:
            _advise(options, output, printed, dry_run=dry_run, pr_body=pr_body, agree=targets is not None)

    with_consent(run, project)


def _advise(
    project: ProjectOptions,
    output: Sequence[Path] | None,
    printed: ReportOptions,
    *,
    dry_run: bool,
    pr_body: Path | None,
    agree: bool,
) -> None:
    with api.session.open_sessions(project) as sessions:
        if len(sessions) == 1 and not agree:
            _advise_one(sessions[0], output, printed, dry_run=dry_run, pr_body=pr_body)
        else:
            refused = {
                "--output": output,
                "--pr-body": pr_body,
                "--format html": printed.format == "html",
                "--details": printed.details,
                "--show-code": printed.show_code,
            }
            options = [name for name, value in refused.items() if value]
            _advise_all(sessions, options, printed.format, dry_run=dry_run, agree=agree)


def _advise_one(
    session: api.session.AdviceSession,
    output: Sequence[Path] | None,
    printed: ReportOptions,
    *,
    dry_run: bool,
    pr_body: Path | None,
) -> None:
    from advisor.locks.registry import format_to_write

    paths = [] if dry_run else output or [session.context.default_lock]
    for path in paths:
        format_to_write(path)
    api.lock_files.check_only_target(session.context, paths)
    memory = None if pr_body else api.answer_memory.AnswerMemory(session, format=printed.question, outputs=paths)
    answer = memory.recall() if memory else None
    if answer is not None:
        if answer.conflict is not None:
            raise answer.conflict
        api.lock_files.write_locks(answer.locks)
        print_report(answer.report)
        return
    session.keeps_result = session.announces = session.reads_sizes = True
    try:
        session.recommend()
    except UnsatisfiableError as error:
        if memory is not None:
            memory.store_conflict(error)
        raise
    if session.recommend().optimum.interrupted:
        print_report(_report(session, (), printed))
        raise KeyboardInterrupt
    answer = api.answer_memory.RememberedAnswer(
        locks=session.lock_texts(paths), report=_report(session, paths, printed)
    )
    api.lock_files.write_locks(answer.locks)
    if pr_body is not None:
        from advisor.report.advice.update import pull_request_body

        write_atomically(pr_body, pull_request_body(api.update.change_to_best(session, outputs=paths)))
    print_report(answer.report)
    if memory is not None:
        memory.store(answer)


def _check_targets(targets: str, project: ProjectOptions, *, update: bool) -> None:
    """Check `--targets`.

    Raises:
        InputError: If the value is unknown, or another option contradicts it.
    """
    if targets != "all":
        raise InputError(f"`--targets {targets}` is not known", hint="write `--targets all`, or name one `--target`")
    others = {
        "--target": project.target.names,
        "--hardware": project.target.hardware,
        "--platform": project.target.platform,
        "--python": project.target.python,
        "--update": update,
    }
    for name, value in others.items():
        if value:
            raise InputError(f"`--targets all` and `{name}` contradict each other", hint="name one of them")


def _advise_all(
    sessions: Sequence[api.session.AdviceSession], refused: Sequence[str], format: str, *, dry_run: bool, agree: bool
) -> None:
    """Recommend a stack for each target, each with a lock of its own.

    Args:
        sessions: The targets.
        refused: Options in use that are for one target only.
        format: ``text`` or ``json``.
        dry_run: Whether to write no lock.
        agree: Whether all targets have the same versions where possible.
    """
    from advisor.report.advice.targets import targets_json, targets_text

    if refused:
        names = quoted([session.context.name for session in sessions])
        raise InputError(f"`{refused[0]}` is for one target, and the project has {names}", hint="name one `--target`")
    results = api.targets.advise_targets(sessions, agree=agree, dry_run=dry_run)
    print_report(targets_json(results) if format == "json" else targets_text(results, report_layout()))


def _report(session: api.session.AdviceSession, outputs: Sequence[Path], printed: ReportOptions) -> str:
    presentation = Presentation(
        layout=report_layout(),
        details=printed.details,
        show_code=printed.show_code,
        prices=lambda: session.prices(other_pythons=()),
    )
    return ADVICE_FORMATS.render(printed.format, session.result(outputs=outputs), presentation)


def _update(
    project: ProjectOptions, output: Sequence[Path], format: str, *, dry_run: bool, pr_body: Path | None
) -> None:
    from advisor.report.advice.update import pull_request_body, update_json, update_text

    change = api.update.update_lock(project, outputs=output, dry_run=dry_run)
    if pr_body is not None:
        write_atomically(pr_body, pull_request_body(change))
    print_report(update_json(change) if format == "json" else update_text(change, report_layout()))
    if not change.passes:
        raise typer.Exit(1)
