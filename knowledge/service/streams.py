"""Answers that are sent while they are read from the database: who may have how many, and how each of them ends."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

MOST = 8
"""Most answers that are streamed at a time. Each holds a connection to the database until its client has read it; the
pool has 15, so that tokens can be checked and `/health` answered whatever readers do."""
MOST_OF_TOKEN = 4
"""Most of them for one token."""
SEND_SECONDS = 60.0
"""How long a client may read nothing before its answer ends."""


class StreamQuota:
    """Counts the answers that are being streamed. Safe for many threads."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reserve(self, token: str) -> bool:
        """Reserve a stream for a token; false where it has its share, or there are none left."""
        with self._lock:
            if self._open[token] >= MOST_OF_TOKEN or self._open.total() >= MOST:
                return False
            self._open[token] += 1
            return True

    def release(self, token: str) -> None:
        """End a reservation."""
        with self._lock:
            self._open[token] -= 1
            if not self._open[token]:
                del self._open[token]


class StreamedLines(StreamingResponse):
    """Lines from a generator, which is closed when the answer ends, however it ends."""

    def __init__(
        self, first: str | None, lines: Generator[str, None, None], *, media_type: str, ended: Callable[[], None]
    ) -> None:
        """Prepare the answer.

        Args:
            first: The line that was read already; none where there is none.
            lines: The others.
            media_type: Type of the answer.
            ended: Called once the generator is closed.
        """
        super().__init__(itertools.chain([] if first is None else [first], lines), media_type=media_type)
        self._lines = lines
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines; a client that goes away or reads nothing ends that."""

        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(SEND_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except (ClientDisconnect, TimeoutError):
            # The answer is incomplete, which the server tells the client by closing the connection.
            pass
        finally:
            # Left to the garbage collector, the generator would keep its connection to the database.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._lines.close)
            self._ended()
