"""What all readers of an index share: requests, the cache, and which of the two may be used."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from advisor.index.cache import DiskCache
from advisor.index.http.transport import Transport
from knowledge.domain.errors import UnavailableError

FRESH_SECONDS = 600
"""How long an answer is fresh if the index sends no `Cache-Control`; the large public indexes send this value."""
_K = TypeVar("_K")
_T = TypeVar("_T")
OFFLINE_HINT = "run the same command once without `--offline`"


class OfflineError(UnavailableError):
    """Raised when ``--offline`` is set and the cache does not have the required data."""

    code = "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAccess:
    """How readers reach an index.

    Attributes:
        transport: Sends requests.
        cache: Holds what was answered.
        offline: Whether to answer from the cache alone.
        refresh: Whether answers in the cache count as stale.
    """

    transport: Transport
    cache: DiskCache
    offline: bool = False
    refresh: bool = False

    def missing(self, what: str) -> OfflineError:
        """Return the error that something is not in the cache, while nothing may be requested."""
        return OfflineError(f"{what} is not in the cache `{self.cache.directory}`", hint=OFFLINE_HINT)


class DatedEntries:
    """Entries of the cache that become stale, each a JSON object with the time when it was requested."""

    def __init__(self, access: IndexAccess, bucket: str, *fields: str) -> None:
        """Create a reader and writer; this reads nothing.

        Args:
            access: The cache, and whether entries count as stale.
            bucket: Where the cache holds them.
            fields: Keys of each entry. An entry without them was written by another version of the program.
        """
        self._access = access
        self._bucket = bucket
        self._fields = {"fetched", "fresh", *fields}

    def read(self, key: str) -> dict[str, Any] | None:
        """Return an entry, also if it is stale; `None` if there is none."""
        try:
            entry = json.loads(self._access.cache.read(self._bucket, key) or b"null")
        except ValueError:
            return None
        return entry if isinstance(entry, dict) and self._fields <= entry.keys() else None

    def is_usable(self, entry: dict[str, Any]) -> bool:
        """Whether an entry may be used without a request: it is fresh, or nothing may be requested."""
        age = time.time() - entry["fetched"]
        return self._access.offline or (not self._access.refresh and 0 <= age < entry["fresh"])

    def write(self, key: str, entry: dict[str, Any], *, fresh: int = FRESH_SECONDS) -> dict[str, Any]:
        """Store an entry that was requested now and is fresh for some seconds; return it with its date."""
        dated = {**entry, "fetched": time.time(), "fresh": fresh}
        self._access.cache.write(self._bucket, key, json.dumps(dated).encode())
        return dated


def fresh_seconds(cache_control: str) -> int:
    """Return how many seconds an answer with this ``Cache-Control`` may be used without a new request (RFC 9111)."""
    if "no-cache" in cache_control or "no-store" in cache_control:
        return 0
    match = re.search(r"max-age=(\d{1,9})", cache_control)
    return int(match[1]) if match else FRESH_SECONDS


class Futures(Generic[_K, _T]):
    """Results of tasks by key. The task of a key is started once, whichever thread asks for it first."""

    def __init__(self, pool: Executor, task: Callable[..., _T]) -> None:
        self._pool = pool
        self._task = task
        self._lock = threading.Lock()
        self._futures: dict[_K, Future[_T]] = {}

    def start(self, key: _K, *values: Any, **options: Any) -> Future[_T]:
        """Return the future of a key; its task is started if it was not yet."""
        with self._lock:
            if key not in self._futures:
                self._futures[key] = self._pool.submit(self._task, *values, **options)
            return self._futures[key]

    def forget(self, keys: Iterable[_K]) -> None:
        """Let the tasks of keys start again."""
        with self._lock:
            for key in keys:
                del self._futures[key]

    def started(self) -> dict[_K, Future[_T]]:
        """Return the futures by key."""
        with self._lock:
            return dict(self._futures)
