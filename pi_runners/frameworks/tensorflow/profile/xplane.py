"""Reads XPlane files (`*.xplane.pb`), which the profilers of TensorFlow and JAX write.

The messages: https://github.com/openxla/xla/blob/main/third_party/tsl/tsl/profiler/protobuf/xplane.proto. The file is
mapped into memory, and decoded event by event.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pi_runners.frameworks.tensorflow.profile import protobuf
from pi_runners.frameworks.tensorflow.profile.protobuf import Buffer, WireError
from pi_runners.profile.events import TraceError, formats_hint


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """An event of a trace of TensorFlow or JAX.

    Attributes:
        plane: Name of its plane, such as ``/host:CPU`` or ``/device:GPU:0``.
        line: Name of its thread or stream.
        thread: Number of its thread or stream.
        name: Its name.
        start: Start in microseconds.
        duration: Duration in microseconds.
        stats: Properties such as ``hlo_op``.
    """

    plane: str
    line: str
    thread: int
    name: str
    start: float
    duration: float
    stats: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A plane of a file, whose lines are decoded when they are read.

    Attributes:
        name: Its name.
        event_names: Name of each event by the number of its metadata.
        stat_names: Name of each property by its number.
        modules: Compiled modules (``HloProto``) that it holds, by name, such as ``jit_step(20)``.
        versions: Versions that its properties name.
        lines: Messages of its lines.
    """

    name: str
    event_names: dict[int, str]
    stat_names: dict[int, str]
    modules: dict[str, Buffer]
    versions: dict[str, str]
    lines: list[Buffer]

    def events(self) -> Iterator[HostEvent]:
        """Yield the events of all lines."""
        for number, line in enumerate(self.lines):
            yield from self._line_events(number, line)

    def _line_events(self, number: int, line: Buffer) -> Iterator[HostEvent]:
        name, display_name, origin = "", "", 0
        for item in protobuf.fields(line):
            if item.number == 2:
                name = protobuf.text(item.content)
            elif item.number == 11:
                display_name = protobuf.text(item.content)
            elif item.number == 3:
                origin = item.integer
        for item in protobuf.fields(line):
            if item.number == 4:
                yield self._event(number, display_name or name, origin, item.content)

    def _event(self, number: int, line: str, origin: int, message: Buffer) -> HostEvent:
        metadata = offset = duration = 0
        stats: dict[str, str | int] = {}
        for item in protobuf.fields(message):
            if item.number == 1:
                metadata = item.integer
            elif item.number == 2:
                offset = item.integer
            elif item.number == 3:
                duration = item.integer
            elif item.number == 4:
                name, value = _stat(item.content, self.stat_names)
                stats[name] = value
        return HostEvent(
            plane=self.name,
            line=line,
            thread=number,
            name=self.event_names.get(metadata, ""),
            # Offsets are picoseconds, origins nanoseconds.
            start=origin / 1e3 + offset / 1e6,
            duration=duration / 1e6,
            stats=stats,
        )


def _stat(message: Buffer, names: dict[int, str]) -> tuple[str, str | int]:
    name = ""
    content: str | int = 0
    for item in protobuf.fields(message):
        if item.number == 1:
            name = names.get(item.integer, "")
        elif item.number in (3, 4):
            content = item.integer
        elif item.number == 5:
            content = protobuf.text(item.content)
        elif item.number == 7:
            content = names.get(item.integer, "")
    return name, content


@contextmanager
def open_xplane(path: Path) -> Iterator[list[Plane]]:
    """Open an XPlane file.

    Raises:
        TraceError: If the file cannot be read, is empty, truncated or not an XPlane file.
    """
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise TraceError(f"the trace `{path}` is empty", hint="end the profiler before the program ends")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            # Views of the mapping may outlive this context; the mapping ends with the last of them.
            planes = [_plane(item.content) for item in protobuf.fields(memoryview(mapped)) if item.number == 1]
            if not any(plane.name for plane in planes):
                raise TraceError(f"`{path}` is not an XPlane file of TensorFlow or JAX")
            yield planes
    except WireError as error:
        raise TraceError(
            f"`{path}` is neither JSON nor a complete XPlane file: {error}",
            hint=formats_hint(),
        ) from None
    except OSError as error:
        raise TraceError(f"`{path}` could not be read: {error.strerror or error}") from None


def _plane(message: Buffer) -> Plane:
    name = ""
    event_names: dict[int, str] = {}
    stat_names: dict[int, str] = {}
    metadata: list[Buffer] = []
    stats: list[Buffer] = []
    lines: list[Buffer] = []
    for item in protobuf.fields(message):
        if item.number == 2:
            name = protobuf.text(item.content)
        elif item.number == 3:
            lines.append(item.content)
        elif item.number == 4:
            number, value = _map_entry(item.content)
            event_names[number] = _name(value)
            metadata.append(value)
        elif item.number == 5:
            number, value = _map_entry(item.content)
            stat_names[number] = _name(value)
        elif item.number == 6:
            stats.append(item.content)
    values = dict(_stat(content, stat_names) for content in stats)
    modules = {_name(value): module for value in metadata for module in _modules(value)}
    return Plane(
        name=name,
        event_names=event_names,
        stat_names=stat_names,
        modules=modules if name == "/host:metadata" else {},
        versions={key.removesuffix("_version"): str(v) for key, v in values.items() if key.endswith("_version")},
        lines=lines,
    )


def _map_entry(message: Buffer) -> tuple[int, Buffer]:
    number, value = 0, memoryview(b"")
    for item in protobuf.fields(message):
        if item.number == 1:
            number = item.integer
        elif item.number == 2:
            value = item.content
    return number, value


def _name(message: Buffer) -> str:
    """Return the name in the metadata of an event or property."""
    return next((protobuf.text(item.content) for item in protobuf.fields(message) if item.number == 2), "")


def _modules(message: Buffer) -> Iterator[Buffer]:
    """Yield the modules in the properties of an event's metadata: their properties with bytes."""
    for item in protobuf.fields(message):
        if item.number == 5:
            yield from (stat.content for stat in protobuf.fields(item.content) if stat.number == 6)
