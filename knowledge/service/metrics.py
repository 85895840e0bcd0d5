"""Metrics of the service in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from knowledge.domain import metrics
from knowledge.domain.identity import content_hash
from knowledge.domain.metrics import CampaignTasks, PrometheusMetric
from knowledge.evidence.newest_results import newest_results
from knowledge.service.metric_families import campaign_families, family, result_families
from knowledge.store.base import KnowledgeBase

_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of latencies, in seconds."""
_COUNT_SECONDS = 10.0
"""Seconds for which the content of the knowledge base is cached: requests for it need no token, and to count millions
of observations takes seconds."""


_RESULT_SECONDS = 600.0
"""Seconds for which the newest results are cached while the content does not change: after that, some may be too old to
be shown."""
Campaigns = Callable[[], Iterable[CampaignTasks]]
"""Returns the tasks of the newest campaigns."""


class ServiceMetrics:
    """Metrics of the service, of the content of its knowledge base and of the campaigns next to it."""

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, store: KnowledgeBase, campaigns: Campaigns) -> None:
        # Times of creation would be further metrics, which nobody needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(_Content(store, campaigns))
        self._received = self._counter(metrics.RECEIVED)
        self._requests = self._counter(metrics.REQUESTS)
        timed = metrics.REQUEST_SECONDS
        self._seconds = Histogram(timed.name, timed.meaning, timed.labels, buckets=_LATENCIES, registry=self._registry)

    def _counter(self, metric: PrometheusMetric) -> Counter:
        return Counter(metric.name, metric.meaning, metric.labels, registry=self._registry)

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
    """Counts and newest results of the knowledge base, and campaigns; computed when they are requested."""

    def __init__(self, store: KnowledgeBase, campaigns: Campaigns) -> None:
        self._store = store
        self._campaigns = campaigns
        self._counting = threading.Lock()
        self._counted: tuple[float, tuple[Family, ...]] | None = None
        self._results: tuple[float, str, tuple[Family, ...]] | None = None

    def describe(self) -> list[Family]:
        """Return nothing, so that the database is not read before the first request."""
        return []

    def collect(self) -> Iterator[Family]:
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

    def _count(self) -> Iterator[Family]:
        content = self._store.content()
        yield family(metrics.OBSERVATIONS, (((status,), number) for status, number in content.observations))
        for metric, number in (
            (metrics.BLOCKS, content.blocks),
            (metrics.STACKS, content.stacks),
            (metrics.HARDWARE, content.hardware),
        ):
            yield family(metric, [((), number)])
        sources = self._store.sources()
        yield family(metrics.QUARANTINED, (((s.name,), s.quarantined) for s in sources if s.quarantined))
        yield from self._result_families(content_hash([content.digest, [(s.name, s.trust) for s in sources]]))
        yield from campaign_families(self._campaigns())

    def _result_families(self, state: str) -> tuple[Family, ...]:
        """Return the families of the newest results; cached ones if the content has a state that it had before."""
        read_at = time.monotonic()
        if self._results is None or self._results[1] != state or read_at - self._results[0] > _RESULT_SECONDS:
            families = tuple(result_families(newest_results(self._store, now=datetime.now(UTC))))
            self._results = read_at, state, families
        return self._results[2]
