"""Parser of the log of a training run, in any of MLPerf's three formats.

``:::MLPv0.5.0`` (v0.5) writes time, place and key before an optional value; ``:::MLL`` (v0.6) time and key before a
JSON object; ``:::MLLOG`` (v0.7 and later) one JSON object. The keys are those of
https://github.com/mlcommons/logging (``mlperf_logging/mllog/constants.py``).
"""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from knowledge.domain.documents import lines_of
from knowledge.domain.observation import Scalar
from knowledge.exchange.mlperf.facts import UnreadableResultError

_V05 = re.compile(r":::MLPv0\.5\.0\s+(?P<benchmark>\S+)\s+(?P<seconds>[\d.]+)\s+\((?P<place>[^)]*)\)\s+(?P<rest>.*)$")
_MLL = re.compile(r":::MLL\s+(?P<seconds>[\d.]+)\s+(?P<key>\w+):\s*(?P<record>\{.*\})\s*$")
_MLLOG = re.compile(r":::MLLOG\s+(?P<record>\{.*\})\s*$")
_LONGEST_TEXT = 200
_LARGEST_INTEGER = 2**63 - 1
"""Largest whole number that every reader of JSON, and every database, keeps exactly."""
_SEPARATE_KEYS = frozenset({"run_start", "run_stop", "run_final", "eval_accuracy", "eval_target", "submission_entry"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """Content of the log of one training run.

    Attributes:
        benchmark: Name of the benchmark in the log, or empty.
        started: Unix time of the first ``run_start``.
        seconds: Time from the first ``run_start`` to the first ``run_stop``.
        converged: Whether the quality target was reached.
        quality: Last quality that was evaluated, or ``None``.
        epochs: Epoch of that evaluation, or ``None``.
        place: Source file that wrote ``run_start``.
        entry: Description of the system in the log, or empty.
        values: First value of each other key.
    """

    benchmark: str
    started: float
    seconds: float
    converged: bool
    quality: float | None
    epochs: float | None
    place: str
    entry: str
    values: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    key: str
    seconds: float
    value: Any
    metadata: Mapping[str, Any]
    benchmark: str = ""


def read_log(text: str) -> TrainingRun:
    """Read a log.

    Raises:
        UnreadableResultError: If it contains no start or no stop, or stops before it starts.
    """
    # Progress bars end with a carriage return; records contain none.
    lines = lines_of(text.replace("\r", "\n"))
    events = [event for line in lines if (event := _event(line)) is not None]
    if not events:
        raise UnreadableResultError("it contains no MLPerf log line")
    start, stop = _first(events, "run_start"), _first(events, "run_stop")
    if start is None or stop is None:
        raise UnreadableResultError(f"it contains no `{'run_start' if start is None else 'run_stop'}`")
    if stop.seconds <= start.seconds:
        raise UnreadableResultError("its `run_stop` is not after its `run_start`")
    values: dict[str, Scalar] = {}
    for e in events:
        if e.key not in _SEPARATE_KEYS and e.value is not None:
            values.setdefault(e.key, _scalar(e.value))
    benchmark = values.pop("submission_benchmark", None) or next((e.benchmark for e in events if e.benchmark), "")
    quality, epochs = _last_quality(events)
    entry = _first(events, "submission_entry")
    return TrainingRun(
        benchmark=str(benchmark),
        started=start.seconds,
        seconds=stop.seconds - start.seconds,
        converged=_converged(stop, events, quality),
        quality=quality,
        epochs=epochs,
        place=str(start.metadata.get("file", "")),
        entry=str(entry.value) if entry is not None else "",
        values=values,
    )


def _first(events: list[_Event], key: str) -> _Event | None:
    return next((e for e in events if e.key == key), None)


def _event(line: str) -> _Event | None:
    """Parse one line; ``None`` if it is not a log line, or damaged."""
    # Search from one position only: on a line of many incomplete records, the time would be quadratic in its length.
    start = line.find(":::ML")
    if start < 0:
        return None
    try:
        if match := _V05.match(line, start):
            key, _, value = match["rest"].partition(":")
            return _Event(
                key=key.strip(),
                seconds=float(match["seconds"]),
                value=_value(value.strip()),
                metadata={"file": match["place"]},
                benchmark=match["benchmark"],
            )
        if match := _MLL.match(line, start):
            record = _mapping(match["record"])
            seconds = float(match["seconds"])
            return _Event(key=match["key"], seconds=seconds, value=record.get("value"), metadata=_metadata(record))
        if match := _MLLOG.match(line, start):
            record = _mapping(match["record"])
            seconds = record["time_ms"] / 1000 if "time_ms" in record else record["time_s"]
            return _Event(
                key=str(record["key"]), seconds=float(seconds), value=record.get("value"), metadata=_metadata(record)
            )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip('"') or None


def _mapping(text: str) -> dict[str, Any]:
    """Parse a JSON object, or a Python literal of one, as some submitters wrote."""
    try:
        record = json.loads(text)
    except ValueError:
        try:
            record = literal_eval(re.sub(r"\bnull\b", "None", text))
        except (SyntaxError, MemoryError, RecursionError):
            raise ValueError(text) from None
    if not isinstance(record, dict):
        raise ValueError(text)
    return record


def _metadata(record: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _scalar(value: Any) -> Scalar:
    if isinstance(value, int) and abs(value) <= _LARGEST_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    # Larger whole numbers, such as a seed, stay exact as text.
    return str(value)[:_LONGEST_TEXT]


def _last_quality(events: list[_Event]) -> tuple[float | None, float | None]:
    """Return the last quality that was evaluated, and its epoch."""
    for e in reversed(events):
        if e.key == "eval_accuracy":
            inner = e.value if isinstance(e.value, dict) else {"value": e.value}
            value, epoch = inner.get("value"), inner.get("epoch", e.metadata.get("epoch_num"))
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value), float(epoch) if isinstance(epoch, int | float) else None
    return None, None


def _converged(stop: _Event, events: list[_Event], quality: float | None) -> bool:
    """Whether a run reached its target: by the status of ``run_stop``, or else by the last quality."""
    status = stop.metadata.get("status")
    if status is not None:
        return str(status).lower() == "success"
    if isinstance(stop.value, dict) and "success" in stop.value:
        return bool(stop.value["success"])
    target = _first(events, "eval_target")
    if target is None or not isinstance(target.value, int | float) or quality is None:
        return True
    return quality >= target.value
