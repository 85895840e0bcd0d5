"""Observations as one flat table in Apache Parquet, for analysis in other tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from knowledge.domain.extras import needs_extra
from knowledge.domain.observation import Observation, stored_key

_PLAIN = (
    "framework", "block", "round", "arm", "reference", "started_at", "status", "loops", "warmup_seconds", "steady",
    "flops", "bytes", "error", "tolerance", "failure",
)  # fmt: skip


def parquet_table(observations: Iterable[Observation]) -> bytes:
    """Return a Parquet file, a row an observation.

    What a query selects by has columns of its own; settings, environment, metrics and telemetry are JSON in one column
    each; samples are a list of seconds.

    Raises:
        MissingExtraError: If pyarrow is not installed.
    """
    with needs_extra("parquet", "Parquet"):
        import pyarrow as arrow
        from pyarrow import parquet
    from io import BytesIO

    rows = [_row(o) for o in observations]
    # An empty table has the same columns, although there are no values to infer their types from.
    names = list(_row_names())
    columns = {name: [row[name] for row in rows] for name in names}
    buffer = BytesIO()
    parquet.write_table(arrow.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def _row_names() -> tuple[str, ...]:
    own = ("id", "indicator", "version", "backend", "device", "dtype", "parameters", "framework_version", "numpy")
    later = ("cuda", "cudnn", "python", "machine", "microarchitecture", "accelerator", "samples", "median_seconds")
    return (*own, *later, *map(stored_key, _PLAIN), "settings", "environment", "metrics", "telemetry")


def _row(o: Observation) -> dict[str, Any]:
    run, hardware = o.indicator, o.hardware
    row: dict[str, Any] = {
        "id": o.identity,
        "indicator": run.name,
        "version": run.version,
        "backend": run.backend,
        "device": run.device,
        "dtype": run.dtype,
        "parameters": _json(run.parameters),
        "framework_version": o.stack.version_of(o.framework),
        "numpy": o.stack.version_of("numpy"),
        "cuda": o.stack.cuda,
        "cudnn": o.stack.cudnn,
        "python": o.stack.python,
        "machine": hardware.identity,
        "microarchitecture": hardware.cpu.microarchitecture,
        "accelerator": ", ".join(a.model for a in hardware.accelerators),
        "samples": list(o.samples),
        "median_seconds": o.median,
    }
    row |= {stored_key(name): getattr(o, name) for name in _PLAIN}
    row |= {name: _json(getattr(o, name)) for name in ("settings", "environment", "metrics", "telemetry")}
    return row


def _json(value: Any) -> str:
    return json.dumps(dict(value), sort_keys=True)
