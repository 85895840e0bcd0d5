"""`advisor dashboard --export`: the pages as files, which need no server, no network and no JavaScript."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from lxml import html

from advisor.dashboard import export, site
from advisor.dashboard.export import MARKER, ExportResult, export_pages
from advisor.dashboard.site import Site
from knowledge.domain.errors import InputError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.shipped_files import shipped_files
from tests.conftest import Advisor
from tests.knowledge.histories import Day, history
from tests.knowledge.samples import block, observation
from tests.knowledge.shipped_stores import content_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium at /usr/bin/chromium")
FILES = ("2026-11-21-numpy", "2026-11-23-input", "mlperf-training-v0.5", "lambda-hosts")
HOSTILE = 'b"<script>alert(1)</script>'


@dataclass(frozen=True)
class Exported:
    """A knowledge base, and its exported pages."""

    site: Site
    directory: Path
    result: ExportResult

    @property
    def pages(self) -> dict[str, html.HtmlElement]:
        """The parsed pages by name."""
        return {path.name: html.parse(str(path)).getroot() for path in self.directory.glob("*.html")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """Pages of a few shipped files, of a series with a slower day, and of a block with a failed run."""
    directory = tmp_path_factory.mktemp("export")
    with open_knowledge_base(f"sqlite:///{directory}/own.sqlite", shipped=False) as store:
        for file in shipped_files():
            if any(name in file.name for name in FILES):
                store.add(content_of(file))
        store.add(history({0: Day(), 30: replace(Day(), seconds=0.13)}))
        store.add(block({"2.0.0": 1.0, "2.1.0": 1.3}, name=HOSTILE))
        store.add([observation("2.2.0", arm=2, block=HOSTILE, status="crashed")])
        own = Site(store=store)
        yield Exported(own, directory / "site", export_pages(own, directory / "site"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


def broken_links(directory: Path) -> list[str]:
    """Return links and sources that are not relative, or whose file or element does not exist."""
    pages = {path.name: html.parse(str(path)).getroot() for path in directory.glob("*.html")}
    identifiers = {name: {*page.xpath("//@id")} for name, page in pages.items()}
    broken = []
    for name, page in pages.items():
        for address in {*page.xpath("//@href | //@src")}:
            parts = urlsplit(address)
            target = unquote(parts.path) or name
            is_here = address and not (parts.scheme or parts.netloc or "/" in target) and (directory / target).is_file()
            if not is_here or (parts.fragment and parts.fragment not in identifiers[target]):
                broken.append(f"{name}: {address}")
    return broken


def cells(page: html.HtmlElement) -> list[str]:
    """Return the texts of the runs on the page of a block."""
    return [" ".join(cell.itertext()) for cell in page.xpath("//table[@class='runs']//td[br]")]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_link_leads_to_an_exported_page(exported: Exported) -> None:
    pages = exported.pages

    assert broken_links(exported.directory) == []
    assert {"index.html", "map.html", "compare.html", "history.html", "hardware.html"} <= pages.keys()
    assert exported.result.pages == len(pages)
    assert exported.result.size_bytes == sum(map(len, contents(exported.directory).values()))


def test_pages_have_no_inline_script_or_style(exported: Exported) -> None:
    for name, page in exported.pages.items():
        assert page.xpath("//style | //script[not(@src)] | //script[text()]") == [], name
        assert [a for a in page.xpath("//@*") if a.attrname == "style" or a.attrname.startswith("on")] == [], name


def test_every_observation_has_a_cell_or_is_reported(exported: Exported) -> None:
    listed = [cell for page in exported.pages.values() for cell in cells(page)]
    left_out = sum(int(s.split()[0]) for s in exported.result.left_out if " observations " in s)

    assert len(listed) + left_out == sum(g.observations for g in exported.site.store.coverage(("block",)))
    assert len(listed) > 300
    text = exported.pages["compare.html"].text_content()
    assert all(sentence in text for sentence in exported.result.left_out)


def test_a_comparison_leads_to_the_runs_of_its_arm(exported: Exported) -> None:
    pages = exported.pages
    rows = [
        (page, link)
        for name, page in pages.items()
        if name.startswith("compare-")
        for link in page.xpath("//table[@class='compared']//a")
    ]

    assert rows
    for _, link in rows:
        target, _, anchor = link.get("href").partition("#")
        (row,) = pages[target].xpath(f"//tr[@id='{anchor}']")
        assert row.find("th").text_content().removesuffix(" reference").strip() == link.text


def test_the_runs_of_a_block_have_medians_states_and_identities(exported: Exported) -> None:
    (page,) = (page for page in exported.pages.values() if HOSTILE in page.findtext("head/title"))
    stored = {o.identity[:10]: o for o in exported.site.store.observations(block=HOSTILE)}
    texts = {cell.split()[1]: cell.split()[0] for cell in cells(page)}

    assert texts.keys() == stored.keys()
    for identity, text in texts.items():
        median = stored[identity].median
        assert text == ("crashed" if median is None else f"{median:.4g}")


def test_the_map_links_only_what_is_compared(exported: Exported) -> None:
    page = exported.pages["map.html"]
    frameworks = [cell.text for cell in page.xpath("//table[contains(@class, 'map')]/thead//th")][1:]
    linked = {
        name
        for row in page.xpath("//table[contains(@class, 'map')]/tbody/tr")
        for name, cell in zip(frameworks, row.findall("td"), strict=True)
        if cell.find("a") is not None
    }

    assert "numpy" in linked
    assert "mxnet" in frameworks
    assert "mxnet" not in linked


def test_a_slower_series_has_a_page(exported: Exported) -> None:
    (link,) = exported.pages["history.html"].xpath("//div[@class='rows']//a")
    page = exported.pages[link.get("href")]

    assert "slower" in page.text_content()
    assert len(page.xpath("//svg//circle")) == 60


def test_the_same_knowledge_gives_the_same_bytes_years_later(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Later:
            return cls(2033, 5, 6, tzinfo=tz or UTC)

    monkeypatch.setattr(site, "datetime", Later)

    with open_knowledge_base(f"sqlite:///{tmp_path}/other.sqlite", shipped=False) as store:
        store.add(reversed([*exported.site.store.observations()]))
        export_pages(Site(store=store), tmp_path / "again")

    assert contents(tmp_path / "again") == contents(exported.directory)


def test_ages_are_dates_only_in_files(exported: Exported) -> None:
    template = exported.site.environment.from_string("{{ time | age('ago') }}")
    time = f"{datetime.now(UTC).year - 3}-01-02T03:04:05Z"

    assert template.render(session=None, time=time) == time[:10]
    assert re.fullmatch(r"[23] years ago", template.render(session="somebody", time=time))


@pytest.mark.parametrize("name", ["notes.txt", MARKER])
def test_a_directory_with_other_content_is_refused(exported: Exported, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("index.html\n")
    (tmp_path / "own.txt").write_text("mine")
    before = contents(tmp_path)

    with pytest.raises(InputError, match="has content that no export wrote, such as `") as refusal:
        export_pages(exported.site, tmp_path)

    assert "an empty one" in (refusal.value.hint or "")
    assert contents(tmp_path) == before


def test_a_file_is_no_directory(exported: Exported, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    with pytest.raises(InputError, match=r"file` is not a directory$"):
        export_pages(exported.site, tmp_path / "file")
    with pytest.raises(InputError, match=r"file/site` cannot be written: \w[\w ]+$"):
        export_pages(exported.site, tmp_path / "file" / "site")

    assert contents(tmp_path) == {"file": b"mine"}


def test_an_interrupted_export_changes_nothing(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / MARKER).write_text("index.html\n")
    (tmp_path / "site" / "index.html").write_text("old")

    def files(*_: object) -> Iterator[tuple[str, bytes]]:
        yield "index.html", b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "_files", files)

    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        export_pages(exported.site, tmp_path / "site")

    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    assert contents(tmp_path / "site") == {MARKER: b"index.html\n", "index.html": b"old"}


def test_an_earlier_export_is_replaced(advisor_here: Advisor, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "pages"
    directory.mkdir(parents=True)
    first = advisor_here("dashboard", "--export", str(directory))
    (directory / "old.html").write_text("of an earlier version")
    (directory / MARKER).write_text((directory / MARKER).read_text() + "old.html\n")

    again = advisor_here("dashboard", "--export", str(directory))

    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert re.fullmatch(r"\d+ pages, 0\.\d MB: .*/new/pages/index\.html\n", again.stdout)
    assert not (directory / "old.html").exists()
    assert [path.name for path in directory.parent.iterdir()] == ["pages"]
    assert broken_links(directory) == []


@needs_chromium
def test_a_browser_goes_from_the_map_to_a_comparison_and_a_block(exported: Exported, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"file://{exported.directory}/index.html")

    page.locator("table.map td a[href*=numpy]").first.click()
    assert "times as fast" in page.inner_text("table.compared thead").lower()
    page.locator("table.compared a").first.click()

    assert page.locator("tr:target td").first.is_visible()
    assert all(url.startswith(f"file://{exported.directory}/") for url in requests)
    context.close()


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_are_as_wide_as_the_window_and_their_script_filters(
    exported: Exported, browser: Browser, width: int
) -> None:
    page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    # The next page aborts the request for the icon.
    page.on("requestfailed", lambda r: problems.append(r.url) if r.failure != "net::ERR_ABORTED" else None)
    # One page of each kind.
    kinds = {re.sub(r"^([a-z]+[.-]|[a-z]).*", r"\1", name): name for name in exported.pages}
    for name in kinds.values():
        page.goto(f"file://{exported.directory}/{name}")
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            problems.append(f"{name} is too wide")
    page.goto(f"file://{exported.directory}/compare.html")

    page.fill("input.filter", "numpy")

    assert problems == []
    assert 0 < page.locator("tbody tr:visible").count() < page.locator("tbody tr").count()


@pytest.mark.slow
@pytest.mark.shipped
def test_the_shipped_knowledge_is_less_than_five_megabytes(knowledge_file: Path, tmp_path: Path) -> None:
    with open_knowledge_base(f"sqlite:///{knowledge_file}") as store:
        result = export_pages(Site(store=store), tmp_path / "site")

    assert result.size_bytes < 5_000_000
    assert broken_links(tmp_path / "site") == []
