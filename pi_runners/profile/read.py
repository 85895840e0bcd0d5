"""Recognises the program that wrote a trace, and reads the trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pi_runners.frameworks.onnxruntime.profile import trace as onnxruntime_trace
from pi_runners.frameworks.torch.profile import trace as torch_trace
from pi_runners.profile.events import TraceError, chrome_events, trace_head
from pi_runners.profile.summary import TraceSummary
from pi_runners.profile.xla_trace import read_xla_events, read_xplanes

_EVENTS_TO_RECOGNISE = 20_000
_DEVICE = re.compile(r'"deviceProperties":\s*\[\s*\{\s*"id": 0, "name": "([^"]{1,100})"')
"""Name of the first accelerator, which torch.profiler writes before the events."""
_FORMATS = "import a trace of torch.profiler, ONNX Runtime, TensorFlow or JAX"


def read_trace(path: Path, *, steps: int = 0) -> TraceSummary:
    """Return the content of a trace.

    Args:
        path: A trace in Chrome's format (JSON, plain or gzipped) of torch.profiler, ONNX Runtime, TensorFlow or JAX; an
            XPlane file of TensorFlow or JAX; or a directory that these two wrote.
        steps: Steps in a trace that does not mark them (TensorFlow and JAX), or complete ones in a trace of PyTorch; 0
            if unknown.

    Raises:
        TraceError: If it cannot be read, is empty, truncated, damaged, of another program, or has no duration.
    """
    summary = _read(path, steps)
    if not summary.division.total > 0:
        raise TraceError(f"the trace `{path}` has no duration")
    return summary


def _read(path: Path, steps: int) -> TraceSummary:
    if path.is_dir():
        return _read_directory(path, steps)
    head = trace_head(path).lstrip()
    if head[:1] not in (b"{", b"["):
        return read_xplanes([path], steps=steps)
    try:
        summary = _read_events(chrome_events(path), steps)
        device = _DEVICE.search(head.decode("utf-8", "replace"))
        return replace(summary, hardware=device[1]) if device and summary.device == "cuda" else summary
    except TraceError as error:
        if f"`{path}`" not in error.message:
            error.message = f"`{path}`: {error.message}"
        raise


def _read_directory(path: Path, steps: int) -> TraceSummary:
    files = sorted(path.rglob("*.xplane.pb"), key=lambda file: (file.stat().st_mtime, file.name))
    if not files:
        raise TraceError(f"the directory `{path}` has no `*.xplane.pb` of TensorFlow or JAX", hint=_FORMATS)
    # A directory may hold several profiles, each in a folder of its own.
    newest = [file for file in files if file.parent == files[-1].parent]
    return read_xplanes(newest, steps=steps, graphs=path / "graphs.json")


def _read_events(events: Iterator[dict[str, Any]], steps: int) -> TraceSummary:
    head: list[dict[str, Any]] = []
    for event in islice(events, _EVENTS_TO_RECOGNISE):
        head.append(event)
        everything: Iterable[dict[str, Any]] = chain(head, events)
        if str(event.get("cat")) in torch_trace.CATEGORIES:
            return torch_trace.read_torch_trace(everything, steps=steps)
        if str(event.get("cat")) in onnxruntime_trace.CATEGORIES:
            return onnxruntime_trace.read_onnxruntime_trace(everything)
        if _is_xla(event):
            return read_xla_events(everything, steps=steps)
    raise TraceError(
        f"none of its first {len(head)} events is of torch.profiler, ONNX Runtime, TensorFlow or JAX", hint=_FORMATS
    )


def _is_xla(event: dict[str, Any]) -> bool:
    name = str(event["args"].get("name", ""))
    return event.get("name") == "process_name" and name.startswith(("/host:", "/device:"))
