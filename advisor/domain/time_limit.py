"""A limit on the time of one question, and the interruption of it by Ctrl-C."""

from __future__ import annotations

import math
import time

INTERRUPTED = "interrupted"
"""Reason of a search that the user ended."""


class TimeLimit:
    """The time until which a search continues; after it, or once interrupted, it ends with the best that it has."""

    def __init__(self, seconds: float = math.inf, *, keeps_result: bool = False) -> None:
        """Begin.

        Args:
            seconds: Time from now.
            keeps_result: Whether Ctrl-C ends the search with the best that it has; else it ends the program.
        """
        self.keeps_result = keeps_result
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self.interrupted = False
        """Whether the user ended the search."""

    def interrupt(self) -> None:
        """End the search, because the user asked for it."""
        self.interrupted = True

    @property
    def seconds_left(self) -> float:
        """Seconds until the end; 0 if it is over."""
        return 0.0 if self.interrupted else max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the search must end."""
        return self.seconds_left == 0.0

    @property
    def reason(self) -> str:
        """Why the search ended early; empty if the time is not over."""
        if self.interrupted:
            return INTERRUPTED
        return f"stopped at the time limit of {self._seconds:g} s" if self.is_over else ""

    def begun_now(self, *, keeps_result: bool, most_seconds: float = math.inf) -> TimeLimit:
        """Return a limit of the same time from now, or of fewer seconds."""
        return TimeLimit(min(self._seconds, most_seconds), keeps_result=keeps_result)

    def at_most(self, seconds: float) -> TimeLimit:
        """Return a limit for a part of the question, which ends no later than this one."""
        part = TimeLimit(min(seconds, self.seconds_left), keeps_result=self.keeps_result)
        part.interrupted = self.interrupted
        return part
