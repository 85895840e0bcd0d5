"""The `advisor` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core

from advisor.cli.command_help import CommandGroup, PlainCommand, with_plain_absence
from advisor.cli.console import say_cause, say_error, show_warnings
from advisor.cli.progress import show_progress
from advisor.domain.progress import set_announcer
from knowledge.domain.errors import AdvisorError, InputError

_CLOSED_PIPE = 141
"""Exit code of a program that SIGPIPE ends, in a shell."""


class _Group(typer.core.TyperGroup):
    """Ends a command quietly if the reader of its output, such as `head`, has ended."""

    def get_help_option(self, ctx: Any) -> Any:
        return with_plain_absence(super().get_help_option(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Python flushes standard output once more at exit, which would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_CLOSED_PIPE) from None


COMMANDS = {
    "advise": ("advise:advise", "Recommend, verify and lock the best-scored stack of a project for a target machine."),
    "bisect": (
        "bisect:bisect",
        "Find the packages, builds and settings that make a program slower with one lock than with another one.",
    ),
    "check": (
        "check:check",
        "Judge the stack that a project has now, for each of its targets: what does not run or lags behind.",
    ),
    "verdict": (
        "verdict:verdict",
        "Say what a change of the lock does to speed, for each target: better, worse, no difference, or not known.",
    ),
    "watch": (
        "watch:watch",
        "Report what the new releases that the constraints admit do to the speed, once for each release.",
    ),
    "explain": (
        "explain:explain",
        "Explain a package: why this version, who requires it, why not the newest, what the runner-up loses.",
    ),
    "prices": (
        "explain:prices",
        "Price each of the project's own constraints, and other interpreters: what giving it up would buy.",
    ),
    "tree": ("explain:tree", "Show the advised stack as a tree of requirements."),
    "run": ("run:run", "Run a program with the run-time settings of a lock, and with nothing else changed."),
    "env": ("run:env", "Print the environment variables of the run-time settings of a lock."),
    "rule": ("rules:rule", "Explain a finding of `check` or `advise`: what it means, why it matters, what to do."),
    "serve": ("serve:serve", "Serve the knowledge base over HTTP: runners deliver observations, others read them."),
    "dashboard": (
        "dashboard:dashboard",
        "Show the knowledge base, and the advice for the project, as pages in the browser.",
    ),
    "docs": ("app:docs", "Print the address of the documentation."),
    "hardware": ("hardware:app", "Show and compare hardware."),
    "rules": ("rules:app", "Show the rules and their sources."),
    "config": ("config:app", "Show the configuration that is in force."),
    "benchmark": ("benchmark:app", "Define a benchmark of your own program."),
    "pi": ("pi.commands:app", "Measure performance indicators."),
    "workload": ("workload:app", "Profile your own program: which operations take its time."),
    "knowledge": ("knowledge.commands:app", "Query, import, export and verify the knowledge base."),
}
"""Where each command is defined, as module of this package and name in it, and the first sentences of its help."""


def make_app(names: Collection[str] = COMMANDS) -> typer.Typer:
    """Return the program with some of its commands; only their modules are imported.

    Args:
        names: The commands, by default all; without any, the program can only print its help and errors.
    """
    app = CommandGroup(
        cls=_Group,
        name="advisor",
        help="Lock the best-scored Python machine-learning stack for your hardware, with a proof.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=(
            "Exit codes: 0 done; 1 findings; 2 wrong usage or unreadable input; 3 no stack satisfies the constraints; "
            "4 index, knowledge base or executor unavailable; 130 interrupted; 141 output closed; `run`: as its "
            "program."
        ),
    )
    app.callback()(options)
    for name, (_, summary) in COMMANDS.items() if not names else ():
        app.command(name, help=summary)(lambda: None)
    for name in names:
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(import_module(f"advisor.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            # Options after the first argument of `run` belong to the program.
            settings = {"allow_interspersed_args": False} if name == "run" else None
            app.command(name, cls=PlainCommand, context_settings=settings)(command)
    return app


def _metadata() -> Any:
    """Return the metadata of the installed program."""
    from importlib.metadata import metadata

    return metadata("seshat-advisor")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"advisor {_metadata()['Version']}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Lock the best-scored Python machine-learning stack for your hardware, with a proof."""
    show_warnings()
    show_progress()
    set_announcer(say_cause)


def main() -> None:
    """Run the command line; every expected error ends with one sentence and its exit code."""
    # A command makes many objects and drops few: looking for garbage costs a tenth of its time.
    gc.set_threshold(500_000, 50, 50)
    # As Ctrl-C: a CI system that cancels a job must not leave processes and temporary files behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The same for a terminal that is closed; `nohup` ignores its signal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    first = next((word for word in sys.argv[1:] if word != "--"), "")
    try:
        make_app([first] if first in COMMANDS else [])()
    except AdvisorError as error:
        say_error(error)
        sys.exit(error.exit_code)


_LABEL = "documentation"
"""Well-known label of the address in the metadata of a distribution (PEP 753)."""


def docs() -> None:
    """Print the address of the documentation."""
    typer.echo(documentation_address())


def documentation_address() -> str:
    """Return the address of the documentation, which is defined only in `project.urls` of `pyproject.toml`.

    Raises:
        InputError: If the metadata of the installed program does not hold it.
    """
    for text in _metadata().get_all("Project-URL") or ():
        label, _, address = text.partition(",")
        if label.strip().lower() == _LABEL:
            return str(address.strip())
    raise InputError(
        "the metadata of the installed program does not name the address of the documentation",
        hint="install the program again",
    )
