"""Asks on a terminal whether the project or sdists may be built, which runs their code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import typer

from advisor.cli.option_groups import ProjectOptions
from knowledge.domain.errors import AdvisorError


def with_consent(run: Callable[[ProjectOptions], None], options: ProjectOptions) -> None:
    """Run a command; if it needs builds and the user agrees on a terminal, run it again with them.

    The project is one question; the packages that a stack needs are another one, which lists them.

    Args:
        run: The command.
        options: Its options.

    Raises:
        BuildsNeededError, UnbuiltProjectError: If there is no terminal, or the user does not agree.
    """
    try:
        run(options)
    except AdvisorError as error:
        # Imported here, because a remembered answer needs neither.
        from advisor.project.interface import UnbuiltProjectError
        from advisor.resolve.baseline import BuildsNeededError

        if isinstance(error, UnbuiltProjectError):
            _ask(error, (), "Build the metadata of the project? This runs its code on this machine")
            with_consent(run, replace(options, build_project=True))
        elif isinstance(error, BuildsNeededError):
            question = "Build these and other packages that a stack needs? This runs their code on this machine"
            _ask(error, error.packages, question)
            run(replace(options, build_sdists=True))
        else:
            raise


def _ask(error: AdvisorError, packages: Sequence[str], question: str) -> None:
    """Ask whether to build; raise the error without a terminal, or if the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise error
    typer.echo(error.message, err=True)
    for package in packages:
        typer.echo(f"  {package}", err=True)
    if not typer.confirm(question, default=False, err=True):
        raise error
