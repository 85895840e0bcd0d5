"""Counts calls of compiled functions. The step of a program is a call of the one that took longest to compile."""

import time
from typing import Any, Callable

from .session import Profiler, Session


class CallCounter:
    """Counts the outermost calls of compiled functions."""

    def __init__(self, session: Session, rank: int, make: Callable[[], Profiler]) -> None:
        self._session = session
        self._rank = rank
        self._make = make
        self._depth = 0
        self._longest = -1.0
        self._known = set()  # type: ignore[var-annotated]

    def call(self, source: Any, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, and count the call.

        Args:
            source: What identifies the function.
            function: The function.
            *arguments: Its arguments.
            **named: Its named arguments.
        """
        if not self._session.is_active():
            return function(*arguments, **named)
        self._depth += 1
        start = time.perf_counter()
        try:
            result = function(*arguments, **named)
        finally:
            self._depth -= 1
        if not self._depth:
            if source not in self._known:
                self._known.add(source)
                seconds = time.perf_counter() - start
                # The first call compiles: the function with the longest one is the largest.
                if seconds > self._longest:
                    self._longest = seconds
                    self._session.replace_source(self._rank, source)
            self._session.end_step(self._rank, source, self._make, result)
        return result
