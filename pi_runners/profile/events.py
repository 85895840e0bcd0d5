"""Streams the events of a trace in Chrome's format (JSON, plain or gzipped) with bounded memory."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra
from knowledge.domain.frameworks import frameworks

_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 4096
_MAX_DEPTH = 5000
"""Maximum number of brackets that are open: the memory of the parser grows with its square."""
_MAX_EVENT_BYTES = 128_000_000
"""Maximum number of bytes between two events. Larger ones are not events but, for example, one endless text."""


class TraceError(InputError):
    """Raised when a trace is truncated, empty, damaged, or of another program."""

    code = "unreadable-trace"


class _Reader:
    """Reads a file, and refuses to continue if no event ends within a number of bytes, or if it is deeply nested."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._since_event = self._depth = 0

    def end_event(self) -> None:
        """Start to count again after an event."""
        self._since_event = self._depth = 0

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._since_event += len(content)
        self._depth += sum(content.count(bracket) for bracket in (b"[", b"{"))
        self._depth -= sum(content.count(bracket) for bracket in (b"]", b"}"))
        if self._since_event > _MAX_EVENT_BYTES:
            raise TraceError(f"`{self._path}` is not a trace: {_MAX_EVENT_BYTES // 10**6} MB of it hold no event")
        if self._depth > _MAX_DEPTH:
            raise TraceError(f"`{self._path}` is not a trace: it is nested too deeply")
        return content


@contextmanager
def open_trace(path: Path) -> Iterator[BinaryIO]:
    """Open a trace, which may be gzipped.

    Raises:
        TraceError: If it cannot be read, is empty, or its compressed content is damaged or truncated.
    """
    try:
        with path.open("rb") as raw:
            head = raw.read(len(_GZIP))
            if not head:
                raise TraceError(
                    f"the trace `{path}` is empty",
                    hint="end the profiler before the program ends, then export the trace",
                )
            raw.seek(0)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if head == _GZIP else raw
    except EOFError:
        raise TraceError(f"the trace `{path}` is truncated: its compressed content has no end", hint=_AGAIN) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"the trace `{path}` is damaged: {error}", hint=_AGAIN) from None
    except OSError as error:
        raise TraceError(f"`{path}` could not be read: {error.strerror or error}") from None


_AGAIN = "export the trace again, or profile the program with `advisor workload profile`"


def trace_head(path: Path) -> bytes:
    """Return the first bytes of a trace, decompressed.

    Raises:
        TraceError: If it cannot be read, or is empty.
    """
    with open_trace(path) as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip():
        raise TraceError(f"the trace `{path}` is empty", hint=_AGAIN)
    return head


def writers() -> str:
    """Return the profilers whose traces can be read, as a phrase."""
    *others, last = [f.profile["writer"] for f in frameworks().values() if "writer" in f.profile]
    return f"{', '.join(others)} or {last}"


def formats_hint() -> str:
    """Return the hint for a file that is no trace."""
    return f"import a trace of {writers()}"


def require_reader() -> Any:
    """Return the library that reads JSON as a stream.

    Raises:
        MissingExtraError: If it is not installed.
    """
    with needs_extra("profile", "reading a trace"):
        return importlib.import_module("ijson")


def chrome_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: the items of ``traceEvents``, or of the array that is the whole document.

    Events that are not JSON objects are skipped. The value of ``args`` is a dictionary in all of them.

    Raises:
        TraceError: If the trace is not JSON, is truncated, or has no events.
    """
    ijson = require_reader()
    is_array = trace_head(path).lstrip().startswith(b"[")
    count = 0
    with open_trace(path) as file:
        reader = _Reader(io.BufferedReader(cast(Any, file)) if isinstance(file, gzip.GzipFile) else file, path)
        try:
            for event in ijson.items(reader, "item" if is_array else "traceEvents.item", use_float=True):
                reader.end_event()
                count += 1
                if isinstance(event, dict):
                    if not isinstance(event.get("args"), dict):
                        event["args"] = {}
                    yield event
        except ijson.IncompleteJSONError as error:
            raise TraceError(_broken(path, count, str(error))) from None
        except (ijson.JSONError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            raise TraceError(f"`{path}` is not a trace in JSON: {_first_line(error)}", hint=formats_hint()) from None
    if not count:
        raise TraceError(f"`{path}` has no `traceEvents`: it is not a trace of a profiler", hint=formats_hint())


def time_of(event: dict[str, Any]) -> tuple[float, float] | None:
    """Return start and duration of an event; ``None`` if it has none, or they are not possible."""
    start, duration = event.get("ts"), event.get("dur")
    if isinstance(start, int | float) and isinstance(duration, int | float):
        # Also false for NaN.
        return (start, duration) if abs(start) < _LATEST and 0 <= duration < _LATEST else None
    return None


def integer_of(value: Any) -> int:
    """Return a value if it is an integer of 64 bits, else 0."""
    return value if isinstance(value, int) and abs(value) < 2**63 else 0


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the lengths of an array's axes; empty if a value is not a shape."""
    if not isinstance(value, list) or len(value) > _MAX_AXES:
        return ()
    return tuple(value) if all(isinstance(n, int) and 0 <= n < _MAX_LENGTH for n in value) else ()


_MAX_AXES = 16
_MAX_LENGTH = 2**40
_LATEST = 1e18


def _broken(path: Path, count: int, reason: str) -> str:
    if not count:
        return f"`{path}` is not a trace in JSON: {_first_line(reason)}"
    return f"the trace `{path}` is truncated or damaged after {count} events: {_first_line(reason)}"


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason is known")[:200]
