"""What the program is doing at the moment, for a display: by default there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from knowledge.domain.errors import AdvisorError


class ProgressDisplay(Protocol):
    """Shows what the program is doing."""

    def show(self, text: str) -> None:
        """Show a text instead of the last one; from any thread."""

    def hide(self) -> None:
        """Show nothing any more, before results are printed."""


_lock = threading.Lock()
_display: ProgressDisplay | None = None
_depth = 0


def set_progress_display(display: ProgressDisplay | None) -> None:
    """Choose the display of progress; ``None`` shows nothing."""
    global _display
    _display = display


def progress(text: str, *values: object) -> None:
    """Report what the program is doing, if it is within :func:`activity`.

    Args:
        text: A short text, in the form of the ``%`` operator.
        values: The values in it.
    """
    if _display is not None:
        with _lock:
            if _depth:
                _display.show(text % values)


def hide_progress() -> None:
    """Show nothing until the next report, because something else is printed."""
    if _display is not None:
        with _lock:
            _display.hide()


@contextmanager
def activity(text: str, *values: object) -> Iterator[None]:
    """Show what the program is doing until the end of the block; blocks may contain others.

    Args:
        text: As of :func:`progress`.
        values: As of :func:`progress`.
    """
    global _depth
    with _lock:
        _depth += 1
    progress(text, *values)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth and _display is not None:
                _display.hide()


_print: Callable[[AdvisorError], None] | None = None
_is_enabled = False


def set_announcer(printer: Callable[[AdvisorError], None] | None) -> None:
    """Choose what prints the message and the details of an error at once; ``None`` prints nothing."""
    global _print
    _print = printer


@contextmanager
def announcing(*, enabled: bool) -> Iterator[None]:
    """Allow announcements in a block whose errors end the command; elsewhere, an error may be one of several trials."""
    global _is_enabled
    before, _is_enabled = _is_enabled, enabled
    try:
        yield
    finally:
        _is_enabled = before


def announce(error: AdvisorError) -> None:
    """Print the message and the details of an error that is about to be raised, if :func:`announcing` allows it."""
    if _is_enabled and _print is not None and not error.announced:
        hide_progress()
        _print(error)
        error.announced = True
