"""The metrics of results and campaigns as families of the client library of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from knowledge.domain import metrics
from knowledge.domain.metrics import CampaignTasks, PrometheusMetric
from knowledge.evidence.newest_results import NewestResults


def family(metric: PrometheusMetric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    """Return the family of a metric that is not a histogram, with the values of its labels and its value by sample."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    result = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        result.add_metric(labels, value)
    return result


def result_families(results: NewestResults) -> Iterator[Family]:
    """Yield the families of the newest results."""
    successful, latest = results.successful, results.latest
    yield family(metrics.SERIES_SECONDS, ((r.labels, r.seconds) for r in successful if r.seconds is not None))
    rates = ((r.labels, r.flops_per_second) for r in successful if r.flops_per_second is not None)
    yield family(metrics.SERIES_RATE, rates)
    yield family(metrics.SERIES_TIME, ((r.labels, r.time) for r in successful if r.time is not None))
    yield family(
        metrics.SERIES_THROTTLED,
        (((*r.labels, reason), float(flag)) for r in successful for reason, flag in r.throttled.items()),
    )
    yield family(
        metrics.SERIES_RUNS, (((*r.labels, status), number) for r in latest for status, number in r.runs.items())
    )
    yield family(metrics.SERIES_RUN_TIME, ((r.labels, r.run_time) for r in latest))
    yield family(metrics.SERIES_INTERVAL, results.intervals.items())
    changes = [((*change.labels, change.cause), change) for change in results.changes]
    yield family(metrics.SERIES_CHANGE, ((labels, change.ratio) for labels, change in changes))
    yield family(metrics.SERIES_CHANGE_TIME, ((labels, change.time) for labels, change in changes))
    yield family(metrics.SERIES_OMITTED, (((reason,), number) for reason, number in results.omitted.items()))


def campaign_families(campaigns: Iterable[CampaignTasks]) -> Iterator[Family]:
    """Yield the families of the tasks of campaigns."""
    campaigns = tuple(campaigns)
    tasks = (((c.name, state), number) for c in campaigns for state, number in c.tasks.items())
    yield family(metrics.CAMPAIGN_TASKS, tasks)
    yield family(metrics.CAMPAIGN_TIME, (((c.name,), c.time) for c in campaigns))
