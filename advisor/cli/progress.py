"""Shows on a terminal what the program is doing, if it takes longer than a second."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING

from advisor.domain.progress import set_progress_display
from advisor.domain.words import visible
from knowledge.domain.errors import without_secrets

if TYPE_CHECKING:
    from rich.status import Status
    from rich.text import Text

_QUIET_SECONDS = 1.0
"""Time from the first activity of the program for which nothing is shown."""
_SPINNER_COLUMNS = 3


class _StatusLine:
    """A line on standard error with the last text and the time since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._text = ""
        self._status: Status | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show a text, at once or when the first second is over."""
        with self._lock:
            self._text = visible(without_secrets(text))
            if self._status is not None:
                self._status.update(self._line())
            elif self._timer is None:
                wait = max(0.0, self._start + _QUIET_SECONDS - time.monotonic())
                self._timer = threading.Timer(wait, self._begin)
                self._timer.daemon = True
                self._timer.start()

    def hide(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _begin(self) -> None:
        # Imported only now: most commands end before.
        from rich.console import Console
        from rich.status import Status

        with self._lock:
            if self._timer is not None and self._status is None:
                self._status = Status(self._line(), console=Console(stderr=True, highlight=False))
                self._status.start()

    def _line(self) -> Text:
        from rich.text import Text

        line = Text(self._text)
        # The spinner makes a new text of it, which forgets how to overflow.
        line.truncate(max(1, shutil.get_terminal_size().columns - _SPINNER_COLUMNS), overflow="ellipsis")
        return line


def show_progress() -> None:
    """Show progress on standard error if it is a terminal."""
    set_progress_display(_StatusLine() if sys.stderr.isatty() else None)
