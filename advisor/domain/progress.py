"""What the program is doing at the moment, for a display: by default there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
    """Choose the display of progress; none shows nothing."""
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
