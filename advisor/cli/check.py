"""`advisor check`: the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.option import OUTPUT, Option
from advisor.api.options import ProjectOptions
from advisor.cli.console import print_report, report_layout, say, say_error
from advisor.cli.options import check_format, expand_options
from advisor.domain.words import in_words, quoted
from advisor.gate.check import GateResult, unreadable
from advisor.project.text_file import UnreadableFileError
from advisor.report.check.formats import CHECK_FORMATS
from advisor.report.formats import Presentation
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically

BaseOption = Annotated[
    str | None, typer.Option("--base", metavar="COMMIT", help="Judge only the change from a commit or lock.")
]
PolicyFromBaseOption = Annotated[
    bool,
    typer.Option(
        "--policy-from-base/--no-policy-from-base",
        help="Judge by the policy of the base.\n"
        "By the policy and targets of the base (without a base, of the last commit), not of the change.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class GateReportOptions:
    """How the result of a check or the verdict on a change is reported."""

    format: Annotated[
        str,
        Option(
            "--format",
            metavar="FORMAT",
            panel=OUTPUT,
            help=f"{', '.join(CHECK_FORMATS.names[:4])}, ... (default: text).\n"
            f"Also {in_words(CHECK_FORMATS.names[4:], 'and')}.",
            default_text="text",
        ),
    ] = "text"
    outputs: Annotated[
        tuple[str, ...],
        Option(
            "--output -o",
            metavar="FILE",
            panel=OUTPUT,
            help="Write the report to a file, too (repeatable).\n`FORMAT=FILE`, if the suffix names no format.",
        ),
    ] = ()
    details: Annotated[
        bool, Option("--details", panel=OUTPUT, help="Print all findings, sources, changes and effects.")
    ] = False
    exit_zero: Annotated[bool, Option("--exit-zero", panel=OUTPUT, help="Exit with 0 even where findings fail.")] = (
        False
    )


@expand_options
def check(
    project: ProjectOptions,
    reported: GateReportOptions,
    base: BaseOption = None,
    policy_from_base: PolicyFromBaseOption = False,
) -> None:
    """Judge the stack that a project has now, for each of its targets: what does not run, lags behind, or is unsafe."""
    report = GateReport(reported)
    try:
        with api.gate_session.open_gate(project, base=base, policy_from_base=policy_from_base) as (result, _):
            report.write(result)
    except UnreadableFileError as failure:
        # Annotations of a change need the place of this error, too.
        report.write(unreadable(failure))
        raise
    report.exit(result)


class GateReport:
    """Prints the report of a result in the chosen format, and writes it to the chosen files."""

    def __init__(self, options: GateReportOptions) -> None:
        """Check the options before anything is resolved.

        Raises:
            InputError: If there is no such format, or a file names none.
        """
        check_format(options.format, among=CHECK_FORMATS.names)
        if options.details and options.format != "text":
            message = f"`--details` and `--format {options.format}` contradict each other"
            raise InputError(message, hint="take `--format text`")
        self._options, self._files = options, _files(options.outputs)

    def write(self, result: GateResult) -> None:
        """Print and write the report of a result."""
        for kind, path in self._files:
            write_atomically(path, CHECK_FORMATS.render(kind, result) + "\n")
        presentation = Presentation(layout=report_layout(), details=self._options.details)
        print_report(CHECK_FORMATS.render(self._options.format, result, presentation))

    def exit(self, result: GateResult) -> None:
        """Say why a check is not complete, and end with its exit code."""
        for name, error in result.failures:
            if name:
                say(f"target {name}:")
            say_error(error)
        if result.exit_code and not (self._options.exit_zero and result.exit_code == 1):
            raise typer.Exit(result.exit_code)


def _files(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the format and path of each file; options are checked before anything is resolved."""
    files = []
    for word in words:
        kind, separator, path = word.partition("=")
        if not separator or kind not in CHECK_FORMATS.names:
            kind, path = CHECK_FORMATS.of_file(Path(word)) or "", word
        if not kind:
            raise InputError(
                f"`{word}` names no format",
                hint=f"write it as `-o FORMAT=FILE`, with one of {quoted(CHECK_FORMATS.names)}",
            )
        if not Path(path).parent.is_dir():
            raise InputError(f"`{Path(path).parent}` is not a directory")
        files.append((kind, Path(path)))
    return files
