"""The `advisor` command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Annotated, Any

import typer
import typer.core

from advisor.cli import advise, check, config, docs, explain, hardware, knowledge, pi, rules, run, serve, workload
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import say_cause, say_error, show_warnings
from advisor.cli.progress import show_progress
from advisor.domain.announcement import set_announcer
from knowledge.domain.errors import AdvisorError

_CLOSED_PIPE = 141
"""Exit code of a program that SIGPIPE ends, in a shell."""


class _Group(typer.core.TyperGroup):
    """Ends a command quietly if the reader of its output, such as `head`, has ended."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Python flushes standard output once more at exit, which would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_CLOSED_PIPE) from None


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
        "4 index, knowledge base or executor unavailable; 130 interrupted; 141 output closed; `run`: as its program."
    ),
)
app.command("advise")(advise.advise)
app.command("check")(check.check)
app.command("explain")(explain.explain)
app.command("prices")(explain.prices)
app.command("tree")(explain.tree)
# Options after the first argument belong to the program.
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("env")(run.env)
app.add_typer(hardware.app, name="hardware")
app.add_typer(rules.app, name="rules")
app.command("rule")(rules.rule)
app.add_typer(config.app, name="config")
app.add_typer(pi.app, name="pi")
app.add_typer(workload.app, name="workload")
app.add_typer(knowledge.app, name="knowledge")
app.command("serve")(serve.serve)
app.command("docs")(docs.docs)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"advisor {version('seshat-advisor')}")
        raise typer.Exit


@app.callback()
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
    gc.set_threshold(100_000, 50, 50)
    # As Ctrl-C: a CI system that cancels a job must not leave processes and temporary files behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except AdvisorError as error:
        say_error(error)
        sys.exit(error.exit_code)
