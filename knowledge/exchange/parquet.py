"""Observations as one flat table in Apache Parquet, for analysis in other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from operator import attrgetter
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

    rows = tuple(observations)
    # An empty table has the same columns, although there are no values to infer their types from.
    columns = {name: [read(o) for o in rows] for name, read in _COLUMNS.items()}
    buffer = BytesIO()
    parquet.write_table(arrow.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def _json(name: str) -> Callable[[Observation], str]:
    return lambda o: json.dumps(dict(attrgetter(name)(o)), sort_keys=True)


_COLUMNS: Mapping[str, Callable[[Observation], Any]] = {
    "id": lambda o: o.identity,
    "indicator": lambda o: o.indicator.name,
    "version": lambda o: o.indicator.version,
    "backend": lambda o: o.indicator.backend,
    "device": lambda o: o.indicator.device,
    "dtype": lambda o: o.indicator.dtype,
    "parameters": _json("indicator.parameters"),
    "framework_version": lambda o: o.stack.version_of(o.framework),
    "numpy": lambda o: o.stack.version_of("numpy"),
    "cuda": lambda o: o.stack.cuda,
    "cudnn": lambda o: o.stack.cudnn,
    "python": lambda o: o.stack.python,
    "machine": lambda o: o.hardware.identity,
    "microarchitecture": lambda o: o.hardware.cpu.microarchitecture,
    "accelerator": lambda o: ", ".join(a.model for a in o.hardware.accelerators),
    "samples": lambda o: list(o.samples),
    "median_seconds": lambda o: o.median,
    **{stored_key(name): attrgetter(name) for name in _PLAIN},
    **{name: _json(name) for name in ("settings", "environment", "metrics", "telemetry")},
}
