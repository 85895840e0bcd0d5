"""Reads XPlane files (`*.xplane.pb`), which the profilers of TensorFlow and JAX write, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pi_runners.frameworks.tensorflow.profile.messages import WireError, parse, text
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


class Plane:
    """A plane of a file, whose lines are parsed when they are read.

    Attributes:
        name: Its name.
        modules: Compiled modules (``HloProto``) that it holds, by name, such as ``jit_step(20)``.
        versions: Versions that its properties name.
    """

    def __init__(self, message: Any) -> None:
        """Read a plane.

        Args:
            message: The message `Plane`.
        """
        self.name = text(message.name)
        self._event_names = {entry.key: text(entry.value.name) for entry in message.events}
        self._property_names = {entry.key: text(entry.value.name) for entry in message.properties}
        self._lines = message.lines
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
        for number, content in enumerate(self._lines):
            line = parse("Line", content)
            title = text(line.display_name or line.name)
            for event in line.events:
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
        content = path.read_bytes()
        if not content:
            raise TraceError(f"the trace `{path}` is empty", hint="end the profiler before the program ends")
        planes = [Plane(message) for message in parse("Space", content).planes]
    except WireError as error:
        raise TraceError(f"`{path}` is neither JSON nor a complete XPlane file: {error}", hint=formats_hint()) from None
    except OSError as error:
        raise TraceError(f"`{path}` could not be read: {error.strerror or error}") from None
    if not any(plane.name for plane in planes):
        raise TraceError(f"`{path}` is not an XPlane file of TensorFlow or JAX")
    return planes
