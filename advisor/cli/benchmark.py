"""`advisor benchmark`: a benchmark for a project that has none."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.measurements.options import EnvironmentOptions, SamplingOptions
from advisor.api.option import Option
from advisor.api.options import ProjectFiles, ProjectOptions, ResolutionOptions
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import print_report, report_layout, say, warn
from advisor.cli.options import FormatOption, IndexPlaces, KnowledgeOption, Only, expand_options, print_json
from advisor.project.benchmark_proposal.proposal import BenchmarkProposal
from advisor.report.benchmark_proposal import proposal_json, proposal_text
from knowledge.domain.errors import InputError

app = CommandGroup(help="Define a benchmark of your own program.")


class ConsentNeededError(InputError):
    """Raised when a command would run the project's code, and nobody agreed to that."""

    code = "consent-needed"


@app.callback()
def _group() -> None:
    """Define a benchmark of your own program."""


@dataclass(frozen=True, kw_only=True)
class _ProposalOptions:
    """What is proposed, and what happens with the proposal."""

    script: Annotated[
        str | None, Option("--script", metavar="FILE", help="Program to run (default: the best candidate).")
    ] = None
    command: Annotated[
        str | None, Option("--command", metavar="TEXT", help="Command to run, as you would write it.")
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "--steps", minimum=2, help="Steps of the program (default: few).\nEpochs if it has no option for steps."
        ),
    ] = None
    replaces: Annotated[bool, Option("--replace", help="Replace the benchmark that the project has.")] = False
    agrees: Annotated[bool, Option("--yes", help="Agree to run the command once, and to write.")] = False
    tries: Annotated[bool, Option("--try/--no-try", help="Run the command before the benchmark is written.")] = True
    dry_run: Annotated[bool, Option("--dry-run", help="Print the proposal; run and write nothing.")] = False
    project: Annotated[Path, Option("--project", metavar="DIRECTORY", help="The project.")] = Path(".")


@app.command("init")
@expand_options
def init(
    options: _ProposalOptions,
    sampling: Annotated[SamplingOptions, Only(("timeout_seconds", "memory_limit_bytes"))],
    environment: Annotated[EnvironmentOptions, Only(("python",))],
    indexes: IndexPlaces,
    knowledge: KnowledgeOption = None,
    format: FormatOption = "text",
) -> None:
    """Propose a benchmark for a project, try it once, and write it into `pyproject.toml`.

    The proposal is a program of the project with few steps, and a metric: a rate or the time of a step that it
    prints, or the duration of its steps without its start-up. It comes from the source files, which are not executed.
    With your consent, the command runs once in a copy of the project.
    """
    directory = options.project
    proposal = api.benchmark_proposal.propose(
        directory, script=options.script, command=options.command, steps=options.steps, replaces=options.replaces
    )
    if not (directory / "pyproject.toml").exists():
        say(f"`{directory / 'pyproject.toml'}` does not exist: it is to be created, with the printed table only")
    if options.dry_run:
        _print(proposal, None, None, format)
        return
    if not options.agrees:
        _ask(proposal, directory, format, tries=options.tries)
    api.benchmark_proposal.check_open_values(proposal)
    trial = None
    if options.tries:
        proposal, trial = api.benchmark_proposal.try_proposal(
            proposal,
            ProjectOptions(
                files=ProjectFiles(directory=directory),
                indexes=indexes,
                resolution=ResolutionOptions(knowledge=knowledge),
            ),
            sampling=sampling,
            environment=environment,
        )
    written = api.benchmark_proposal.write_proposal(directory, proposal)
    _print(proposal, trial, written, format)
    if trial is not None and trial.more_steps:
        warn(
            f"the steps of the command took only {trial.work_seconds:.2g} s, so that its results will vary",
            hint=f"`advisor benchmark init --replace --steps {trial.more_steps}` lets it take more",
        )
    say(f"wrote `[tool.advisor.benchmark]` into `{written}`: `advisor pi run --benchmark` runs it")


def _print(
    proposal: BenchmarkProposal, trial: api.benchmark_proposal.CommandTrial | None, written: Path | None, format: str
) -> None:
    if format == "json":
        print_json(proposal_json(proposal, trial, written))
    else:
        print_report(proposal_text(proposal, trial, report_layout()))


def _ask(proposal: BenchmarkProposal, project: Path, format: str, *, tries: bool) -> None:
    """Print a proposal and ask whether to try and write it.

    Raises:
        ConsentNeededError: Without a terminal, or if the answer is no.
    """
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if is_terminal and format == "json":
        # The document comes after the trial.
        say(proposal_text(proposal, None, report_layout()))
    else:
        _print(proposal, None, None, format)
    api.benchmark_proposal.check_open_values(proposal)
    path = project / "pyproject.toml"
    error = ConsentNeededError(
        f"`{path}` was not changed, and nothing was run",
        hint="`--yes` runs the command once and writes the benchmark; `--no-try --yes` only writes it",
    )
    if not is_terminal:
        raise error
    question = "Write it"
    if tries:
        question = "Run this once in a copy of the project, which runs its code on this machine, and write it"
    if not typer.confirm(f"{question} into `{path}`?", default=False, err=True):
        raise error
