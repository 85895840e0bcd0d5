"""The dashboard as a person uses it, in a browser."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.execution.environment import find_uv
from tests.advisor.dashboard.dashboards import local_dashboard, team_dashboard
from tests.conftest import Advisor
from tests.knowledge.conftest import new_database
from tests.knowledge.conftest import postgresql as postgresql

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.shipped,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed"),
]
PAGES = ("overview", "compare", "history", "hardware?name=h100", "campaigns", "administration", "advice/form")
LARGEST_FIRST_PAGE = 150_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, knowledge_file: Path) -> Iterator[SqlKnowledgeBase]:
    """The shipped knowledge base on each backend."""
    address = f"sqlite:///{knowledge_file}"
    if request.param == "postgresql":
        address = new_database(request.getfixturevalue("postgresql"))
    with open_knowledge_base(address) as opened:
        yield opened


Open = Callable[..., "Page"]


@pytest.fixture
def opened(browser: Browser, store: SqlKnowledgeBase) -> Iterator[tuple[str, Open, list[str]]]:
    """The address of a local dashboard, a function that opens it in a new window, and the errors of all windows."""
    errors: list[str] = []
    with local_dashboard(store) as (address, sign_in):

        def window(*, width: int = 1280, scheme: Any = "light") -> Page:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("dialog", lambda dialog: errors.append(dialog.message))
            page.goto(f"{address}/?token={sign_in.token}")
            return page

        yield address, window, errors
        for context in browser.contexts:
            context.close()


def serious_violations(page: Page) -> list[str]:
    """Return what axe-core finds that keeps people from using a page."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page).response["violations"]
    return [
        f"{v['id']}: {node['html'][:200]}"
        for v in results
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"]
    ]


def details_of(page: Page, address: str) -> list[str]:
    """Return the addresses of one history, one arm and one observation."""

    def load(path: str) -> Any:
        return page.evaluate("address => fetch(address).then(answer => answer.json())", f"{address}/api/{path}")

    series = load("history?framework=torch")["series"][0]["identity"]
    result = load("compare")["sizes"][0]["rows"][0]["result"]
    arm = f"arm?{urlencode({name: result[name] for name in ('block', 'label', 'arm')})}"
    identity = load(arm)["rounds"][0]["identity"]
    return [f"history?series={series}", arm, f"observation/{identity}"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_each_page_can_be_used_by_everybody(opened: tuple[str, Open, list[str]], width: int, scheme: str) -> None:
    address, window, errors = opened
    page = window(width=width, scheme=scheme)
    violations: dict[str, list[str]] = {}
    for name in (*PAGES, *details_of(page, address)):
        page.goto(f"{address}/{name}")
        page.wait_for_load_state("networkidle")
        if some := serious_violations(page):
            violations[name] = some
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

    assert violations == {}
    assert errors == []


def test_the_first_page_is_small(browser: Browser, store: SqlKnowledgeBase) -> None:
    sizes: list[int] = []
    with local_dashboard(store) as (address, sign_in):
        # A new context has an empty cache.
        page = browser.new_context().new_page()
        page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
        page.goto(f"{address}/?token={sign_in.token}", wait_until="networkidle")
        page.context.close()

    assert 0 < sum(sizes) < LARGEST_FIRST_PAGE


def test_a_click_on_a_comparison_shows_its_rounds(opened: tuple[str, Open, list[str]]) -> None:
    address, window, errors = opened
    page = window()

    page.goto(f"{address}/overview")
    page.get_by_role("row", name="icelake").get_by_role("link").first.click()
    page.locator(".row .label a").first.click()
    page.wait_for_selector("#detail article")
    rounds = page.locator("#detail table").first.locator("tbody tr").count()
    page.locator("#detail tbody a").first.click()
    page.wait_for_load_state()

    assert rounds > 1
    assert "/observation/" in page.url
    assert "requirements.txt of this environment" in page.content()
    assert errors == []


def test_a_link_reproduces_a_view_and_the_command_prints_the_same(
    opened: tuple[str, Open, list[str]], advisor_here: Advisor
) -> None:
    _, window, _ = opened
    page = window()
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("Indicator or workload").select_option("matmul")
    page.wait_for_url("**/compare?*indicator=matmul*")
    page.get_by_label("Size").select_option("all")
    page.wait_for_url("**/compare?*label=all*")

    other = window()
    other.goto(page.url)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    words = page.locator(".command code").last.inner_text().split()
    printed = json.loads(advisor_here(*words[1:], "--format", "json").stdout)["comparisons"]

    assert other.locator("h2").all_inner_texts() == page.locator("h2").all_inner_texts()
    columns = {"stack": "stack", "reference": "reference", "indicator": "indicator", "block": "block"}
    numbers = {"ratio": "ratio", "low": "low", "high": "high"}
    page_rows = {
        (*(row[name] for name in columns), *(round(float(row[name]), 5) for name in numbers), row["rounds"])
        for row in rows
    }
    printed_rows = {
        (*(c[name] for name in columns), *(round(c[name], 5) for name in numbers), str(c["rounds"])) for c in printed
    }
    assert len(page_rows) > 10
    assert page_rows == printed_rows


def test_a_reader_does_not_see_the_administration(browser: Browser, store: SqlKnowledgeBase) -> None:
    token, _ = store.create_token(role="reader", source="a person")
    with team_dashboard(store) as team:
        page = browser.new_context().new_page()
        page.goto(f"{team.address}/overview?all=true")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_load_state()
        address, menu = page.url, page.locator("nav a").all_inner_texts()
        refused = page.goto(f"{team.address}/administration")
        text = page.inner_text("main")
        page.context.close()

    assert address == f"{team.address}/overview?all=true"
    assert "Administration" not in menu
    assert refused is not None
    assert refused.status == 403
    assert "this needs the role" in text


def test_a_pasted_page_does_nothing(opened: tuple[str, Open, list[str]]) -> None:
    address, window, errors = opened
    page = window()
    page.goto(f"{address}/advice/form")

    page.locator("textarea").fill("<script>alert(1)</script><img src=x onerror=alert(2)>")
    page.get_by_role("button", name="Advise").click()
    page.wait_for_load_state()

    assert "is not a requirement" in page.inner_text("main")
    assert "alert(1)" in page.inner_text("main")
    assert [error for error in errors if "422" not in error] == []


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_a_lock_is_advised_downloaded_and_installed(
    browser: Browser, store: SqlKnowledgeBase, advisor_here: Advisor, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("pandas<2.3\nthreadpoolctl\n")
    options = ("--hardware", "cpu-zen4", "--python", f"{sys.version_info[0]}.{sys.version_info[1]}")
    with local_dashboard(store) as (address, sign_in):
        page = browser.new_context(viewport={"width": 1100, "height": 900}).new_page()
        page.goto(f"{address}/?token={sign_in.token}")
        page.goto(f"{address}/advice/form")
        page.locator("textarea").fill((tmp_path / "requirements.txt").read_text())
        page.get_by_label("Hardware").fill(options[1])
        page.get_by_label("Python").select_option(options[3])
        page.get_by_role("button", name="Advise").click()
        page.wait_for_selector("#what-if", timeout=180_000)
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the lock").click()
        download.value.save_as(tmp_path / "pylock.toml")
        record = page.evaluate("fetch(document.querySelector('a[href*=\"api/advice\"]').href).then(r => r.json())")
        page.wait_for_selector("#what-if:not([hx-get])", timeout=180_000)
        page.locator("#what-if input[name=constraint]").first.uncheck()
        page.get_by_role("button", name="Solve again").click()
        page.wait_for_selector(".notice", timeout=180_000)
        changed = page.inner_text("main")
        page.context.close()
    printed = json.loads(
        advisor_here("advise", "--dry-run", *options, "--format", "json", "-r", "requirements.txt").stdout
    )
    subprocess.run([find_uv(), "venv", "--quiet", "--python", sys.executable, tmp_path / "own"], check=True)
    python = tmp_path / "own" / "bin" / "python"
    install = [find_uv(), "pip", "install", "--quiet", "--python", str(python), "-r", str(tmp_path / "pylock.toml")]
    subprocess.run(install, check=True)
    version = subprocess.run([python, "-c", "import pandas; print(pandas.__version__)"], capture_output=True, text=True)

    assert record["advice"]["stack"] == printed["stack"]
    assert record["advice"]["prediction"] == printed["prediction"]
    assert version.stdout.strip() == next(
        package["version"] for package in printed["stack"]["packages"] if package["name"] == "pandas"
    )
    assert "without pandas<2.3" in changed
