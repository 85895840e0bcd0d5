"""Messages to the user on standard error, understandable without colour."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from advisor.domain.words import visible
from advisor.report.layout import WIDTH_OF_FILES, Layout, wrapped
from knowledge.domain.errors import AdvisorError, without_secrets

_WIDEST, _NARROWEST = 120, 40
"""Most and fewest columns of a report on a terminal: longer lines are hard to read."""
_INDENT = "    "
"""What the second and later lines of a message start with."""


def report_layout() -> Layout:
    """Return the layout of reports on standard output: as wide as the terminal, in colour unless `NO_COLOR` is set."""
    is_terminal = sys.stdout.isatty()
    widest = _WIDEST if is_terminal else WIDTH_OF_FILES
    columns = shutil.get_terminal_size((WIDTH_OF_FILES, 24)).columns
    has_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Layout(width=max(_NARROWEST, min(columns, widest)), colour=has_colour)


def print_report(text: str) -> None:
    """Print a report to standard output; its colours were decided by :func:`report_layout`."""
    typer.echo(text, color=True)


def say(text: str) -> None:
    """Print a line to the error output."""
    typer.echo(visible(without_secrets(text)), err=True)


def warn(text: str, hint: str = "") -> None:
    """Print a warning to the error output."""
    _say_labelled("warning", "yellow", without_secrets(text))
    _hint(hint)


def say_error(error: AdvisorError) -> None:
    """Print an error: what happened, where, then a hint."""
    if not error.announced:
        say_cause(error)
    _hint(error.hint)


def say_cause(error: AdvisorError) -> None:
    """Print an error without its hint."""
    _say_labelled("error", "red", error.message)
    for line in getattr(error, "details", ()):
        typer.echo("\n".join(f"  {part}" for part in _lines(line)), err=True)


def _hint(hint: str) -> None:
    if hint:
        _say_labelled("hint", "cyan", hint)


def _say_labelled(label: str, colour: str, text: str) -> None:
    """Print a label in a colour and a text to the error output."""
    first, *rest = _lines(f"{label}: {text}")
    typer.echo("\n".join([first.replace(label, typer.style(label, fg=colour, bold=True), 1), *rest]), err=True)


def _lines(text: str) -> list[str]:
    """Return a text in lines of the width of the terminal, or as one line if the error output is not a terminal."""
    if not sys.stderr.isatty():
        return [visible(text)]
    columns = min(shutil.get_terminal_size((WIDTH_OF_FILES, 24)).columns, _WIDEST)
    first, *rest = wrapped(text, columns, len(_INDENT)) or [""]
    return [first, *(f"{_INDENT}{line}" for line in rest)]


class _Handler(logging.Handler):
    """Prints the warnings of the program's modules."""

    def emit(self, record: logging.LogRecord) -> None:
        (warn if record.levelno >= logging.WARNING else say)(record.getMessage())


def show_warnings() -> None:
    """Print what the program's modules log, from warnings upwards."""
    logger = logging.getLogger("advisor")
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler())
        logger.propagate = False
    logger.setLevel(logging.WARNING)


def show_information() -> None:
    """Print informational messages, too, such as the number of requests."""
    logging.getLogger("advisor").setLevel(logging.INFO)


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, such as ``about 4 min``."""
    if seconds < 60:
        return f"about {seconds:.0f} s"
    if seconds < 3600:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on a terminal, one line per step elsewhere, with the remaining time.

    Yields:
        A function to call before each of the steps, with its description.
    """
    if not sys.stderr.isatty():
        number, start = 0, time.monotonic()

        def line(text: str) -> None:
            nonlocal number
            remaining = ""
            if number:
                seconds = (time.monotonic() - start) / number * (total - number)
                remaining = f", {duration(seconds)} left"
            number += 1
            say(f"[{number}/{total}{remaining}] {text}")

        yield line
        return
    with typer.progressbar(length=total, file=sys.stderr, show_pos=True) as bar:
        first = True

        def step(text: str) -> None:
            nonlocal first
            bar.label = text
            bar.update(0 if first else 1)
            first = False

        yield step


def redraw(text: str, *, err: bool = False) -> None:
    """Clear the terminal and print a text."""
    typer.echo(f"\x1b[2J\x1b[H{text}", err=err)
