"""Reads traces of torch.profiler."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pi_runners.frameworks.torch.profile.operations import Call, claim_of, layer_of
from pi_runners.profile.events import TraceError, integer_of, shape_of, time_of
from pi_runners.profile.operations import DTYPES, layer_of_kernel
from pi_runners.profile.read import TraceReader
from pi_runners.profile.summary import TraceSummary
from pi_runners.profile.timeline import Kind, Level, Timeline

_HARDWARE = re.compile(r'"deviceProperties":\s*\[\s*\{\s*"id": 0, "name": "([^"]{1,100})"')
"""Name of the first accelerator, which torch.profiler writes before the events."""
_DEVICE = {"kernel": "", "gpu_memcpy": "memory copies", "gpu_memset": "memory copies"}
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "Runtime"})
_STEP = re.compile(r"^ProfilerStep#\d+$")
_INPUT = re.compile(r"^enumerate\(DataLoader\)|^DataLoader|DataLoaderIter\.__next__")
_MAX_KINDS = 50_000
_MAX_ARRAYS = 8


class _Kinds:
    """The kinds of operations of a trace, each made once."""

    def __init__(self) -> None:
        self.without_shapes = 0
        self._kinds: dict[tuple[Any, ...], Kind] = {}

    def operation(self, event: dict[str, Any]) -> Kind:
        """Return the kind of a ``cpu_op``."""
        name, arguments = str(event.get("name", "")), event["args"]
        shapes = _shapes(arguments.get("Input Dims", arguments.get("Input dims")))
        types, values = _texts(arguments.get("Input type")), _texts(arguments.get("Concrete Inputs"))
        key = (name, shapes, types, values)
        if key not in self._kinds:
            if len(self._kinds) >= _MAX_KINDS:
                return Kind(name, layer_of(name))
            claim = None
            if name.startswith("aten::"):
                # The first input with a floating-point type decides.
                dtype = next((DTYPES[t] for t in types if t in DTYPES), "")
                claim = claim_of(Call(name[len("aten::") :], shapes, dtype=dtype, values=values))
            layer = layer_of(name)
            inherited = layer == "communication"
            if _INPUT.search(name):
                layer, inherited = "input pipeline", True
            self._kinds[key] = Kind(name, layer, claim, inherited)
        kind = self._kinds[key]
        self.without_shapes += kind.claim is not None and not shapes
        return kind


def _shapes(value: Any) -> tuple[Any, ...]:
    """Return the shapes of inputs; lists of arrays have a shape for each, and what is not a shape is empty."""
    return tuple(_shape(item) for item in value) if isinstance(value, list) else ()


def _shape(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        return ()
    if any(isinstance(item, list) for item in value):
        return tuple(_shape(item) for item in value[:_MAX_ARRAYS])
    return shape_of(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _summary(timeline: Timeline, steps: list[tuple[float, float]], device: str, without_shapes: int) -> TraceSummary:
    warnings = []
    if timeline.is_full:
        warnings.append(f"the trace is very long: only its first {len(timeline)} operations were read")
        last = timeline.bounds()[1]
        steps = [step for step in steps if step[1] <= last]
    if without_shapes:
        warnings.append("the trace has operations without shapes: record it with `record_shapes=True`")
    window = (min(s[0] for s in steps), max(s[1] for s in steps)) if steps else timeline.bounds()
    division = timeline.divide(window)
    return TraceSummary(
        framework="torch",
        division=division,
        steps=len(steps),
        device=device,
        warnings=tuple(warnings),
    )


class TorchReader(TraceReader):
    """Traces of torch.profiler, which have the device's name before the events."""

    def read_events(self, events: Iterable[dict[str, Any]], *, steps: int) -> TraceSummary:
        """Return the content of a trace; only its first complete steps count, if their number is given."""
        timeline = Timeline()
        kinds = _Kinds()
        marks: list[tuple[float, float]] = []
        device = "cpu"
        for event in events:
            category, time = str(event.get("cat")), time_of(event)
            if event.get("ph") != "X" or time is None:
                continue
            start, duration = time
            name, thread = str(event.get("name", "")), (str(event.get("pid")), str(event.get("tid")))
            link = integer_of(event["args"].get("correlation"))
            if category == "cpu_op" or (category == "user_annotation" and _INPUT.search(name)):
                timeline.add(kinds.operation(event), thread, start, duration)
            elif category == "user_annotation" and _STEP.match(name):
                marks.append((start, start + duration))
            elif category in _DEVICE:
                device = "cuda"
                kind = Kind(name[:300], _DEVICE[category] or layer_of_kernel(name))
                timeline.add(kind, thread, start, duration, level=Level.DEVICE, link=link)
            elif category in _RUNTIME:
                timeline.add(Kind(name, "framework"), thread, start, duration, link=link)
        if not len(timeline):
            raise TraceError(
                "the trace of torch.profiler has no operations",
                hint="record it with `torch.profiler.profile(record_shapes=True)`, around some steps",
            )
        marks.sort()
        return _summary(timeline, marks[: steps or None], device, kinds.without_shapes)

    def hardware(self, head: str) -> str:
        """Return the name of the first accelerator."""
        match = _HARDWARE.search(head)
        return match[1] if match else ""


READER = TorchReader()
