"""Figures of the service in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from knowledge.admission.admit import Admitted
from knowledge.store.base import KnowledgeBase


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
        self._seconds = Histogram("seshat_request_seconds", "Time to answer", ("path",), registry=self._registry)

    def received(self, done: Admitted, source: str) -> None:
        """Count a delivery."""
        for outcome, number in (
            ("added", done.added),
            ("known", done.known),
            ("quarantined", len(done.quarantined)),
        ):
            self._received.labels(source, outcome).inc(number)

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = method if method in ("GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
        self._requests.labels(path, known, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> str:
        """Return all figures."""
        return generate_latest(self._registry).decode()


class _Content(Collector):
    """What the knowledge base holds, asked when the figures are."""

    def __init__(self, store: KnowledgeBase) -> None:
        self._store = store

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the database is not asked before the first scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the figures."""
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
