"""Streamed responses: limits on their number, and how each of them ends."""

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

MOST_STREAMS = 8
"""Maximum number of concurrent streamed responses. Each holds a database connection until its client has read it. The
pool has 15 connections, so tokens can always be checked and `/health` can always be answered."""
MOST_STREAMS_PER_TOKEN = 4
"""Maximum number of concurrent streamed responses for one token."""
SEND_SECONDS = 60.0
"""Seconds without progress of the client after which a response is ended."""
STREAM_SECONDS = 600.0
"""Maximum total time of a response in seconds, because a client that reads slowly makes progress without end. The
largest block that a pull accepts, 256 MiB, needs 0.45 MB/s."""


class StreamQuota:
    """Counts the streamed responses. Thread-safe."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reserve(self, token: str) -> bool:
        """Reserve a stream for a token; return whether the limits of the token and of the service permit it."""
        with self._lock:
            if self._open[token] >= MOST_STREAMS_PER_TOKEN or self._open.total() >= MOST_STREAMS:
                return False
            self._open[token] += 1
            return True

    def release(self, token: str) -> None:
        """Release a stream of a token."""
        with self._lock:
            self._open[token] -= 1
            if not self._open[token]:
                del self._open[token]


class StreamedLines(StreamingResponse):
    """Response of lines from a generator, which is closed when the response ends or fails."""

    def __init__(
        self, first: str | None, lines: Generator[str, None, None], *, media_type: str, on_close: Callable[[], None]
    ) -> None:
        """Create the response of the line that was read already, if there is one, and the other lines.

        ``on_close`` is called after the generator is closed.
        """
        super().__init__(itertools.chain([] if first is None else [first], lines), media_type=media_type)
        self._lines = lines
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines; stop if the client disconnects or reads nothing for :data:`SEND_SECONDS`.

        A response that is not complete after :data:`STREAM_SECONDS` is stopped, too.
        """

        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(SEND_SECONDS):
                await send(message)

        try:
            with anyio.fail_after(STREAM_SECONDS):
                await super().__call__(scope, receive, send_in_time)
        except (ClientDisconnect, TimeoutError):
            # The response is incomplete; the client notices because the server closes the connection.
            pass
        finally:
            # Close the generator now: until it is collected as garbage, it would hold its database connection.
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._lines.close)
            finally:
                self._on_close()
