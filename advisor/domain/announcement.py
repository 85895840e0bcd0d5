"""The first part of an error, printed before the rest of it is known: what happened, before what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from advisor.domain.progress import hide_progress
from knowledge.domain.errors import AdvisorError

_print: Callable[[AdvisorError], None] | None = None
_is_enabled = False


def set_announcer(printer: Callable[[AdvisorError], None] | None) -> None:
    """Choose what prints the message and the details of an error at once; none prints nothing."""
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
