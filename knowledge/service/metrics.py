"""Metrics of the service in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from knowledge.store.base import KnowledgeBase

_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of latencies, in seconds."""
_COUNT_SECONDS = 10.0
"""Seconds for which counts of the knowledge base are cached: requests for them need no token, and counting millions of
observations takes seconds."""


class ServiceMetrics:
    """Metrics of the service and of the content of its knowledge base."""

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, store: KnowledgeBase) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Content(store))
        self._received = Counter(
            "seshat_received_observations", "Observations delivered", ("source", "outcome"), registry=self._registry
        )
        self._requests = Counter(
            "seshat_requests", "Requests answered", ("path", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "seshat_request_seconds",
            "Time until the answer was sent",
            ("path", "method", "status"),
            buckets=_LATENCIES,
            registry=self._registry,
        )

    def received(self, counts: Mapping[str, int], source: str) -> None:
        """Count the observations of a delivery by result."""
        for outcome, number in counts.items():
            self._received.labels(source, outcome).inc(number)

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request by route template, method and status."""
        self._requests.labels(path, method, str(status)).inc()
        self._seconds.labels(path, method, str(status)).observe(seconds)

    def text(self) -> str:
        """Return all metrics."""
        return generate_latest(self._registry).decode()


class _Content(Collector):
    """Counts of the knowledge base's content; computed when they are requested."""

    def __init__(self, store: KnowledgeBase) -> None:
        self._store = store
        self._counting = threading.Lock()
        self._counted: tuple[float, tuple[GaugeMetricFamily, ...]] | None = None

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that the database is not read before the first request."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the counts; cached ones if they are less than ten seconds old or being updated."""
        cached = self._counted
        stale = cached is None or time.monotonic() - cached[0] > _COUNT_SECONDS
        # One thread counts; the others use the cached counts if there are any.
        if stale and self._counting.acquire(blocking=cached is None):
            try:
                if self._counted is cached:
                    self._counted = time.monotonic(), tuple(self._count())
            finally:
                self._counting.release()
        if self._counted is not None:
            yield from self._counted[1]

    def _count(self) -> Iterator[GaugeMetricFamily]:
        content = self._store.content()
        observations = GaugeMetricFamily("seshat_observations", "Stored observations", labels=["status"])
        for status, number in content.observations:
            observations.add_metric([status], number)
        yield observations
        for name, number in (("blocks", content.blocks), ("stacks", content.stacks), ("hardware", content.hardware)):
            yield GaugeMetricFamily(f"seshat_{name}", f"Distinct {name}", value=number)
        quarantined = GaugeMetricFamily(
            "seshat_quarantined_observations", "Quarantined observations", labels=["source"]
        )
        for source in self._store.sources():
            if source.quarantined:
                quarantined.add_metric([source.name], source.quarantined)
        yield quarantined
