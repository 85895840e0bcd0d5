"""The Grafana dashboard, as `templates/monitoring/advisor.dashboard.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from docs.monitoring_rules import AGE, FAILED, INTERVAL, ROOT, check_names
from knowledge.domain import metrics
from knowledge.domain.metrics import FAILED_TASKS, TELEMETRY, PrometheusMetric

DASHBOARD = ROOT / "templates" / "monitoring" / "advisor.dashboard.json"

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_VARIABLES = ("machine", "indicator", "framework")
_SELECTED = ", ".join(f'{name}=~"${name}"' for name in _VARIABLES)
_LEGEND = "{{machine}} {{indicator}} {{parameters}} {{framework}} {{version}} {{settings}}"
_COLUMNS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPanel:
    """A panel of the dashboard.

    Attributes:
        title: Its title.
        meaning: Its description.
        unit: Grafana's name of the unit.
        queries: PromQL and legend of each line.
        kind: ``timeseries`` or ``stat``.
        width: Width in 24ths of the page.
    """

    title: str
    meaning: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8


def _selected(metric: PrometheusMetric | str) -> str:
    """Return a query for the chosen machines, indicators and frameworks."""
    return f"{metric if isinstance(metric, str) else metric.name}{{{_SELECTED}}}"


def _telemetry(figures: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((TELEMETRY[figure].name, f"{figure} {{{{instance}}}}") for figure in figures)


_SECONDS = _selected(metrics.SERIES_SECONDS)
_STATS = (
    DashboardPanel(
        title="Series",
        meaning=f"Series with a result in the last {metrics.WINDOW_DAYS} days.",
        unit="short",
        queries=((f"count({_selected(metrics.SERIES_RUN_TIME)})", "series"),),
        kind="stat",
        width=6,
    ),
    DashboardPanel(
        title="Stale series",
        meaning="Series whose last success is older than twice the usual time between measurements.",
        unit="short",
        queries=((f"count({_selected(AGE.name)} > 2 * {INTERVAL.name}) or vector(0)", "stale"),),
        kind="stat",
        width=6,
    ),
    DashboardPanel(
        title="Series with a throttled GPU",
        meaning="Series in whose newest measurement a GPU lowered its clocks, for any reason.",
        unit="short",
        queries=(
            (f"count(max without (reason) ({_selected(metrics.SERIES_THROTTLED)}) == 1) or vector(0)", "throttled"),
        ),
        kind="stat",
        width=6,
    ),
    DashboardPanel(
        title="Failed tasks of campaigns",
        meaning="Tasks of all campaigns that were given up or abandoned.",
        unit="short",
        queries=((f'sum({metrics.CAMPAIGN_TASKS.name}{{state=~"{"|".join(FAILED_TASKS)}"}}) or vector(0)', "failed"),),
        kind="stat",
        width=6,
    ),
)
_RESULTS = (
    DashboardPanel(
        title="Seconds per call",
        meaning="Median of the newest successful measurement of each series.",
        unit="s",
        queries=((_SECONDS, _LEGEND),),
        width=12,
    ),
    DashboardPanel(
        title="Newest change of speed",
        meaning="Seconds after it divided by those before it: above 1 is slower. With any version of the framework.",
        unit="none",
        queries=((_selected(metrics.SERIES_CHANGE), f"{{{{cause}}}} {_LEGEND.replace(' {{version}}', '')}"),),
        width=12,
    ),
    DashboardPanel(
        title="Floating-point operations a second",
        meaning="By the formula of the indicator.",
        unit="flops",
        queries=((_selected(metrics.SERIES_RATE), _LEGEND),),
    ),
    DashboardPanel(
        title="Age of the last success",
        meaning="With any version of the framework; also of machines that vanished.",
        unit="s",
        queries=((_selected(AGE.name), _LEGEND.replace(" {{version}}", "")),),
    ),
    DashboardPanel(
        title="Share of failed runs",
        meaning="In the newest measurement of each series; no line if no run failed.",
        unit="percentunit",
        queries=((_selected(FAILED.name), _LEGEND),),
    ),
    DashboardPanel(
        title="Throttled GPUs",
        meaning="1 if a GPU lowered its clocks during the newest measurement, by reason.",
        unit="short",
        queries=((_selected(metrics.SERIES_THROTTLED), f"{{{{reason}}}} {_LEGEND}"),),
    ),
    DashboardPanel(
        title="Tasks of campaigns",
        meaning="By state.",
        unit="short",
        queries=((f"sum by (campaign, state) ({metrics.CAMPAIGN_TASKS.name})", "{{campaign}} {{state}}"),),
    ),
    DashboardPanel(
        title="Runs by how they ended",
        meaning="Runs of the commands with `--prometheus`.",
        unit="short",
        queries=((f"sum by (status) (increase({metrics.RUNS.name}[$__rate_interval]))", "{{status}}"),),
    ),
)
_MACHINE = (
    ("Use of processors and GPUs", "percent", ("cpu_percent_mean", "other_cpu_percent_mean", "gpu_percent_mean")),
    ("Memory", "bytes", ("memory_bytes_max", "gpu_memory_bytes_max")),
    ("Temperature", "celsius", ("cpu_temperature_celsius_max", "gpu_temperature_celsius_max")),
    ("Power of all GPUs", "watt", ("gpu_power_watts_mean", "gpu_power_watts_max")),
    ("Clock of the fastest GPU", "rothz", ("gpu_clock_megahertz_mean", "gpu_clock_megahertz_max")),
    ("Energy of one call", "joule", ("cpu_joules_per_call", "dram_joules_per_call", "gpu_joules_per_call")),
)
_SERVICE = (
    DashboardPanel(
        title="Requests a second",
        meaning="Requests to the service by status.",
        unit="reqps",
        queries=((f"sum by (status) (rate({metrics.REQUESTS.name}[$__rate_interval]))", "{{status}}"),),
    ),
    DashboardPanel(
        title="Time of requests",
        meaning="99 % of the requests were answered within this time, by route.",
        unit="s",
        queries=(
            (
                "histogram_quantile(0.99, sum by (le, path) "
                f"(rate({metrics.REQUEST_SECONDS.name}_bucket[$__rate_interval])))",
                "{{path}}",
            ),
        ),
    ),
    DashboardPanel(
        title="Delivered observations a second",
        meaning="By source and by what happened to them.",
        unit="short",
        queries=(
            (
                f"sum by (source, outcome) (rate({metrics.RECEIVED.name}[$__rate_interval]))",
                "{{source}} {{outcome}}",
            ),
        ),
    ),
)
SECTIONS = (
    ("Now", _STATS),
    ("Results", _RESULTS),
    (
        "Machine during the newest run (file of --prometheus)",
        tuple(
            DashboardPanel(title=title, meaning="During the newest run.", unit=unit, queries=_telemetry(figures))
            for title, unit, figures in _MACHINE
        ),
    ),
    ("Service", _SERVICE),
)
"""Rows of the dashboard with their panels."""


def dashboard_file() -> str:
    """Return the dashboard as JSON.

    Raises:
        ValueError: If a query names a metric that does not exist.
    """
    dashboard = {
        "uid": "seshat-advisor",
        "title": "Seshat: measured speed, its age and the machines",
        "description": "Written by `python docs/generate.py`; docs/how-to/monitoring.md describes it.",
        "tags": ["seshat"],
        "style": "dark",
        "timezone": "utc",
        "editable": False,
        "graphTooltip": 1,
        "time": {"from": "now-30d", "to": "now"},
        "refresh": "5m",
        "schemaVersion": 38,
        "version": 1,
        "templating": {"list": [_datasource_variable(), *map(_label_variable, _VARIABLES)]},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _panels() -> Iterable[dict[str, Any]]:
    """Yield rows and panels with their places: from left to right, each line 8 high."""
    numbers = count(1)
    bottom = 0
    for title, panels in SECTIONS:
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": bottom}
        yield {"id": next(numbers), "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        bottom, left = bottom + 1, 0
        height = 4 if panels[0].kind == "stat" else 8
        for panel in panels:
            if left + panel.width > _COLUMNS:
                bottom, left = bottom + height, 0
            place = {"h": height, "w": panel.width, "x": left, "y": bottom}
            yield {"id": next(numbers), **_panel(panel), "gridPos": place}
            left += panel.width
        bottom += height


def _panel(panel: DashboardPanel) -> dict[str, Any]:
    targets = []
    for reference, (query, legend) in zip("ABCDEFGH", panel.queries, strict=False):
        check_names(query)
        targets.append({"refId": reference, "datasource": _SOURCE, "expr": query, "legendFormat": legend})
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "label": "Data source", "query": "prometheus"}


def _label_variable(label: str) -> dict[str, Any]:
    query = f"label_values({metrics.SERIES_RUN_TIME.name}, {label})"
    return {
        "name": label,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "query": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
    }
