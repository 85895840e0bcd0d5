"""What is exposed to Prometheus, checked by Prometheus itself, and the rules and the dashboard that use it."""

from __future__ import annotations

import enum
import errno
import inspect
import json
import os
import re
import subprocess
import typing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from advisor.campaign.prometheus import PrometheusSink
from advisor.campaign.status import CampaignStatus
from docs.monitoring_dashboard import DASHBOARD, SECTIONS
from docs.monitoring_rules import ALERT_RULES, ROOT, RULES, check_names, documentation_address
from knowledge.domain.errors import UnavailableError
from knowledge.domain.metrics import METRICS, TELEMETRY, CampaignTasks
from knowledge.domain.observation import Observation
from knowledge.exchange.files import observation_file
from knowledge.service.metrics import ServiceMetrics
from knowledge.store.base import QuarantinedObservation
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.executors.base import TaskStatus
from tests.knowledge.samples import RUN, observation
from tests.processes import start
from tests.prometheus_server import require, running_node_exporter, running_prometheus

HOSTILE = 'quote " backslash \\ line\nbreak \r tab\t é 猫 \u202e {label="x"} 1 # HELP'
CASES = sorted((ROOT / "tests" / "fixtures" / "monitoring").glob("*.yaml"))


def nightly(days: int, **more: Any) -> Observation:
    """Return an observation that began some days ago."""
    started = datetime.now(UTC) - timedelta(days=days, minutes=1)
    own = {name: more.pop(name) for name in ("status", "version") if name in more}
    return replace(observation(block=f"nightly-{days}", **own), started_at=started.isoformat(), **more)


def campaign(*states: str) -> CampaignStatus:
    tasks = tuple(TaskStatus(task=number, state=state) for number, state in enumerate(states))  # type: ignore[arg-type]
    return CampaignStatus(
        name="nightly",
        folder=Path("nightly"),
        state="incomplete",
        stacks=(),
        nodes=(),
        observations={},
        tasks=tasks,
        remarks=(),
    )


@pytest.fixture
def store(knowledge_file: Path) -> Iterator[SqlKnowledgeBase]:
    with open_knowledge_base(str(knowledge_file), shipped=False) as opened:
        yield opened


def planted() -> list[Observation]:
    """Return series: one is stale, two are throttled, one fails, one is slower since an upgrade, one is healthy."""
    stale, hot, capped, failing = (replace(RUN, name=name) for name in ("stale", "hot", "capped", "failing"))
    slower, noise = replace(RUN, name="slower"), (0.0, 0.004, -0.003, 0.001, -0.002)
    return [
        *(
            replace(
                nightly(day, indicator=slower, reference=True, version="2.1.0" if day < 6 else "2.0.0"),
                samples=((1.25 if day < 6 else 1.0) + noise[day % 5],),
            )
            for day in range(25)
        ),
        *(nightly(day, indicator=stale) for day in (4, 5, 6)),
        nightly(0, indicator=hot, telemetry={"throttled": 1.0, "throttled_by_heat": 1.0}),
        nightly(0, indicator=capped, telemetry={"throttled": 1.0, "throttled_by_power": 1.0}),
        nightly(0, indicator=failing, status="crashed"),
        *(nightly(day, settings={"flags": HOSTILE}, flops=10.0) for day in (0, 1, 2, 3)),
    ]


def texts(store: SqlKnowledgeBase, folder: Path) -> tuple[str, str]:
    """Return `/metrics` and the file for node_exporter of one knowledge base, with every kind of metric."""
    refused = QuarantinedObservation(
        observation=nightly(9), source=HOSTILE, reason="", received_at="2026-01-01T00:00:00Z"
    )
    store.add(planted(), quarantine=[refused])
    service = ServiceMetrics(store, lambda: [CampaignTasks(name=HOSTILE, time=1.0, tasks={"done": 1, "given-up": 2})])
    service.received({"added": 1}, HOSTILE)
    service.answered("/metrics", "GET", 200, 0.1)
    path = folder / "seshat.prom"
    sink = PrometheusSink(store.add, path, store=store, campaign=lambda: campaign("done", "given-up"))
    sink.add([nightly(7, telemetry=dict.fromkeys(TELEMETRY, 1.0))])
    return service.text(), path.read_bytes().decode("utf-8")


def test_exactly_the_metrics_of_the_list_are_exposed(store: SqlKnowledgeBase, tmp_path: Path) -> None:
    for place, text in zip(("service", "textfile"), texts(store, tmp_path), strict=True):
        expected = {m.name: (m.kind, m.meaning) for m in METRICS if place in m.places}
        labels = {m.name: set(m.labels) for m in METRICS}
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert expected.pop(name) == (family.type, family.documentation)
            assert family.samples, name
            assert all(sample.labels.keys() - {"le"} == labels[name] for sample in family.samples), name

        assert expected == {}


def test_promtool_accepts_what_is_exposed(store: SqlKnowledgeBase, tmp_path: Path) -> None:
    require("promtool")

    for text in texts(store, tmp_path):
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_hostile_names_stay_one_label(store: SqlKnowledgeBase, tmp_path: Path) -> None:
    for text in texts(store, tmp_path):
        families = {family.name: family for family in text_string_to_metric_families(text)}
        settings = {sample.labels["settings"] for sample in families["seshat_series_seconds"].samples}
        assert settings == {"", f"flags={HOSTILE}"}


def test_the_file_is_never_half_written(
    store: SqlKnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = texts(store, tmp_path)[1]
    sink = PrometheusSink(store.add, tmp_path / "seshat.prom", store=store)

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UnavailableError, match="No space left"):
        sink.write()

    assert (tmp_path / "seshat.prom").read_bytes().decode("utf-8") == text
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["seshat.prom"]


def test_the_rules_are_accepted() -> None:
    require("promtool")

    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_rule_or_panel_cannot_name_a_metric_that_does_not_exist() -> None:
    check_names("rate(seshat_requests_total[5m]) / series:seshat_series_age_seconds:min")
    with pytest.raises(ValueError, match="seshat_request_total"):
        check_names("rate(seshat_request_total[5m])")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_alert_fires_when_it_should_and_only_then(case: Path, tmp_path: Path) -> None:
    require("promtool")
    runbook = f"{documentation_address()}/how-to/monitoring.md"
    text = case.read_text(encoding="utf-8").replace("RUNBOOK", runbook)
    (tmp_path / case.name).write_text(text.replace("../../..", str(ROOT)), encoding="utf-8")

    tested = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / case.name)], capture_output=True, text=True, check=False
    )

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_its_tests_and_its_section_of_the_documentation() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
    names = {rule.name for rule in ALERT_RULES}

    assert {case.stem for case in CASES} == names
    assert set(re.findall(r"^### (Advisor\w+)$", page, re.MULTILINE)) == names


def queries() -> list[str]:
    """Return the queries of the dashboard as Grafana sends them, with all machines, indicators and frameworks."""
    panels = [panel for _, panels in SECTIONS for panel in panels]
    written = [query for panel in panels for query, _ in panel.queries]
    return [re.sub(r"\$(machine|indicator|framework)", ".*", q).replace("$__rate_interval", "5m") for q in written]


def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    require("promtool")
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    checked = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_has_only_fields_and_values_of_grafanas_schema() -> None:
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    units = pytest.importorskip("grafana_foundation_sdk.models.units")
    plugins.register_default_plugins()
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))

    dashboard = models.Dashboard.from_json(document)

    assert list(_type_errors(dashboard, "dashboard")) == []
    # Fields that the schema lacks are not read.
    read = json.loads(encoder.JSONEncoder().encode(dashboard))
    assert list(_lost(document, read, "dashboard")) == []
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    assert {p["fieldConfig"]["defaults"]["unit"] for p in panels} <= set(map(str, vars(units).values()))


def test_the_dashboard_follows_the_rules_of_grafanas_linter() -> None:
    """The rules of https://github.com/grafana/dashboard-linter, without those about the labels `job` and `instance`.

    The results have labels of their own, which stay when the service gets another address.
    """
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = {variable["name"]: variable for variable in document["templating"]["list"]}
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]

    assert variables["datasource"]["type"] == "datasource"
    assert document["editable"] is False
    assert all(panel["title"] and panel["description"] for panel in panels)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)
    ranges = {found for p in panels for t in p["targets"] for found in re.findall(r"\[(.*?)\]", t["expr"])}
    assert ranges == {"$__rate_interval"}
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    assert not list(_overlaps(panels))


@pytest.fixture
def service(store: SqlKnowledgeBase, knowledge_file: Path, tmp_path: Path) -> Iterator[str]:
    """A running service with planted results and a delivery; yields its host and port."""
    store.add(planted())
    token, _ = store.create_token(role="runner", source="cluster-a")
    with start("serve", "--port", "0", cwd=tmp_path, knowledge=knowledge_file) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().rpartition("http://")[2].strip()
            requests.post(
                f"http://{address}/observations",
                data=observation_file([nightly(10)]),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"},
                timeout=30,
            ).raise_for_status()
            yield address
        finally:
            process.terminate()


def test_a_real_prometheus_scrapes_service_and_file_and_the_planted_alerts_fire(
    service: str, store: SqlKnowledgeBase, tmp_path: Path
) -> None:
    require("prometheus", "prometheus-node-exporter")
    sink = PrometheusSink(store.add, tmp_path / "seshat.prom", store=store, campaign=lambda: campaign("given-up"))
    sink.add([nightly(7, telemetry=dict.fromkeys(TELEMETRY, 1.0))])
    with (
        running_node_exporter(tmp_path) as exporter,
        running_prometheus(tmp_path, targets=(service, exporter), rules=RULES) as prometheus,
    ):
        for query in queries():
            prometheus.wait_for(query)
        for rule in ALERT_RULES:
            prometheus.wait_for(f'ALERTS{{alertname="{rule.name}", severity="{rule.severity}", alertstate="firing"}}')
        alerts = prometheus.get("alerts")["alerts"]
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        seconds = prometheus.query("seshat_series_seconds")
        changes = prometheus.query("seshat_series_change_ratio")

    names = {(a["labels"]["alertname"], a["labels"].get("indicator") or a["labels"]["campaign"]) for a in alerts}
    assert names == {
        ("AdvisorRegression", "slower"),
        ("AdvisorMeasurementStale", "stale"),
        ("AdvisorGpuThrottled", "hot"),
        ("AdvisorGpuThrottled", "capped"),
        ("AdvisorCampaignFailing", "failing"),
        ("AdvisorCampaignFailing", "nightly"),
    }
    assert {change["metric"]["cause"] for change in changes} == {"stack"}
    assert [float(change["value"][1]) for change in changes] == [pytest.approx(1.25, rel=0.01)] * len(changes)
    assert {rule["health"] for rule in rules} == {"ok"}
    assert {sample["metric"].get("settings") for sample in seconds} == {None, f"flags={HOSTILE}"}


def _type_errors(value: Any, where: str) -> Iterator[str]:
    """Yield where values of the SDK's classes are not of the types that their constructors declare."""
    if type(value).__module__.startswith("grafana_foundation_sdk.models") and not isinstance(value, enum.Enum):
        declared = typing.get_type_hints(type(value).__init__)
        for name in inspect.signature(type(value).__init__).parameters:
            if name != "self":
                part = getattr(value, name)
                if not _is_of(part, declared[name]):
                    yield f"{where}.{name}: {part!r} is not of type {declared[name]}"
                yield from _type_errors(part, f"{where}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _type_errors(part, f"{where}[{number}]")


def _is_of(value: Any, declared: Any) -> bool:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Union:
        return any(_is_of(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(_is_of(part, arguments[0]) for part in value)
    if origin is dict:
        return isinstance(value, dict)
    if declared is object:
        return True
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return value in {member.value for member in declared}
    if declared is float:
        return isinstance(value, int | float)
    return isinstance(value, declared) and not (declared is int and isinstance(value, bool))


def _lost(written: Any, read: Any, where: str) -> Iterator[str]:
    """Yield where a document has a value that is not in what was read of it."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read:
                yield f"{where}.{name}"
            else:
                yield from _lost(value, read[name], f"{where}.{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from _lost(one, other, f"{where}[{number}]")
    elif written != read:
        yield f"{where}: {written!r} was read as {read!r}"


def _overlaps(panels: Sequence[dict[str, Any]]) -> Iterator[str]:
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if own & cells or max(x for x, _ in own) > 23:
            yield panel["title"]
        cells |= own
