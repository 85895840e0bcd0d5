"""Reads XPlane files (`*.xplane.pb`), which the profilers of TensorFlow and JAX write, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pi_runners.frameworks.tensorflow.profile.messages import WireError, fields, parse, split, text
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


_PLANES, _LINES, _EVENTS = 1, 3, 4
"""Numbers of the fields that hold the planes of a file, the lines of a plane and the events of a line."""


class Plane:
    """A plane of a file. Its lines are parsed when they are read, some events at a time.

    Attributes:
        name: Its name.
        modules: Compiled modules (``HloProto``) that it holds, by name, such as ``jit_step(20)``.
        versions: Versions that its properties name.
    """

    def __init__(self, content: memoryview) -> None:
        """Read a plane.

        Args:
            content: The encoded message `Plane`.

        Raises:
            WireError: If it is damaged, outside its lines.
        """
        others, self._lines = split(content, _LINES)
        message = parse("Plane", others)
        self.name = text(message.name)
        self._event_names = {entry.key: text(entry.value.name) for entry in message.events}
        self._property_names = {entry.key: text(entry.value.name) for entry in message.properties}
        stats = dict(map(self._stat, message.stats))
        self.versions = {key.removesuffix("_version"): str(v) for key, v in stats.items() if key.endswith("_version")}
        self.modules: dict[str, bytes] = {}
        if self.name == "/host:metadata":
            # Compiled modules are the properties with bytes.
            for entry in message.events:
                modules = [stat.content for stat in entry.value.stats if stat.HasField("content")]
                self.modules.update((text(entry.value.name), module) for module in modules)

    def events(self) -> Iterator[HostEvent]:
        """Yield the events of all lines.

        Raises:
            WireError: If a line is damaged.
        """
        lines = (line for part in self._lines for _, _, line in fields(part))
        for number, content in enumerate(lines):
            others, parts = split(content, _EVENTS)
            line = parse("Line", others)
            title = text(line.display_name or line.name)
            for event in (event for part in parts for event in parse("Line", part).events):
                yield HostEvent(
                    plane=self.name,
                    line=title,
                    thread=number,
                    name=self._event_names.get(event.metadata, ""),
                    # Offsets are picoseconds, origins nanoseconds.
                    start=line.origin / 1e3 + event.offset / 1e6,
                    duration=event.duration / 1e6,
                    stats=dict(map(self._stat, event.stats)),
                )

    def _stat(self, stat: Any) -> tuple[str, str | int]:
        """Return name and value of a property: a text, the name of another property, or a number."""
        name = self._property_names.get(stat.property, "")
        if stat.HasField("text"):
            return name, text(stat.text)
        if stat.HasField("reference"):
            return name, self._property_names.get(stat.reference, "")
        return name, stat.signed or stat.unsigned


def read_xplane(path: Path) -> list[Plane]:
    """Read an XPlane file.

    Raises:
        TraceError: If the file cannot be read, is empty, truncated or not an XPlane file.
    """
    try:
        # Not mapped: a program that truncates a mapped file ends this one with a bus error.
        if not (content := memoryview(path.read_bytes())):
            raise TraceError(f"the trace `{path}` is empty", hint="end the profiler before the program ends")
        planes = [Plane(plane) for number, _, plane in fields(content) if number == _PLANES]
    except WireError as error:
        raise TraceError(f"`{path}` is neither JSON nor a complete XPlane file: {error}", hint=formats_hint()) from None
    except OSError as error:
        raise TraceError(f"`{path}` could not be read: {error.strerror or error}") from None
    if not any(plane.name for plane in planes):
        raise TraceError(f"`{path}` is not an XPlane file of TensorFlow or JAX")
    return planes
