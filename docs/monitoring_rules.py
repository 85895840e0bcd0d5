"""The recording and alert rules for Prometheus, as `templates/monitoring/advisor.rules.yaml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from advisor.campaign.status import SUCCESSFUL
from knowledge.domain import metrics
from knowledge.domain.metrics import FAILED_TASKS, LASTING_LABELS, METRICS, SERIES_LABELS, WINDOW_DAYS
from knowledge.domain.ratio import MIN_GAIN

ROOT = Path(__file__).parents[1]
RULES = ROOT / "templates" / "monitoring" / "advisor.rules.yaml"
HEADER = "# Written by `python docs/generate.py`. How to use it: docs/how-to/monitoring.md.\n"

_LASTING = ", ".join(LASTING_LABELS)
_SERIES = ", ".join(SERIES_LABELS)
_RECENT_SECONDS = 2 * 86400
"""Age up to which a failure or a throttled GPU is reported: after that, it is no longer news."""
_REGRESSION = f"{1 + MIN_GAIN:g}"
"""Ratio of seconds after and before a change from which it is reported: smaller changes are certain, too."""
_REGRESSION_SECONDS = 14 * 86400
"""Time for which a change is reported after it became certain: after that, it is the usual speed."""
_MEMORY = "4h"
"""How long Prometheus may be down before it forgets the series that vanished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A recording rule.

    Attributes:
        name: Name of the recorded metric: level, metric and operation.
        query: What is recorded.
        meaning: What the recorded metric is, without a full stop.
    """

    name: str
    query: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """An alert rule.

    Attributes:
        name: Name of the alert; rules with one name are one section of the documentation.
        query: When it is pending.
        duration: How long it is pending before it fires.
        severity: ``warning`` or ``info``.
        summary: One sentence.
        description: What happened where, with templates of labels and value.
    """

    name: str
    query: str
    duration: str
    severity: str
    summary: str
    description: str


TIME = RecordingRule(
    name="series:seshat_series_time_seconds:max",
    query=f"""\
max by ({_LASTING}) ({metrics.SERIES_TIME.name})
or
last_over_time(series:seshat_series_time_seconds:max[{_MEMORY}]) > time() - {WINDOW_DAYS * 86400}""",
    meaning="when a series last succeeded with any version of its framework; also of a machine that vanished, for "
    f"{WINDOW_DAYS} days",
)
INTERVAL = RecordingRule(
    name="series:seshat_series_interval_seconds:max",
    query=f"""\
max by ({_LASTING}) ({metrics.SERIES_INTERVAL.name})
or
last_over_time(series:seshat_series_interval_seconds:max[{_MEMORY}]) and {TIME.name}""",
    meaning="usual time between measurements, remembered in the same way",
)
AGE = RecordingRule(
    name="series:seshat_series_age_seconds:min",
    query=f"time() - {TIME.name}",
    meaning="age of the last success",
)
FAILED = RecordingRule(
    name="series:seshat_series_runs_failed:ratio",
    query=f"""\
sum by ({_SERIES}) ({metrics.SERIES_RUNS.name}{{status!~"{"|".join(sorted(SUCCESSFUL))}"}})
/
sum by ({_SERIES}) ({metrics.SERIES_RUNS.name})""",
    meaning="share of the runs of the newest measurement that failed; absent if none did",
)
RECORDING_RULES = (TIME, INTERVAL, AGE, FAILED)

_WHERE = (
    "`{{ $labels.indicator }}` with {{ $labels.framework }} {{ $labels.version }} on {{ $labels.machine }}"
    "{{ with $labels.source }} (source {{ . }}){{ end }}"
)
_LASTING_WHERE = _WHERE.replace(" {{ $labels.version }}", "")


def _recent(query: str, time: str, labels: str) -> str:
    """Return a query that has a result only while a time is recent."""
    return f"{query}\nand on ({labels})\ntime() - max by ({labels}) ({time}) < {_RECENT_SECONDS}"


ALERT_RULES: tuple[AlertRule, ...] = (
    AlertRule(
        name="AdvisorRegression",
        query=f"""\
max by ({_LASTING}, cause) ({metrics.SERIES_CHANGE.name}) > {_REGRESSION}
and on ({_LASTING}, cause)
time() - max by ({_LASTING}, cause) ({metrics.SERIES_CHANGE_TIME.name}) < {_REGRESSION_SECONDS}""",
        duration="5m",
        severity="warning",
        summary="A series became slower.",
        description=f'{_LASTING_WHERE} takes {{{{ $value | printf "%.3g" }}}} times the time that it took before. '
        "Cause according to the records: {{ $labels.cause }}.",
    ),
    AlertRule(
        name="AdvisorMeasurementStale",
        query=f"{AGE.name} > 2 * {INTERVAL.name}",
        duration="1h",
        severity="warning",
        summary="A series that is measured regularly has no new result.",
        description=f"{_LASTING_WHERE} last succeeded {{{{ $value | humanizeDuration }}}} ago, which is more than "
        "twice the usual time between its measurements.",
    ),
    *(
        AlertRule(
            name="AdvisorGpuThrottled",
            query=_recent(
                f"max by ({_SERIES}, reason) ({metrics.SERIES_THROTTLED.name}{{reason{matcher}}}) == 1",
                metrics.SERIES_TIME.name,
                _SERIES,
            ),
            duration="5m",
            severity=severity,
            summary="A GPU lowered its clocks while it was measured.",
            description=f"A GPU lowered its clocks ({{{{ $labels.reason }}}}) during the newest measurement of "
            f"{_WHERE}: its times are not those of a healthy machine.",
        )
        for matcher, severity in (('!="power"', "warning"), ('="power"', "info"))
    ),
    AlertRule(
        name="AdvisorCampaignFailing",
        query="\nor\n".join(
            (
                _recent(
                    "sum by (campaign) (max by (campaign, state) "
                    f'({metrics.CAMPAIGN_TASKS.name}{{state=~"{"|".join(FAILED_TASKS)}"}})) > 0',
                    metrics.CAMPAIGN_TIME.name,
                    "campaign",
                ),
                _recent(f"{FAILED.name} >= 1", metrics.SERIES_RUN_TIME.name, _SERIES),
            )
        ),
        # The first run of a measurement may fail where the following ones do not.
        duration="30m",
        severity="warning",
        summary="A campaign did not complete, or every run of a measurement failed.",
        description="{{ if $labels.campaign }}{{ $value }} tasks of campaign `{{ $labels.campaign }}` were given up or "
        f"abandoned.{{{{ else }}}}All runs of the newest measurement of {_WHERE} failed.{{{{ end }}}}",
    ),
)


def rules_file() -> str:
    """Return the rules as YAML.

    Raises:
        ValueError: If a query names a metric that does not exist.
    """
    for query in (*(rule.query for rule in RECORDING_RULES), *(rule.query for rule in ALERT_RULES)):
        check_names(query)
    recording = {
        "name": "advisor.rules",
        "interval": "2m",
        "rules": [{"record": rule.name, "expr": rule.query} for rule in RECORDING_RULES],
    }
    alerts = {"name": "advisor.alerts", "rules": [_alert(rule) for rule in ALERT_RULES]}
    return HEADER + yaml.dump({"groups": [recording, alerts]}, Dumper=_Dumper, sort_keys=False, width=1000)


def check_names(query: str) -> None:
    """Check that a query names only metrics that exist.

    Raises:
        ValueError: If it names another one.
    """
    exist = {name for metric in METRICS for name in metric.sample_names} | {rule.name for rule in RECORDING_RULES}
    unknown = set(re.findall(r"\b(?:series:)?seshat_[a-z0-9_:]+", query)) - exist
    if unknown:
        raise ValueError(f"there is no metric {sorted(unknown)}")


def documentation_address() -> str:
    """Return the address of the folder of the documentation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Documentation"]).rpartition("/")[0]


def _alert(rule: AlertRule) -> dict[str, Any]:
    return {
        "alert": rule.name,
        "expr": rule.query,
        "for": rule.duration,
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": f"{documentation_address()}/how-to/monitoring.md#{rule.name.lower()}",
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
