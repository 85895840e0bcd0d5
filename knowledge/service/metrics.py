"""Figures of the service in Prometheus' text format."""

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
"""How long figures of the knowledge base's content are kept: whoever asks for them needs no token, and counting takes
seconds where there are millions of observations."""


class ServiceMetrics:
    """What the service counts, beside what the knowledge base holds."""

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
        """Count a delivery's observations, by what became of them."""
        for outcome, number in counts.items():
            self._received.labels(source, outcome).inc(number)

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request by its route's template, its method and the status of its answer."""
        self._requests.labels(path, method, str(status)).inc()
        self._seconds.labels(path, method, str(status)).observe(seconds)

    def text(self) -> str:
        """Return all figures."""
        return generate_latest(self._registry).decode()


class _Content(Collector):
    """What the knowledge base holds, asked when the figures are."""

    def __init__(self, store: KnowledgeBase) -> None:
        self._store = store
        self._counting = threading.Lock()
        self._counted: tuple[float, tuple[GaugeMetricFamily, ...]] | None = None

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the database is not asked before the first scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the figures, as they were at most ten seconds ago or while they are counted."""
        held = self._counted
        late = held is None or time.monotonic() - held[0] > _COUNT_SECONDS
        # One counts; the others take what there is, where there is anything.
        if late and self._counting.acquire(blocking=held is None):
            try:
                if self._counted is held:
                    self._counted = time.monotonic(), tuple(self._count())
            finally:
                self._counting.release()
        if self._counted is not None:
            yield from self._counted[1]

    def _count(self) -> Iterator[GaugeMetricFamily]:
        content = self._store.content()
        observations = GaugeMetricFamily("seshat_observations", "Observations held", labels=["status"])
        for status, number in content.observations:
            observations.add_metric([status], number)
        yield observations
        for name, number in (("blocks", content.blocks), ("stacks", content.stacks), ("hardware", content.hardware)):
            yield GaugeMetricFamily(f"seshat_{name}", f"Distinct {name}", value=number)
        apart = GaugeMetricFamily("seshat_quarantined_observations", "Observations kept apart", labels=["source"])
        for source in self._store.sources():
            if source.quarantined:
                apart.add_metric([source.name], source.quarantined)
        yield apart
