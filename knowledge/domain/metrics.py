"""The metrics for Prometheus: the only list, which the exposition, the rules, the dashboard and the pages come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Place = Literal["service", "textfile"]
"""Where a metric is: ``/metrics`` of the service, or the file of ``--prometheus``."""

SERIES_LABELS = (
    *("machine", "source", "indicator", "indicator_version", "parameters", "backend", "device", "dtype"),
    *("framework", "version", "settings"),
)
"""Labels of a series; ``version`` is the framework's."""
LASTING_LABELS = tuple(label for label in SERIES_LABELS if label != "version")
"""Labels of what continues when the framework is upgraded."""
WINDOW_DAYS = 30
"""Age in days from which a result is no longer among the metrics."""
MOST_SERIES = 1000
"""Maximum number of series among the metrics; those with the newest runs are shown."""
MOST_LABEL_CHARACTERS = 200
"""Maximum length of the value of a label."""
MOST_CAMPAIGNS = 50
"""Maximum number of campaigns among the metrics; those that changed last are shown."""

FAILED_TASKS = ("abandoned", "given-up")
"""States of tasks that nobody will run again by itself; a campaign has samples of them also if there are none."""

_BOTH: tuple[Place, ...] = ("service", "textfile")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusMetric:
    """A metric.

    Attributes:
        name: Its name in the text format; that of a counter ends with ``_total``.
        kind: Its type.
        meaning: What it counts or measures, without a full stop.
        labels: Names of its labels.
        places: Where it is.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    places: tuple[Place, ...] = ("service",)

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Names of its samples, which queries can use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTasks:
    """The tasks of a campaign.

    Attributes:
        name: Name of the campaign.
        time: When a task last began, ended or changed its state, seconds since 1970.
        tasks: Number of tasks by state.
    """

    name: str
    time: float
    tasks: Mapping[str, int]


SERIES_SECONDS = PrometheusMetric(
    name="seshat_series_seconds",
    kind="gauge",
    meaning="Median seconds per call of the newest successful measurement, over its runs",
    labels=SERIES_LABELS,
    places=_BOTH,
)
SERIES_RATE = PrometheusMetric(
    name="seshat_series_flops_per_second",
    kind="gauge",
    meaning="Floating-point operations a second of the same measurement",
    labels=SERIES_LABELS,
    places=_BOTH,
)
SERIES_TIME = PrometheusMetric(
    name="seshat_series_time_seconds",
    kind="gauge",
    meaning="When the last successful run of the series began, seconds since 1970",
    labels=SERIES_LABELS,
    places=_BOTH,
)
SERIES_THROTTLED = PrometheusMetric(
    name="seshat_series_throttled",
    kind="gauge",
    meaning="1 if a GPU lowered its clocks during the newest successful measurement, by reason: `power`, `heat` or "
    "`other`; absent if this is unknown",
    labels=(*SERIES_LABELS, "reason"),
    places=_BOTH,
)
SERIES_RUNS = PrometheusMetric(
    name="seshat_series_runs",
    kind="gauge",
    meaning="Runs of the newest measurement, successful or not, by how they ended",
    labels=(*SERIES_LABELS, "status"),
    places=_BOTH,
)
SERIES_RUN_TIME = PrometheusMetric(
    name="seshat_series_run_time_seconds",
    kind="gauge",
    meaning="When the last run of the series began, successful or not, seconds since 1970",
    labels=SERIES_LABELS,
    places=_BOTH,
)
SERIES_INTERVAL = PrometheusMetric(
    name="seshat_series_interval_seconds",
    kind="gauge",
    meaning="Median time between the days on which the series was measured, with any version of the framework; absent "
    f"if it was measured on fewer than 3 of the last {WINDOW_DAYS} days",
    labels=LASTING_LABELS,
    places=_BOTH,
)
SERIES_CHANGE = PrometheusMetric(
    name="seshat_series_change_ratio",
    kind="gauge",
    meaning="Seconds after the newest change of speed of a series, divided by those before it: above 1 is slower; "
    "`cause` is what `advisor pi history` attributes it to. Absent if the speed never changed",
    labels=(*LASTING_LABELS, "cause"),
    places=_BOTH,
)
SERIES_CHANGE_TIME = PrometheusMetric(
    name="seshat_series_change_time_seconds",
    kind="gauge",
    meaning="When the measurement with which this change became certain was made, seconds since 1970",
    labels=(*LASTING_LABELS, "cause"),
    places=_BOTH,
)
SERIES_OMITTED = PrometheusMetric(
    name="seshat_series_omitted",
    kind="gauge",
    meaning=f"Series that are not among the metrics: older than the newest {MOST_SERIES} (`limit`), or with a time in "
    "the future (`clock`)",
    labels=("reason",),
    places=_BOTH,
)
CAMPAIGN_TASKS = PrometheusMetric(
    name="seshat_campaign_tasks",
    kind="gauge",
    meaning="Tasks of a campaign by state: those of `advisor pi status`, and `abandoned` for tasks that wait although "
    "no process coordinates the campaign; `given-up` ones failed repeatedly",
    labels=("campaign", "state"),
    places=_BOTH,
)
CAMPAIGN_TIME = PrometheusMetric(
    name="seshat_campaign_time_seconds",
    kind="gauge",
    meaning="When the campaign last changed, seconds since 1970",
    labels=("campaign",),
    places=_BOTH,
)
RUNS = PrometheusMetric(
    name="seshat_runs_total",
    kind="counter",
    meaning="Runs since the command started, by how they ended; failures are counted, too",
    labels=("status",),
    places=("textfile",),
)
OBSERVATIONS = PrometheusMetric(
    name="seshat_observations",
    kind="gauge",
    meaning="Stored observations, with those that ship with the program",
    labels=("status",),
)
BLOCKS = PrometheusMetric(name="seshat_blocks", kind="gauge", meaning="Distinct blocks")
STACKS = PrometheusMetric(name="seshat_stacks", kind="gauge", meaning="Distinct stacks")
HARDWARE = PrometheusMetric(name="seshat_hardware", kind="gauge", meaning="Distinct hardware profiles")
QUARANTINED = PrometheusMetric(
    name="seshat_quarantined_observations", kind="gauge", meaning="Quarantined observations", labels=("source",)
)
RECEIVED = PrometheusMetric(
    name="seshat_received_observations_total",
    kind="counter",
    meaning="Delivered observations by result: added, known or quarantined",
    labels=("source", "outcome"),
)
REQUESTS = PrometheusMetric(
    name="seshat_requests_total", kind="counter", meaning="Answered requests", labels=("path", "method", "status")
)
REQUEST_SECONDS = PrometheusMetric(
    name="seshat_request_seconds",
    kind="histogram",
    meaning="Time until the answer was sent",
    labels=("path", "method", "status"),
)

_SAMPLED = {
    "cpu_percent": "Use of all processors, per cent",
    "other_cpu_percent": "Use of all processors by other programs, per cent",
    "stolen_cpu_percent": "Time that other virtual machines took from the processors, per cent",
    "cpu_clock_megahertz": "Clock of the processors",
    "cpu_temperature_celsius": "Highest temperature of the machine's sensors",
    "memory_bytes": "Resident memory of the measured program",
    "gpu_percent": "Use of the busiest GPU, per cent",
    "gpu_memory_bytes": "Used memory of all GPUs",
    "gpu_power_watts": "Power of all GPUs",
    "gpu_temperature_celsius": "Temperature of the hottest GPU",
    "gpu_clock_megahertz": "Clock of the fastest GPU",
}
_TELEMETRY = {
    **{f"{name}_mean": f"{meaning}: mean" for name, meaning in _SAMPLED.items()},
    **{f"{name}_max": f"{meaning}: maximum" for name, meaning in _SAMPLED.items()},
    "throttled": "1 if a GPU lowered its clocks",
    "throttled_by_heat": "1 if a GPU lowered its clocks because of its temperature",
    "throttled_by_power": "1 if a GPU lowered its clocks because of its power limit",
    "on_battery": "1 if the machine ran on its battery",
    **{f"{kind}_energy_joules": f"Energy of the timed calls, {kind}" for kind in ("cpu", "dram", "gpu")},
    **{f"{kind}_joules_per_call": f"Energy of one call, {kind}" for kind in ("cpu", "dram", "gpu")},
    "energy_window_seconds": "Length of the period over which energy was measured",
}
TELEMETRY = {
    name: PrometheusMetric(
        name=f"seshat_telemetry_{name}",
        kind="gauge",
        meaning=f"{meaning}; of the newest run",
        places=("textfile",),
    )
    for name, meaning in _TELEMETRY.items()
}
"""Metrics of the machine during the newest run, by the name of the figure in observations."""

METRICS = (
    *(SERIES_SECONDS, SERIES_RATE, SERIES_TIME, SERIES_THROTTLED, SERIES_RUNS, SERIES_RUN_TIME, SERIES_INTERVAL),
    *(
        SERIES_CHANGE,
        SERIES_CHANGE_TIME,
        SERIES_OMITTED,
        CAMPAIGN_TASKS,
        CAMPAIGN_TIME,
        RUNS,
        OBSERVATIONS,
        BLOCKS,
        STACKS,
        HARDWARE,
        QUARANTINED,
    ),
    *(RECEIVED, REQUESTS, REQUEST_SECONDS, *TELEMETRY.values()),
)
"""All metrics."""
