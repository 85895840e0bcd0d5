"""Reads the profiles of ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pi_runners.frameworks.onnxruntime.profile.operations import claim_of, layer_of, node_of
from pi_runners.profile.events import TraceError, chrome_events, time_of
from pi_runners.profile.operations import layer_of_kernel
from pi_runners.profile.read import TraceReader
from pi_runners.profile.summary import TraceSummary
from pi_runners.profile.timeline import Kind, Level, Timeline

_SUFFIX = "_kernel_time"
_WARM_UP = 2


def _read(events: Iterable[dict[str, Any]], *, warm_up: int = _WARM_UP) -> TraceSummary:
    """Return the content of a profile. A run of the model is a step; the first ones do not count, but the last one."""
    timeline = Timeline()
    runs: list[tuple[float, float]] = []
    kinds: dict[str, Kind] = {}
    device = "cpu"
    for event in events:
        time, name = time_of(event), str(event.get("name", ""))
        if time is None:
            continue
        start, duration = time
        arguments, thread = event["args"], str(event.get("tid"))
        if event.get("cat") == "Session":
            if name == "model_run":
                runs.append((start, start + duration))
                timeline.add(Kind("model_run", "framework"), thread, start, duration)
        elif event.get("cat") == "Kernel":
            device = "cuda"
            timeline.add(Kind(name[:300], layer_of_kernel(name)), thread, start, duration, level=Level.DEVICE)
        elif event.get("cat") == "Node" and name.endswith(_SUFFIX):
            key = json.dumps(
                [name, arguments.get("op_name"), arguments.get("input_type_shape"), arguments.get("output_type_shape")]
            )
            if key not in kinds:
                node = node_of(arguments)
                if node.provider.startswith(("CUDA", "Tensorrt")):
                    device = "cuda"
                title = f"{node.name} ({name.removesuffix(_SUFFIX)})"[:300]
                kinds[key] = Kind(title, layer_of(node), claim_of(node))
            timeline.add(kinds[key], thread, start, duration)
    if not runs:
        raise TraceError(
            "the profile of ONNX Runtime has no run of a model",
            hint="run the session, then call `session.end_profiling()`",
        )
    runs.sort()
    counted = runs[min(warm_up, len(runs) - 1) :]
    warnings: tuple[str, ...] = ()
    if timeline.is_full:
        warnings = (f"the profile is very long: only its first {len(timeline)} operations were read",)
        counted = [run for run in counted if run[1] <= timeline.bounds()[1]] or counted[:1]
    division = timeline.divide((counted[0][0], max(end for _, end in counted)))
    return TraceSummary(
        framework="onnxruntime",
        division=division,
        steps=len(counted),
        device=device,
        warnings=warnings,
    )


class OnnxruntimeReader(TraceReader):
    """Profiles of ONNX Runtime, which mark their runs."""

    def read_events(self, events: Iterable[dict[str, Any]], *, steps: int) -> TraceSummary:
        """Return the content of a profile, which marks its steps."""
        return _read(events)

    def read_profile(self, paths: Sequence[Path], *, steps: int, warm_up: int) -> TraceSummary:
        """Return the content of the session that took longest: sessions are profiled from their creation on."""
        summaries = []
        failure: TraceError | None = None
        for path in paths:
            try:
                summaries.append(_read(chrome_events(path), warm_up=warm_up))
            except TraceError as error:
                failure = error
        if not summaries:
            raise failure or TraceError("the program has no profile of ONNX Runtime")
        longest = max(summaries, key=lambda summary: summary.seconds)
        if len(summaries) == 1:
            return longest
        warning = f"{len(summaries)} sessions of ONNX Runtime ran; the workload is the one that took longest"
        return replace(longest, warnings=(*longest.warnings, warning))


READER = OnnxruntimeReader()
