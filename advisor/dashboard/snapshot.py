"""Values that take longer to compute than a page may: requests get the newest one that is ready."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from knowledge.domain.errors import AdvisorError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FRESH_SECONDS = 10.0
"""Time for which a value is not compared with the state again."""


@dataclass(frozen=True, slots=True)
class _Computed(Generic[_T]):
    value: _T
    state: object
    checked: float


class Snapshot(Generic[_T]):
    """The newest computed value of something. Thread-safe."""

    def __init__(self, compute: Callable[[], _T], state: Callable[[], object]) -> None:
        """Create a snapshot without a value.

        Args:
            compute: Computes the value.
            state: Returns something that is equal as long as the value is; much faster than ``compute``.
        """
        self._compute, self._state = compute, state
        self._newest: _Computed[_T] | None = None
        self._lock = threading.Lock()
        self._ready = threading.Event()

    @property
    def is_computed(self) -> bool:
        """Whether a newer value is being computed."""
        return self._lock.locked()

    def get(self, *, patience_seconds: float = 0.1) -> _T | None:
        """Return the newest value, and begin to compute a newer one if there may be one.

        Args:
            patience_seconds: Time to wait for the first value.

        Returns:
            The value; ``None`` if the first one is not ready.
        """
        newest = self._newest
        is_fresh = newest is not None and time.monotonic() - newest.checked < _FRESH_SECONDS
        if not is_fresh and self._lock.acquire(blocking=False):
            threading.Thread(target=self._update, name="snapshot", daemon=True).start()
        if self._newest is None:
            self._ready.wait(patience_seconds)
        return self._newest.value if self._newest is not None else None

    def compute(self) -> _T:
        """Compute the value in this thread; it is not compared with the state again."""
        value = self._compute()
        self._newest = _Computed(value, self._state(), math.inf)
        return value

    def _update(self) -> None:
        try:
            state = self._state()
            newest = self._newest
            if newest is not None and newest.state == state:
                self._newest = _Computed(newest.value, state, time.monotonic())
            else:
                self._newest = _Computed(self._compute(), state, time.monotonic())
        except AdvisorError as error:
            logger.warning("a page could not be updated: %s", error.message)
        finally:
            self._ready.set()
            self._lock.release()


class RecentValues:
    """Values that many requests need at the same time, each computed once in a few seconds. Thread-safe.

    Reading rows is slow while other threads compute: after each row, the interpreter may switch to another thread.
    """

    def __init__(self, *, seconds: float = 2.0, most: int = 500) -> None:
        """Create it without values.

        Args:
            seconds: Age up to which a value is returned as it is.
            most: Number of values that are stored.
        """
        self._seconds, self._most = seconds, most
        self._values: dict[object, tuple[float, Any]] = {}
        self._computing: set[object] = set()
        self._lock = threading.Lock()

    def get(self, key: object, compute: Callable[[], _T]) -> _T:
        """Return the value of a key: a recent one, else a computed one; an older one while another thread computes."""
        with self._lock:
            computed, value = self._values.get(key, (-math.inf, None))
            is_stored = computed > -math.inf
            if is_stored and (time.monotonic() - computed < self._seconds or key in self._computing):
                return cast(_T, value)
            self._computing.add(key)
        try:
            value = compute()
        finally:
            with self._lock:
                self._computing.discard(key)
        with self._lock:
            if len(self._values) >= self._most:
                self._values.clear()
            self._values[key] = time.monotonic(), value
        return value
