"""The reference page of the metrics for Prometheus."""

from __future__ import annotations

from docs.monitoring_rules import RECORDING_RULES
from knowledge.domain import metrics
from knowledge.domain.metrics import LASTING_LABELS, METRICS, SERIES_LABELS, PrometheusMetric

_MEANINGS = {
    "machine": "model of the accelerator, or microarchitecture of the processor, and a hash of the parts of the "
    "machine. It stays when the driver, the kernel or the system are upgraded",
    "source": "name of the [source](../glossary.md#source) that delivered the result; empty for the results of the "
    "service's own knowledge base; in a file, the name of the host",
    "indicator": "name of the [indicator](../glossary.md#indicator)",
    "indicator_version": "version of its definition: times of two versions cannot be compared",
    "parameters": "sizes and algorithm",
    "backend": "framework that ran it, such as `torch`",
    "device": "`cpu` or `cuda`",
    "dtype": "element type",
    "framework": "distribution that provides the backend, such as `tensorflow-cpu`",
    "version": "version of this distribution",
    "settings": "run-time settings",
}


def metrics_page() -> str:
    """Return the page of all metrics."""
    both = [metric for metric in METRICS if metric.places == ("service", "textfile")]
    service = [metric for metric in METRICS if metric.places == ("service",)]
    textfile = [metric for metric in METRICS if metric.places == ("textfile",)]
    lines = [
        "# Metrics",
        "",
        "[Monitor measured speed](../how-to/monitoring.md) shows how to use them. `/metrics` of [the",
        "service](service.md) and the file of `--prometheus FILE` have the same metrics of results; their sources",
        "differ.",
        "",
        "## Results and campaigns",
        "",
        *_table(both),
        "",
        f"Shown are the results of the last {metrics.WINDOW_DAYS} days that were measured here or delivered, not those",
        "that ship with the program or were imported from published tables. The file has only own results. `/metrics`",
        "has no results of the service's own `benchmark`: it needs no token, and a benchmark is about one project.",
        "",
        f"The number of samples is limited: {metrics.MOST_SERIES} series with the newest runs, and the",
        f"{metrics.MOST_CAMPAIGNS} campaigns that changed last. A label has at most {metrics.MOST_LABEL_CHARACTERS}",
        "characters; a longer text ends with its hash.",
        "",
        "Labels of a series:",
        "",
        "| label | meaning |",
        "| --- | --- |",
        *(f"| `{label}` | {_MEANINGS[label]} |" for label in SERIES_LABELS),
        "",
        "## Recorded by the rules",
        "",
        "| metric | meaning |",
        "| --- | --- |",
        *(f"| `{rule.name}` | {rule.meaning} |" for rule in RECORDING_RULES),
        "",
        "## The service",
        "",
        *_table(service),
        "",
        "## The measuring machine",
        "",
        "Only in the file. A figure that the newest run lacks is absent.",
        "",
        *_table(textfile),
        "",
    ]
    return "\n".join(lines)


def _table(rows: list[PrometheusMetric]) -> list[str]:
    return [
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(f"| `{m.name}` | {m.kind} | {_labels(m.labels)} | {m.meaning} |" for m in rows),
    ]


def _labels(labels: tuple[str, ...]) -> str:
    """Return labels for a table cell; those of a series are named together."""
    if labels == LASTING_LABELS:
        return "of a series, without `version`"
    if labels[: len(SERIES_LABELS)] == SERIES_LABELS:
        further = [f"`{label}`" for label in labels[len(SERIES_LABELS) :]]
        return ", ".join(["of a series", *further])
    return ", ".join(f"`{label}`" for label in labels)
