"""Measurements in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path

from knowledge.domain.errors import UnavailableError
from knowledge.domain.extras import needs_extra
from knowledge.domain.observation import Observation
from pi_runners.execution.campaign import ObservationSink

_LABELS = (
    *("indicator", "indicator_version", "parameters", "backend", "device", "dtype"),
    *("framework", "version", "settings"),
)


class PrometheusSink:
    """Hands observations on, and writes the newest of each kind to a file after every process."""

    def __init__(self, sink: ObservationSink, path: Path) -> None:
        with needs_extra("prometheus", "`--prometheus`"):
            from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile

        self._sink = sink
        self._path = path
        self._registry = CollectorRegistry()
        self._write_to = write_to_textfile
        self._gauge = partial(Gauge, registry=self._registry)
        self._seconds = self._gauge("seshat_indicator_seconds", "Median seconds per call", _LABELS)
        self._flops = self._gauge("seshat_indicator_flops_per_second", "Floating-point operations a second", _LABELS)
        self._time = self._gauge("seshat_indicator_time_seconds", "When it was measured, seconds since 1970", _LABELS)
        self._runs = Counter("seshat_runs", "Runs of indicators", ("status",), registry=self._registry)
        self._telemetry: dict[str, Gauge] = {}

    def add(self, observations: Iterable[Observation]) -> None:
        """Store first, then write."""
        observations = tuple(observations)
        self._sink(observations)
        for o in observations:
            self._runs.labels(o.status).inc()
            if o.samples:
                self._note(o)
        self._write()

    def _note(self, o: Observation) -> None:
        median = statistics.median(o.samples)
        labels = (
            o.indicator.name,
            str(o.indicator.version),
            ",".join(f"{k}={v}" for k, v in sorted(o.indicator.parameters.items())),
            o.indicator.backend,
            o.indicator.device,
            o.indicator.dtype,
            o.framework,
            o.stack.version_of(o.framework) or "",
            ",".join(f"{k}={v}" for k, v in sorted(o.settings.items())),
        )
        self._seconds.labels(*labels).set(median)
        self._flops.labels(*labels).set(o.flops / median)
        self._time.labels(*labels).set(datetime.fromisoformat(o.started_at).timestamp())
        for name in sorted({*self._telemetry, *o.telemetry}):
            if name not in self._telemetry:
                self._telemetry[name] = self._gauge(f"seshat_telemetry_{name}", f"{name} during the newest run")
            # A figure that the newest run lacks, such as energy, must not be that of an earlier run.
            self._telemetry[name].set(o.telemetry.get(name, math.nan))

    def _write(self) -> None:
        try:
            # It writes a temporary file and renames it: the collector never reads half a file.
            self._write_to(str(self._path), self._registry)
        except OSError as error:
            raise UnavailableError(
                f"`{self._path}` cannot be written: {error.strerror}",
                hint="name a file that can be, with `--prometheus`",
            ) from None
