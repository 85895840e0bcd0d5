"""Reads traces of TensorFlow and JAX: XPlane files, and their events in Chrome's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pi_runners.frameworks.tensorflow.profile.hlo import Module
from pi_runners.frameworks.tensorflow.profile.hooks import GRAPHS
from pi_runners.frameworks.tensorflow.profile.messages import WireError
from pi_runners.frameworks.tensorflow.profile.operations import claim_of, layer_of
from pi_runners.frameworks.tensorflow.profile.shapes import GraphShapes
from pi_runners.frameworks.tensorflow.profile.xplane import HostEvent, read_xplane
from pi_runners.profile.events import TraceError, formats_hint, time_of
from pi_runners.profile.operations import layer_of_kernel
from pi_runners.profile.read import TraceReader
from pi_runners.profile.summary import TraceSummary
from pi_runners.profile.timeline import Kind, Level, Timeline

_OPERATION = re.compile(r"^(?P<path>[^:]+):(?P<operator>_?[A-Z]\w*)$")
"""TensorFlow names the event of an operation ``path:operator``."""
_WAIT = re.compile(r"Await|Wait|Listener|^end: |BlockUntilReady|block_until_ready|^Threadpool|^Acquire|GetAndWait")
_COPY = re.compile(
    r"Memcpy|MemcpyD2H|MemcpyH2D|TransferTo|TransferFrom|BufferFromHost|CopyToDevice|CopyToHost|ToLiteral"
)
_INPUT = re.compile(r"^(Iterator|MakeIterator|IteratorGetNext|Prefetch|ParallelMap|MapAndBatch|InstantiatedCaptured)")
_PROFILER = re.compile(r"profiler|Profiler")
_MODULE = re.compile(r"^(?P<name>.*)\((?P<number>\d+)\)$")
_MAX_KINDS = 50_000


class _Kinds:
    """The kinds of events of a trace, with the compiled modules of XLA that explain them."""

    def __init__(self, shapes: GraphShapes) -> None:
        self._shapes = shapes
        self._modules: dict[str, bytes] = {}
        self._parsed: dict[str, Module] = {}
        self.operation = lru_cache(_MAX_KINDS)(self._operation)
        self.instruction = lru_cache(_MAX_KINDS)(self._instruction)

    def add_modules(self, modules: dict[str, bytes]) -> None:
        """Add compiled modules by their names, such as ``jit_step(20)``."""
        for title, message in modules.items():
            match = _MODULE.match(title)
            self._modules.setdefault(match["name"] if match else title, message)
            self._modules[title] = message

    def _instruction(self, name: str, module: str, number: str, kernel: str) -> Kind:
        """Return the kind of an instruction of XLA, by its name, its module, the number of that, and its kernel."""
        title = f"{module}({number})" if f"{module}({number})" in self._modules else module
        if title in self._modules and title not in self._parsed:
            self._parsed[title] = Module(self._modules[title])
        kind = (self._parsed[title].kind(name) if title in self._parsed else None) or _named_instruction(name)
        return Kind(kernel[:300], layer_of_kernel(kernel), kind.claim) if kernel not in ("", name) else kind

    def _operation(self, operator: str, path: str) -> Kind:
        """Return the kind of an operation of TensorFlow with this name in the trace."""
        return Kind(operator, layer_of(operator), self._shapes.claim(operator, path))


def _named_instruction(name: str) -> Kind:
    """Return the kind of an instruction of which only the name is known."""
    word = re.sub(r"[.\d]+$", "", name)
    if word.startswith("dot") or "gemm" in word:
        return Kind(name, "BLAS", claim_of("MatMul"))
    if word.startswith("conv") and not word.startswith("convert"):
        return Kind(name, "DNN library", claim_of("Conv2D"))
    if word.startswith(("all-", "reduce-scatter", "collective")):
        return Kind(name, "communication")
    return Kind(name, "memory copies" if word in ("copy", "transpose", "concatenate") else "framework")


def _host_events(events: Iterable[dict[str, Any]]) -> Iterator[HostEvent]:
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    for event in events:
        arguments, time = event["args"], time_of(event)
        process = str(event.get("pid"))
        thread = (process, str(event.get("tid")))
        if event.get("ph") == "M":
            if event.get("name") == "process_name":
                processes[process] = str(arguments.get("name", ""))
            elif event.get("name") == "thread_name":
                threads[thread] = str(arguments.get("name", ""))
        if event.get("ph") == "X" and time is not None:
            yield HostEvent(
                plane=processes.get(process, ""),
                line=threads.get(thread, ""),
                thread=hash(thread),
                name=str(event.get("name", "")),
                start=time[0],
                duration=time[1],
                stats={str(k): v if isinstance(v, int) else str(v) for k, v in arguments.items()},
            )


class _Reader:
    """Collects the events of a trace."""

    def __init__(self, shapes: GraphShapes) -> None:
        self.kinds = _Kinds(shapes)
        self._timeline = Timeline()
        self._device = "cpu"
        self._has_instructions = self._has_operations = False
        self._is_jax = False

    def add(self, event: HostEvent) -> None:
        """Add an event; events that only wait, or that describe others, are ignored."""
        name = event.name
        if "hlo_op" in event.stats:
            if event.plane.startswith("/device:") and not event.line.startswith(("Stream", "XLA Ops")):
                return
            self._has_instructions = True
            if event.plane.startswith("/device:GPU"):
                self._device = "cuda"
            module, number = (str(event.stats.get(key, "")) for key in ("hlo_module", "program_id"))
            kernel = name if event.plane.startswith("/device:") else ""
            kind = self.kinds.instruction(str(event.stats["hlo_op"]), module, number, kernel)
            self._add(kind, event, Level.DEVICE)
        elif event.plane.startswith("/device:"):
            if event.line.startswith("Stream"):
                self._device = "cuda"
                self._add(Kind(name[:300], layer_of_kernel(name)), event, Level.DEVICE)
        elif name.startswith("$") or _WAIT.search(name) or _PROFILER.search(name):
            return
        elif event.line.startswith("tf_data") or _INPUT.search(name):
            self._add(Kind(name.partition("::")[0], "input pipeline"), event, Level.BACKGROUND)
        elif match := _OPERATION.match(name):
            self._has_operations = True
            self._add(self.kinds.operation(match["operator"], match["path"]), event, Level.DEVICE)
        elif _COPY.search(name):
            self._add(Kind(name[:300], "memory copies"), event, Level.HOST)
        elif event.line.startswith("python") or name.startswith(("Executor", "ThunkExecutor", "Pjit", "TFE_", "Eager")):
            self._is_jax |= name.startswith("PjitFunction")
            self._add(Kind(re.sub(r"[ (:].*", "", name)[:300], "framework"), event, Level.HOST)

    def _add(self, kind: Kind, event: HostEvent, level: Level) -> None:
        self._timeline.add(kind, (event.plane, event.thread), event.start, event.duration, level=level)

    def summary(self, steps: int, versions: dict[str, str]) -> TraceSummary:
        """Return the content of the trace."""
        if not self._has_instructions and not self._has_operations:
            raise TraceError(
                "the trace has no operations of TensorFlow or JAX",
                hint="run some steps between the start and the end of the profiler",
            )
        warnings = []
        if self._timeline.is_full:
            warnings.append(f"the trace is very long: only its first {len(self._timeline)} operations were read")
        division = self._timeline.divide()
        return TraceSummary(
            framework="jax" if "jax" in versions or self._is_jax else "tensorflow",
            division=division,
            steps=steps,
            device=self._device,
            versions=versions,
            warnings=tuple(warnings),
        )


class XlaReader(TraceReader):
    """Traces of the profiler of TensorFlow and JAX."""

    def read_events(self, events: Iterable[dict[str, Any]], *, steps: int) -> TraceSummary:
        """Return the content of a trace, without shapes."""
        reader = _Reader(GraphShapes())
        for event in _host_events(events):
            reader.add(event)
        return reader.summary(steps, {})

    def read_files(self, paths: Sequence[Path], *, steps: int, directory: Path | None = None) -> TraceSummary:
        """Return the content of XPlane files, with the shapes that the hooks of TensorFlow wrote."""
        reader = _Reader(GraphShapes(directory / GRAPHS if directory else None))
        versions: dict[str, str] = {}
        for path in paths:
            planes = read_xplane(path)
            for plane in planes:
                reader.kinds.add_modules(plane.modules)
                versions.update(plane.versions)
            try:
                for event in (event for plane in planes for event in plane.events()):
                    reader.add(event)
            except WireError as error:
                raise TraceError(f"`{path}` is damaged: {error}", hint=formats_hint()) from None
        return reader.summary(steps, {name: v for name, v in versions.items() if name in ("jax", "jaxlib")})


READER = XlaReader()
