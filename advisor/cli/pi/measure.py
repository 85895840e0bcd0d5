"""Options and helpers of the commands that measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from advisor.api.measurements.options import IndicatorOptions
from advisor.api.option import Option
from advisor.cli.console import say
from advisor.cli.options import typer_option
from advisor.domain.words import count
from advisor.project.workload.file import select_workload
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import write_atomically
from knowledge.exchange.files import observation_file
from pi_runners.plan.matrix import workload_cases

OUTPUT_FILE = Option("--output -o", metavar="FILE", help="Also write the observations to a file.")
OutputOption = Annotated[Path | None, typer_option(OUTPUT_FILE)]


@contextmanager
def interruptible(how_to_continue: str) -> Iterator[None]:
    """Report how to continue after an interruption."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: the observations so far are stored; {how_to_continue}")
        raise


def write_output(output: Path, observations: Iterable[Observation]) -> None:
    """Write an observation file."""
    write_atomically(output, observation_file(observations))


def with_workload(options: IndicatorOptions, name: str | None) -> IndicatorOptions:
    """Add a profiled workload of the project in this directory to options, and report how much of it is measured.

    Args:
        options: Options of what is measured.
        name: Name of the workload; ``None`` adds none.

    Raises:
        InputError: If there is no such workload, or none of its parts can be measured.
    """
    if name is None:
        return options
    workload = select_workload(Path.cwd(), name)
    cases, share = workload_cases(workload)
    if not cases:
        raise InputError(
            f"no part of the workload `{name}` can be measured",
            hint="parts need parameters: profile the program with shapes, see `advisor workload show`",
        )
    say(f"measuring {count(len(cases), 'part')} of `{name}`: {share:.0%} of its time")
    return replace(options, workload=workload)
