"""The proposed benchmark of a project: its program, its command, and, after a trial, its metric."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.project.benchmark import check_benchmark
from advisor.project.benchmark_proposal.command import Command, given_command, propose_command, with_steps
from advisor.project.benchmark_proposal.output import OutputMetric
from advisor.project.benchmark_proposal.programs import Programs, ProjectProgram, find_programs
from advisor.project.metadata.copy import list_files
from knowledge.domain.errors import InputError

_DEFAULT_FILES = "**/*.py"
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkProposal:
    """A benchmark that a project could have.

    Attributes:
        program: The program that it runs; ``None`` if the user's command runs none of the project's files.
        command: Its command.
        files: Patterns of the files that decide what is measured.
        others: The other programs of the project, the best first.
        skipped: Files that are no programs that could be run, each with the reason.
        metric: The metric in its output; ``None`` before a trial, and if it has none.
    """

    program: ProjectProgram | None
    command: Command
    files: tuple[str, ...]
    others: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    metric: OutputMetric | None = None

    @property
    def table(self) -> dict[str, Any]:
        """The table ``[tool.advisor.benchmark]``."""
        table: dict[str, Any] = {"command": self.command.text}
        if self.metric is not None:
            metric = self.metric.metric
            table["metric"] = {"pattern": metric.pattern, "unit": metric.unit, "better": metric.better}
            table["metric"] |= {"statistic": metric.statistic} if metric.statistic else {}
        elif self.command.steps is not None:
            table["startup"] = self.command.startup_text
        if self.files != (_DEFAULT_FILES,):
            table["files"] = list(self.files)
        return table

    def with_metric(self, metrics: Sequence[OutputMetric]) -> BenchmarkProposal:
        """Return the proposal with the best metric of an output.

        Without its start-up, the duration of the command is better than a progress bar, whose unit changes with its
        speed, and than a duration of which only the program knows what it includes.
        """
        best = next(iter(metrics), None)
        if best is not None and self.command.steps is not None and best.kind in ("bar", "duration"):
            best = None
        return replace(self, metric=best)


def propose_benchmark(
    directory: Path, *, script: str | None = None, command: str | None = None, steps: int | None = None
) -> BenchmarkProposal:
    """Return a benchmark for a project, by its source files, its documentation and its entry points.

    Args:
        directory: The project.
        script: The program to run, relative to the project; by default the one that suits a benchmark best.
        command: The command; by default one with few steps is proposed.
        steps: Value of the option that limits the steps, or the epochs; by default a small one.

    Raises:
        InputError: If the project has no program, or not the one that is named, or no option limits its steps.
    """
    name = Path(script).as_posix() if script is not None else None
    programs = find_programs(directory, script=name)
    program: ProjectProgram | None
    if command is not None:
        words = check_benchmark({"command": command}).command
        program = _program_of(words, programs)
        proposed = given_command(words, program)
    else:
        program = _named(programs, name) if name is not None else _best(programs, directory)
        proposed = propose_command(program)
    if steps is not None:
        if proposed.steps is None:
            raise InputError(
                f"`--steps {steps}` cannot be applied: no option of `{proposed.text}` limits its steps",
                hint="write the command yourself with `--command`",
            )
        proposed = with_steps(proposed, steps)
    return BenchmarkProposal(
        program=program,
        command=proposed,
        files=_files(directory, program, proposed.words),
        others=(*(other.name for other in programs.ranked if other is not program), *programs.others),
        skipped=programs.skipped,
    )


def _best(programs: Programs, directory: Path) -> ProjectProgram:
    """Return the program that suits a benchmark best."""
    if not programs.ranked:
        reasons = f": {'; '.join(programs.skipped[:3])}" if programs.skipped else ""
        raise InputError(
            f"`{directory}` has no program that a benchmark could run{reasons}",
            hint="name the command with `--command 'python train.py'`; programs in `tests` and `docs` are not searched",
        )
    if programs.ranked[0].points < 1:
        raise InputError(
            f"none of the programs of `{directory}` looks like one to measure: {_listed(programs)}",
            hint="name one with `--script FILE`, or a command with `--command`",
        )
    return programs.ranked[0]


def _named(programs: Programs, name: str) -> ProjectProgram:
    """Return the program that the user named."""
    if program := next((program for program in programs.ranked if program.name == name), None):
        return program
    reason = next((f": {text}" for text in programs.skipped if text.startswith(f"`{name}`")), "")
    raise InputError(
        f"`{name}` is not a program of the project that a benchmark could run{reason}",
        hint=f"its programs are {_listed(programs) or 'none'}; or name the command with `--command`",
    )


def _listed(programs: Programs) -> str:
    return ", ".join(f"`{program.name}`" for program in programs.ranked[:_NAMED])


def _program_of(words: Sequence[str], programs: Programs) -> ProjectProgram | None:
    """Return the program that a command runs; ``None`` if it is none of the project."""
    paths = {path for word in words for path in (word.removeprefix("./"), f"{word.replace('.', '/')}.py")}
    return next((p for p in programs.ranked if p.name in paths or p.name.removeprefix("src/") in paths), None)


def _files(directory: Path, program: ProjectProgram | None, words: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of a benchmark's files: Python files, configurations, and files that the command names."""
    values = {part for word in words for part in (word, word.rpartition("=")[2])}
    inputs = sorted(name for name in values.intersection(list_files(directory)) if not name.endswith(".py"))
    configurations = program.interface.configurations if program is not None else ()
    return (_DEFAULT_FILES, *map(glob.escape, dict.fromkeys([*configurations, *inputs])))
