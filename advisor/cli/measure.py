"""Options and helpers of the commands that measure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.console import say
from advisor.cli.options import KnowledgeOption
from advisor.domain.words import count

if TYPE_CHECKING:
    from advisor.api.measurement import EnvironmentOptions, IndicatorOptions, MeasurementStore
    from knowledge.domain.observation import Observation

MemoryLimitOption = Annotated[
    float | None,
    typer.Option("--memory-limit", metavar="GB", min=0.01, help="Kill a process that holds more memory than this."),
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--disk-budget", metavar="GB", min=0.001, help="Refuse blocks that would take more disk than this."),
]
PrometheusOption = Annotated[
    Path | None,
    typer.Option("--prometheus", metavar="FILE", help="Write figures to a file for node_exporter."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the observations to a file.")
]


@dataclass(frozen=True, kw_only=True)
class EnvironmentGroup:
    """Options of where stacks are installed."""

    python: Annotated[
        str, typer.Option("--python", help="Interpreter: path or version.", show_default="the running one")
    ] = sys.executable
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments for the next block.")
    ] = True
    budget: BudgetOption = None

    def options(self) -> EnvironmentOptions:
        """Return the options."""
        from advisor.api.measurement import EnvironmentOptions

        return EnvironmentOptions(
            python=self.python, keep=self.keep_environments, disk_budget_bytes=disk_budget(self.budget)
        )


@dataclass(frozen=True, kw_only=True)
class ResultGroup:
    """Options of where observations go."""

    prometheus: PrometheusOption = None
    output: OutputOption = None
    knowledge: KnowledgeOption = None

    def store(self, cache_directory: Path | None) -> MeasurementStore:
        """Return where observations are stored.

        Args:
            cache_directory: Cache directory; by default the user's.
        """
        from advisor.api.measurement import MeasurementStore

        return MeasurementStore(knowledge=self.knowledge, prometheus=self.prometheus, cache_directory=cache_directory)


def disk_budget(gigabytes: float | None) -> float | None:
    """Return a budget in bytes."""
    return None if gigabytes is None else gigabytes * 1e9


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
    from knowledge.domain.shared_files import write_atomically
    from knowledge.exchange.files import observation_file

    write_atomically(output, observation_file(observations))


def with_workload(options: IndicatorOptions, name: str | None) -> IndicatorOptions:
    """Add a profiled workload of the project in this directory to options, and report how much of it is measured.

    Args:
        options: Options of what is measured.
        name: Name of the workload; none adds none.

    Raises:
        InputError: If there is no such workload, or none of its parts can be measured.
    """
    from advisor.project.workload.file import select_workload
    from knowledge.domain.errors import InputError
    from pi_runners.plan.workload_cases import workload_cases

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
