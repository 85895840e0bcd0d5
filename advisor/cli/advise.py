"""`advisor advise`: recommend a stack and write its lock, or update the present lock."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import api
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.option import Option
from advisor.api.options import ProjectOptions, TargetOptions
from advisor.cli.console import duration, print_report, report_layout, say
from advisor.cli.options import check_format, expand_options
from advisor.domain.words import count, in_words, quoted, ratio_text
from advisor.locks.registry import format_to_write
from advisor.project.interface import UnbuiltProjectError
from advisor.report.advice.formats import ADVICE_FORMATS
from advisor.report.formats import Presentation
from advisor.resolve.candidates.problem import BuildsNeededError
from knowledge.domain.errors import AdvisorError, InputError, UnsatisfiableError
from knowledge.domain.shared_files import write_all, write_atomically


@dataclass(frozen=True, kw_only=True)
class AdviceOptions:
    """What an advice is printed and written as."""

    format: Annotated[str, Option("--format", metavar="FORMAT", help=f"{in_words(ADVICE_FORMATS.names, 'or')}.")] = (
        "text"
    )
    details: Annotated[bool, Option("--details", help="Print evidence, sizes, all settings, too.")] = False
    show_code: Annotated[bool, Option("--show-code", help="Print the code that settings need, too.")] = False
    output: Annotated[
        tuple[Path, ...],
        Option(
            "--output -o",
            metavar="FILE",
            help="Lock to write (default: pylock.toml).\nIts name determines its format (repeatable).",
        ),
    ] = ()
    dry_run: Annotated[bool, Option("--dry-run", help="Write no lock.")] = False
    update: Annotated[
        bool,
        Option(
            "--update",
            help="Change the lock only as much as needed.\n"
            "Make the smallest change of the lock that passes `advisor check`.",
        ),
    ] = False
    upgrade: Annotated[bool, Option("--upgrade", help="Ignore the versions of the lock (the default).")] = False
    targets: Annotated[
        str | None, Option("--targets", metavar="all", help="`all`: equal versions for all targets if possible.")
    ] = None
    pr_body: Annotated[
        Path | None, Option("--pr-body", metavar="FILE", help="Write the changes and their reasons as Markdown.")
    ] = None

    @property
    def question(self) -> str:
        """Everything that the printed text depends on, except the advice."""
        layout = f" {report_layout()} {self.details} {self.show_code}" if self.format == "text" else ""
        return f"{self.format}{layout}"

    def render(self, session: api.session.AdviceSession, outputs: Sequence[Path] = ()) -> str:
        """Return the report of an advice that wrote locks."""
        presentation = Presentation(
            layout=report_layout(),
            details=self.details,
            show_code=self.show_code,
            prices=lambda: session.prices(other_pythons=()),
            program=lambda: api.measured_program.program_text(session.context),
        )
        return ADVICE_FORMATS.render(self.format, session.result(outputs=outputs), presentation)

    def check(self, target: TargetOptions) -> None:
        """Check that the options exist and do not contradict each other.

        Args:
            target: Options that also contradict `--targets`.

        Raises:
            InputError: At the first one that does.
        """
        check_format(self.format, among=ADVICE_FORMATS.names)
        for path in self.output:
            format_to_write(path)
        if self.pr_body is not None and not self.pr_body.parent.is_dir():
            raise InputError(f"`{self.pr_body.parent}` is not a directory")
        format, update, is_text, text_only = self.format, self.update, self.format == "text", "take `--format text`"
        no_html = "take `--pr-body FILE`, or `advisor check --format html`"
        mistakes = (
            (self.details and not is_text, f"`--details` and `--format {format}` contradict each other", text_only),
            (self.show_code and not is_text, f"`--show-code` and `--format {format}` contradict each other", text_only),
            (update and self.upgrade, "`--update` and `--upgrade` contradict each other", "name one of them"),
            (update and self.show_code, "`--update` recommends no settings", "take `--show-code` without `--update`"),
            (update and self.details, "`--update` has no further details", "take `--update` without `--details`"),
            (update and format == "html", "`--update` has no HTML report", no_html),
        )
        for is_made, message, hint in mistakes:
            if is_made:
                raise InputError(message, hint=hint)
        if self.targets is not None:
            self._check_targets(target)

    def _check_targets(self, target: TargetOptions) -> None:
        if self.targets != "all":
            raise InputError(
                f"`--targets {self.targets}` is not known", hint="write `--targets all`, or name one `--target`"
            )
        others = {
            "--target": target.names,
            "--hardware": target.hardware,
            "--platform": target.platform,
            "--python": target.python,
            "--update": self.update,
        }
        for name, value in others.items():
            if value:
                raise InputError(f"`--targets all` and `{name}` contradict each other", hint="name one of them")


def asks_for_builds(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command about a project that asks on a terminal for builds it needs, and with consent runs with them.

    The project is one question; the packages that a stack needs are another one, which lists them.
    """

    @functools.wraps(command)
    def run(project: ProjectOptions, **values: Any) -> None:
        try:
            command(project, **values)
            return
        except UnbuiltProjectError as error:
            _ask(error, (), "Build the metadata of the project? This runs its code on this machine")
            allowed = replace(project.resolution, build_project=True)
        except BuildsNeededError as error:
            if project.resolution.build_sdists:
                raise
            question = "Build these and other packages that a stack needs? This runs their code on this machine"
            _ask(error, error.packages, question)
            allowed = replace(project.resolution, build_sdists=True)
        run(replace(project, resolution=allowed), **values)

    return run


@expand_options
@asks_for_builds
def advise(project: ProjectOptions, printed: AdviceOptions, measured: ExperimentOptions) -> None:
    """Recommend, verify and lock the best-scored stack of a project for a target machine.

    With `--measure`, the project's benchmark decides: it runs with the stacks and the settings that may be the best,
    until it is certain which one is, or the time is over.
    """
    printed.check(project.target)
    if measured.budget_seconds is not None:
        _measure(project, printed, measured)
        return
    if printed.update:
        _update(project, printed)
        return
    with api.advice_inputs.open_inputs(project) as inputs:
        if len(inputs) == 1 and printed.targets is None:
            _advise_one(inputs[0], printed)
        else:
            _advise_all(inputs, printed)


def _advise_one(inputs: api.context.AdviceInputs, printed: AdviceOptions) -> None:
    paths = () if printed.dry_run else printed.output or (inputs.context.default_lock,)
    for path in paths:
        format_to_write(path)
    inputs.context.check_only_target(paths)
    memory = None if printed.pr_body else api.answer_memory.AnswerMemory(inputs, format=printed.question, outputs=paths)
    answer = memory.recall() if memory else None
    if answer is not None:
        if answer.conflict is not None:
            raise answer.conflict
        write_all(answer.locks)
        print_report(answer.report)
        return
    session = api.session.AdviceSession(inputs, keeps_result=True, announces=True, reads_sizes=True)
    try:
        session.recommend()
    except UnsatisfiableError as error:
        if memory is not None:
            memory.store_conflict(error)
        raise
    if session.recommend().optimum.interrupted:
        print_report(printed.render(session))
        raise KeyboardInterrupt
    answer = api.answer_memory.RememberedAnswer(locks=session.lock_texts(paths), report=printed.render(session, paths))
    write_all(answer.locks)
    if printed.pr_body is not None:
        from advisor.report.advice.update import pull_request_body

        write_atomically(printed.pr_body, pull_request_body(api.update.change_to_best(session, outputs=paths)))
    print_report(answer.report)
    if memory is not None:
        session.remember(memory, answer)


def _measure(project: ProjectOptions, printed: AdviceOptions, measured: ExperimentOptions) -> None:
    """Measure until the choice is certain, and write its lock; what was measured is kept in any case."""
    for name, value in {"--update": printed.update, "--targets": printed.targets, "--pr-body": printed.pr_body}.items():
        if value:
            raise InputError(f"`--measure` and `{name}` contradict each other", hint="name one of them")
    with api.experiment.open_experiment(project, measured) as experiment:
        session, program = experiment.session, experiment.laboratory.program
        if program.is_guessed:
            _confirm_guess(program.text, session.context.workload or "")
        paths = () if printed.dry_run else printed.output or (session.context.default_lock,)
        for path in paths:
            format_to_write(path)
        arms, budget = count(len(experiment.laboratory.arms), "arm"), duration(measured.budget_seconds or 0.0)
        say(f"measuring {program.text}: {arms}, at most {budget}; Ctrl-C keeps everything")
        if experiment.experiment.earlier_runs:
            say(f"{count(experiment.experiment.earlier_runs, 'run')} of earlier experiments count")
        result = experiment.run(lambda e, number, arm: say(_state(e, number, arm)))
        if result.ending == "interrupted":
            print_report(printed.render(session))
            raise KeyboardInterrupt
        write_all(session.lock_texts(paths))
        print_report(printed.render(session, paths))


def _confirm_guess(program: str, workload: str) -> None:
    """Ask whether models may stand for the program of a project; without a terminal, that is an error."""
    error = InputError(
        f"the project has no benchmark; only {program} could be measured",
        hint=f"`advisor benchmark init` proposes a benchmark; `--workload {workload}` measures these models",
    )
    _ask(error, (), "Measure these models instead?")


def _state(experiment: api.experiment.ProjectExperiment, number: int, arm: int) -> str:
    """Return what an experiment does now, and what is known."""
    decision = experiment.experiment.decision
    remaining = duration(experiment.experiment.seconds_left()) if decision.open else "the first runs"
    ratio = experiment.experiment.ratio(decision.choice)
    best = f"{experiment.label(decision.choice)}{f', {ratio_text(ratio.speedup)} times as fast' if ratio else ''}"
    text = f"round {number + 1}: {experiment.label(arm)}"
    return f"{text} | best so far: {best} | {count(len(decision.open), 'arm')} open, {remaining} left"


def _advise_all(inputs: Sequence[api.context.AdviceInputs], printed: AdviceOptions) -> None:
    """Recommend a stack for each target, each with a lock of its own."""
    from advisor.report.advice.targets import targets_json, targets_text

    refused = {
        "--output": printed.output,
        "--pr-body": printed.pr_body,
        "--format html": printed.format == "html",
        "--details": printed.details,
        "--show-code": printed.show_code,
    }
    for name, value in refused.items():
        if value:
            names = quoted([target.context.name for target in inputs])
            raise InputError(f"`{name}` is for one target, and the project has {names}", hint="name one `--target`")
    sessions = list(map(api.session.AdviceSession, inputs))
    results = api.targets.advise_targets(sessions, agrees=printed.targets is not None, dry_run=printed.dry_run)
    print_report(targets_json(results) if printed.format == "json" else targets_text(results, report_layout()))


def _update(project: ProjectOptions, printed: AdviceOptions) -> None:
    from advisor.report.advice.update import pull_request_body, update_json, update_text

    change = api.update.update_lock(project, outputs=printed.output, dry_run=printed.dry_run)
    if printed.pr_body is not None:
        write_atomically(printed.pr_body, pull_request_body(change))
    print_report(update_json(change) if printed.format == "json" else update_text(change, report_layout()))
    if not change.passes:
        raise typer.Exit(1)


def _ask(error: AdvisorError, packages: Sequence[str], question: str) -> None:
    """Ask whether to build; raise the error without a terminal, or if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise error
    typer.echo(error.message, err=True)
    for package in packages:
        typer.echo(f"  {package}", err=True)
    if not typer.confirm(question, default=False, err=True):
        raise error
