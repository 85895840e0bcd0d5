"""Names and texts of the database that are HTML, options of pip, or formulas: every page shows them as text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from advisor.campaign.directory import CampaignDirectory
from advisor.dashboard import jobs
from advisor.dashboard.pages.compare import ComparedRuns, compare_view, compared_csv
from advisor.dashboard.pages.runs import requirements_of
from advisor.dashboard.site import Site
from knowledge.domain.hardware import Accelerator
from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, Stack
from knowledge.store.base import QuarantinedObservation
from knowledge.store.sql import SqlKnowledgeBase
from tests.advisor.campaign.plans import build_plan
from tests.advisor.dashboard.dashboards import TeamDashboard, local_dashboard
from tests.knowledge.samples import MACHINE, block

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Request

CHROMIUM = Path("/usr/bin/chromium")
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium at /usr/bin/chromium")
_HTML = "\"'><script>alert(1)</script><img src=x onerror=alert(2)> onfocus=alert(3) {{7*7}} javascript:"


def hostile(name: str) -> str:
    """Return a text that would run a script in an element, an attribute, or an address."""
    return (
        f"""{name}"'><script>alert(1)</script><img src=x onerror=alert(2)> onfocus=alert(3) {{{{7*7}}}} javascript:"""
    )


def hostile_observations() -> Iterator[Observation]:
    """Yield blocks whose texts are all hostile: enough for comparisons, rounds and histories."""
    machine = replace(
        MACHINE,
        name=hostile("machine"),
        cpu=replace(MACHINE.cpu, microarchitecture=hostile("cpu"), model=hostile("model"), vendor=hostile("vendor")),
        accelerators=(Accelerator(vendor="nvidia", model=hostile("gpu"), compute_capability="9.0"),),
    )
    for month in (1, 2, 3, 4):
        for o in block({"2.0.0": 1.0, "2.1.0": 1.2 / month}, name=hostile(f"block{month}")):
            stack = replace(
                o.stack,
                packages=(*o.stack.packages, PackageVersion(name=hostile("package"), version=hostile("version"))),
                platform=hostile("platform"),
            )
            run = replace(o.indicator, parameters={"m": 8, hostile("parameter"): hostile("value")})
            yield replace(
                o,
                stack=stack,
                hardware=machine,
                indicator=run,
                started_at=f"2026-0{month}-01T00:00:00Z",
                settings={hostile("setting"): hostile("on")} if not o.reference else {},
                environment={**o.environment, hostile("key"): hostile("environment")},
                telemetry={**o.telemetry, hostile("telemetry"): 1.0},
                status="error" if o.round == 5 else "ok",
                samples=() if o.round == 5 else o.samples,
                failure=hostile("failure") if o.round == 5 else "",
            )


@pytest.fixture
def store(store: SqlKnowledgeBase, tmp_path: Path) -> SqlKnowledgeBase:
    """A knowledge base with hostile texts in each place, and a hostile campaign next to it."""
    observations = tuple(hostile_observations())
    store.add(observations, source=hostile("source"))
    quarantined = replace(observations[0], block=hostile("held"))
    entry = QuarantinedObservation(
        observation=quarantined, source=hostile("source"), reason=hostile("reason"), received_at="2026-01-01T00:00:00Z"
    )
    store.add([], quarantine=[entry])
    store.create_token(role="reader", source=hostile("person"))
    name = hostile("campaign").replace("/", "")
    plan = build_plan(observations[0].hardware, rounds=1)
    directory = CampaignDirectory(tmp_path / "campaigns" / name)
    directory.create(replace(plan, name=name, blocks=tuple(replace(b, name=f"{name}-b") for b in plan.blocks)))
    return store


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The questions, whose answers are hostile texts."""
    answer = {
        "title": hostile("title"),
        "html": "<p>an advice</p>",
        "text": hostile("text"),
        "document": {"a": hostile("document")},
        "lock": hostile("lock"),
        "constraints": [hostile("constraint")],
        "prices": [{"constraint": hostile("constraint"), "origin": "", "text": hostile("price"), "changes": []}],
    }
    monkeypatch.setattr(jobs, "_answers", lambda question: iter([{**answer, "is_complete": True}]))
    return []


def page_addresses() -> list[str]:
    """Return the addresses of all pages that show something of the knowledge base."""
    first, second, *_ = hostile_observations()
    failed = next(o for o in hostile_observations() if o.status == "error")
    label = first.indicator.label
    campaign = hostile("campaign").replace("/", "")
    selected = {"framework": "numpy", "hardware": first.hardware.cpu.microarchitecture, "indicator": "matmul"}
    return [
        "/overview",
        "/overview?all=true",
        "/compare",
        f"/compare?{urlencode(selected)}",
        f"/compare?{urlencode({'label': hostile('x'), 'hardware': hostile('y'), 'framework': hostile('z')})}",
        f"/arm?{urlencode({'block': second.block, 'label': label, 'arm': 1})}",
        f"/arm?{urlencode({'block': hostile('none'), 'label': label, 'arm': 1})}",
        f"/observation/{first.identity}",
        f"/observation/{failed.identity}",
        "/history",
        f"/history?{urlencode({'machine': hostile('m'), 'framework': hostile('f'), 'indicator': hostile('i')})}",
        f"/history?{urlencode({'series': hostile('s')})}",
        "/hardware",
        f"/hardware?{urlencode({'text': hostile('t'), 'machines': hostile('m'), 'workload': hostile('w')})}",
        f"/hardware?{urlencode({'name': hostile('n')})}",
        f"/hardware/comparison?{urlencode({'machines': 'a100', 'workload': hostile('w')})}",
        "/campaigns",
        f"/campaigns?{urlencode({'name': campaign})}",
        f"/campaigns?{urlencode({'name': hostile('none')})}",
        "/administration",
        "/advice/form",
        f"/advice?{urlencode({'job': hostile('job')})}",
    ]


@needs_chromium
def test_no_text_of_the_knowledge_base_is_executed(
    store: SqlKnowledgeBase, questions: list[Any], browser: Browser
) -> None:
    problems: list[str] = []
    texts: dict[str, str] = {}

    def on_dialog(dialog: Dialog) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if not request.url.startswith(address):
            problems.append(f"a request for {request.url}")

    with local_dashboard(store) as (address, sign_in):
        page = browser.new_context().new_page()
        page.on("dialog", on_dialog)
        page.on("console", lambda message: problems.append(f"{message.text} on {page.url}"))
        page.on("pageerror", lambda error: problems.append(f"{error} on {page.url}"))
        page.on("request", on_request)
        page.goto(f"{address}/overview?token={sign_in.token}")
        page.goto(f"{address}/history")
        page.wait_for_selector("text=Slower since")
        page.goto(f"{address}/history")
        series = page.locator("main table a").first.get_attribute("href")
        for path in (*page_addresses(), series):
            page.goto(f"{address}{path}", wait_until="networkidle" if path and "campaigns" not in path else "load")
            texts[path or ""] = page.inner_text("body")
            if page.locator("img, [onerror], [onfocus], main script").count():
                problems.append(f"an element of a text on {page.url}")
        page.goto(f"{address}/advice/form")
        page.fill("textarea", "numpy")
        page.click("text=Advise")
        page.wait_for_selector("text=What if")
        texts["advice"] = page.inner_text("body")
        links = page.evaluate("[...document.links].map(link => link.href)")

    # The browser and htmx report the responses with a status of 4xx, too.
    own = [problem for problem in problems if not re.search(r"status of 4|Status Error Code 4", problem)]
    assert own == []
    assert [link for link in links if not link.startswith(address)] == []
    for path, name in (("/overview", "cpu"), ("/administration", "reason"), ("/administration", "person")):
        assert hostile(name) in texts[path], (path, name)
    assert any("campaign\"'><script>" in text for path, text in texts.items() if "campaigns" in path)
    assert any("failure\"'><script>" in text for path, text in texts.items() if "observation" in path)
    assert hostile("constraint") in texts["advice"]
    assert len(texts) > 20


def test_no_text_of_the_knowledge_base_is_an_element(team: TeamDashboard, store: SqlKnowledgeBase) -> None:
    person = team.signed_in("admin")

    answers = {path: person.get(path) for path in page_addresses()}
    plot = person.get("/compare.svg")

    assert {answer.status_code for answer in answers.values()} <= {200, 404, 422}
    for path, answer in (*answers.items(), ("plot", plot)):
        assert "<script>alert" not in answer.text, path
        assert "<img" not in answer.text, path
        assert "49" not in answer.text.partition("onfocus=alert(3) ")[2][:10], path
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answers["/overview"].text
    assert plot.headers["Content-Disposition"].startswith("attachment")


def test_json_pages_hold_the_texts_as_they_are(team: TeamDashboard, store: SqlKnowledgeBase) -> None:
    answer = team.signed_in("admin").get("/api/administration")

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["quarantined"][0]["reason"] == hostile("reason")
    fields = {"id", "role", "source", "created_at", "expires_at", "revoked_at"}
    assert all(set(token) == fields for token in answer.json()["tokens"])


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_the_requirements_of_a_run_have_no_options_of_pip(break_: str) -> None:
    text = f"x{break_}--index-url http://evil.example"
    stack = Stack(packages=(PackageVersion(name=text, version=text),), python=text, platform=text)

    lines = requirements_of(stack).splitlines()

    assert len(lines) == 2
    assert not any(line.startswith("-") for line in lines)


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t"])
def test_no_cell_of_a_csv_file_is_a_formula(store: SqlKnowledgeBase, sign: str) -> None:
    name = f"{sign}HYPERLINK(1)"
    store.add([replace(o, block=name) for o in block({"3.0.0": 1.0, "3.1.0": 1.2})], source="x")
    view = compare_view(Site(store=store), ComparedRuns(framework="numpy", hardware="zen4", indicator="matmul"))

    rows = list(csv.reader(io.StringIO(compared_csv(view))))

    assert {row[0] for row in rows if "HYPERLINK" in row[0]} == {f"'{name}"}


def test_a_command_to_copy_quotes_the_names(team: TeamDashboard, store: SqlKnowledgeBase) -> None:
    person = team.signed_in("reader")
    histories = person.get("/api/history").json()["series"]

    commands = [person.get(f"/api/history/{entry['identity']}").json()["command"] for entry in histories]
    campaigns = [person.get(f"/api/campaigns/{hostile('campaign').replace('/', '')}")]

    assert any("machine\"'\"'\"'>" in command for command in commands)
    assert campaigns[0].json()["command"].startswith("advisor pi status 'campaign\"")


def test_the_name_of_a_campaign_is_one_word_of_a_command(
    team: TeamDashboard, store: SqlKnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("advisor.dashboard.pages.campaigns.subprocess.Popen", lambda words, **_: started.append(words))
    name = hostile("campaign").replace("/", "")
    person = team.signed_in("runner")

    answers = [
        person.post(f"/campaigns/{quote(name)}/retry").status_code,
        person.post("/campaigns/--help/retry").status_code,
        # The command line takes the beginning of a name, too.
        person.post("/campaigns/campaign/retry").status_code,
        person.post("/campaigns/..%2f..%2fcampaigns/cancel").status_code,
    ]

    assert answers == [303, 404, 404, 404]
    assert [words[-2:] for words in started] == [["--", name]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()
