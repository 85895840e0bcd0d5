"""Asks on a terminal whether sdists may be built, which runs their code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import typer

from advisor.cli.option_groups import ProjectOptions


def with_consent(run: Callable[[ProjectOptions], None], options: ProjectOptions) -> None:
    """Run a command; if there is a stack only with builds and the user agrees on a terminal, run it again with builds.

    Args:
        run: The command.
        options: Its options.

    Raises:
        BuildsNeededError, UnbuiltProjectError: If there is no terminal, or the user does not agree.
    """
    from advisor.project.interface import UnbuiltProjectError
    from advisor.resolve.baseline import BuildsNeededError

    try:
        run(options)
    except (BuildsNeededError, UnbuiltProjectError) as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        typer.echo(error.message, err=True)
        for package in error.packages:
            typer.echo(f"  {package}", err=True)
        question = "Build these and other packages that a stack needs? This runs their code on this machine"
        if not typer.confirm(question, default=False, err=True):
            raise
        run(replace(options, build_sdists=True))
