"""Recognises the program that wrote a trace, and reads the trace."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from knowledge.domain.frameworks import frameworks
from pi_runners.profile.events import TraceError, chrome_events, formats_hint, trace_head, writers
from pi_runners.profile.summary import TraceSummary

_EVENTS_TO_RECOGNISE = 20_000


class TraceReader(ABC):
    """Reads the traces of a framework's profiler: the constant `READER` in the module `profile.trace` of its folder."""

    @abstractmethod
    def read_events(self, events: Iterable[dict[str, Any]], *, steps: int) -> TraceSummary:
        """Return the content of a trace in Chrome's format.

        Args:
            events: Its events.
            steps: Steps in the trace, if it does not mark them; 0 if unknown.

        Raises:
            TraceError: If it has no operations.
        """

    def read_files(self, paths: Sequence[Path], *, steps: int, directory: Path | None = None) -> TraceSummary:
        """Return the content of files that are not JSON, of one process.

        Args:
            paths: The files.
            steps: Steps in the trace; 0 if unknown.
            directory: The directory that the profiler wrote, if it is one.

        Raises:
            TraceError: If a file is not valid.
        """
        raise NotImplementedError

    def hardware(self, head: str) -> str:
        """Return the name of the accelerator that the start of a trace contains, or an empty text."""
        return ""

    def read_profile(self, paths: Sequence[Path], *, steps: int, warm_up: int) -> TraceSummary:
        """Return the content of what the hooks of the framework wrote.

        Args:
            paths: Files or directories.
            steps: Profiled steps.
            warm_up: Steps before these.

        Raises:
            TraceError: If they are not valid.
        """
        return read_trace(paths[0], steps=steps)


def read_trace(path: Path, *, steps: int = 0) -> TraceSummary:
    """Return the content of a trace.

    Args:
        path: A trace in Chrome's format (JSON, plain or gzipped); another file of a framework's profiler, such as an
            XPlane file of TensorFlow or JAX; or a directory with such files.
        steps: Steps in a trace that does not mark them (TensorFlow and JAX), or complete ones in a trace of PyTorch; 0
            if unknown.

    Raises:
        TraceError: If it cannot be read, is empty, truncated, damaged, of another program, or has no duration.
    """
    summary = _read(path, steps)
    if not summary.division.total > 0:
        raise TraceError(f"the trace `{path}` has no duration")
    return summary


def reader_of(framework: str) -> TraceReader:
    """Return the reader of a framework's traces."""
    folder = frameworks()[framework].profile.get("reader", framework)
    module = f"{frameworks()[folder].package}.{folder}.profile.trace"
    reader: TraceReader = importlib.import_module(module).READER
    return reader


def _read(path: Path, steps: int) -> TraceSummary:
    patterns = {name: f.profile["files"] for name, f in frameworks().items() if "files" in f.profile}
    if path.is_dir():
        return _read_directory(path, steps, patterns)
    head = trace_head(path).lstrip()
    if head[:1] not in (b"{", b"["):
        # A file that was renamed is read with the first reader.
        name = next((name for name, pattern in patterns.items() if path.match(pattern)), next(iter(patterns)))
        return reader_of(name).read_files([path], steps=steps)
    try:
        reader, events = _recognised(chrome_events(path))
        summary = reader.read_events(events, steps=steps)
        hardware = reader.hardware(head.decode("utf-8", "replace"))
        return replace(summary, hardware=hardware) if hardware and summary.device == "cuda" else summary
    except TraceError as error:
        if f"`{path}`" not in error.message:
            error.message = f"`{path}`: {error.message}"
        raise


def _read_directory(path: Path, steps: int, patterns: Mapping[str, str]) -> TraceSummary:
    for name, pattern in patterns.items():
        files = sorted(path.rglob(pattern), key=lambda file: (file.stat().st_mtime, file.name))
        if files:
            # A directory may hold several profiles, each in a folder of its own.
            newest = [file for file in files if file.parent == files[-1].parent]
            return reader_of(name).read_files(newest, steps=steps, directory=path)
    quoted = " or ".join(f"`{pattern}`" for pattern in patterns.values())
    raise TraceError(f"the directory `{path}` has no {quoted} of TensorFlow or JAX", hint=formats_hint())


def _recognised(events: Iterator[dict[str, Any]]) -> tuple[TraceReader, Iterable[dict[str, Any]]]:
    """Return the reader of a trace, and all its events."""
    profiles = {name: framework.profile for name, framework in frameworks().items()}
    categories = {category: name for name, p in profiles.items() for category in p.get("categories", ())}
    processes = {prefix: name for name, p in profiles.items() for prefix in p.get("processes", ())}
    head: list[dict[str, Any]] = []
    for event in islice(events, _EVENTS_TO_RECOGNISE):
        head.append(event)
        framework = categories.get(str(event.get("cat")))
        if event.get("name") == "process_name":
            process = str(event["args"].get("name", ""))
            framework = next((name for prefix, name in processes.items() if process.startswith(prefix)), framework)
        if framework is not None:
            return reader_of(framework), chain(head, events)
    raise TraceError(f"none of its first {len(head)} events is of {writers()}", hint=formats_hint())
