"""A campaign on the dashboard, in a browser: watched while it runs, cancelled, and its failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from knowledge.store.engine import open_knowledge_base
from tests.advisor.campaign.conftest import REFUSES, Bench
from tests.advisor.dashboard.dashboards import TeamDashboard, team_dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed")


@pytest.fixture
def team(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[TeamDashboard]:
    """A dashboard of the campaign's knowledge base, whose programs have the environment of the campaign."""
    for name, value in bench.variables.items():
        monkeypatch.setenv(name, value)
    with open_knowledge_base(bench.address, shipped=False) as store, team_dashboard(store) as opened:
        yield opened


@pytest.fixture
def page() -> Iterator[Page]:
    """A window of a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def sign_in(page: Page, team: TeamDashboard, role: str) -> None:
    token, _ = team.site.store.create_token(role=role, source=f"a {role}")
    page.goto(f"{team.address}/campaigns")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/campaigns")


def test_a_campaign_is_watched_while_it_runs_and_cancelled(bench: Bench, team: TeamDashboard, page: Page) -> None:
    bench.matrix(bench.waiting_code, REFUSES)
    process = bench.start()
    bench.wait(lambda: bench.has_started)
    sign_in(page, team, "runner")

    page.get_by_role("link", name="small-").click()
    page.wait_for_selector("text=running")
    page.wait_for_selector("details:has-text('import-error')", timeout=60_000)
    failure = page.locator("#campaign details pre").first.text_content()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("#campaign .badge:has-text('cancelled')", timeout=90_000)
    bench.release()
    process.wait(120)

    assert "not today" in (failure or "")
    assert bench.status()["state"] == "cancelled"
