"""HTML reports in a browser: the first screen, folded details, narrow windows; and the script of the screenshots."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from advisor.api.options import IndexOptions, ProjectOptions, ResolutionOptions, TargetOptions
from advisor.api.session import AdviceResult, open_session
from advisor.report.advice.formats import html
from advisor.report.formats import Presentation
from advisor.report.html import SCRIPT, STYLE_SHEET
from advisor.resolve.explanation.recommended_settings import CombinedGain
from docs import screenshots
from knowledge.domain.ratio import NO_GAIN, Ratio
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.knowledge.samples import InventedArm, invented_arms
from tests.package_index import PackageIndex

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
CARD = re.compile(r'<div class="card"><b>([^<]*)</b>')
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium at /usr/bin/chromium")
LONG = "a-package-whose-name-is-much-longer-than-that-of-any-other-one"


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """Requirements of PyTorch, whose newest release has no code for a V100, and of packages with constraints."""
    libraries = [f"nvidia-library-{number}" for number in range(12)]
    for suffix, version in (("cu12", "2.5.1"), ("cu13", "2.15.0")):
        names = [f"{library}-{suffix}" for library in libraries]
        index.add("torch", version, [*names, LONG], code="#" * 50_000)
        for number, name in enumerate(names):
            index.add(name, "1.0", code="#" * 5_000 * (number + 1))
    index.add(LONG, "1.0", code="#" * 40_000)
    for version in ("1.26.4", "2.0.2"):
        index.add("numpy", version, code="#" * 20_000)
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\nnumpy<2\n{LONG}==1.0\n")
    return tmp_path


@pytest.fixture
def advice(project: Path, advisor_here: Advisor) -> str:
    """The page of an advice for a V100."""
    result = advisor_here(
        "advise", "-r", "requirements.txt", "--hardware", "v100", "--python", "3.12", "--dry-run", "--format", "html"
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, content: str, *, width: int, height: int = 800) -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_content(content)
    return page


def open_folds(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")


@pytest.mark.shipped
def test_the_page_says_how_the_speed_depends_on_the_size(
    index: PackageIndex, tmp_path: Path, knowledge_file: Path, advisor_here: Advisor
) -> None:
    with open_knowledge_base(str(knowledge_file)) as store:
        for name, flops, gain in (("resnet18", 1e9, 0.3), ("mobilenet_v2", 1e10, 0.4), ("resnet50", 1e12, 0.6)):
            own = invented_arms(
                [("2.13.0", {}, 0.0), ("2.10.0", {}, gain)],
                parameters={"model": name, "mode": "training", "batch": 16, "size": 225},
                hardware=find_profile("cpu-zen4"),
                flops=flops,
            )
            store.add(replace(o, block=name) for o in own)
    for version in ("2.10.0", "2.13.0"):
        index.add("torch", version)
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\n")
    options = ("-r", "requirements.txt", "--hardware", "cpu-zen4", "--python", "3.12", "--workload", "cnn-training")

    text, page = (
        advisor_here("advise", *options, "--dry-run", *o).stdout for o in (["--details"], ["--format", "html"])
    )

    sizes = re.search(r"[0-9.]+x for small to [0-9.]+x for large sizes", " ".join(text.split()))
    assert sizes is not None, text
    assert sizes[0] in page


@needs_chromium
@pytest.mark.parametrize("width", [320, 400, 800])
def test_no_page_is_wider_than_its_window(
    advice: str, browser: Browser, project: Path, advisor_here: Advisor, width: int
) -> None:
    (project / "lock.txt").write_text(f"torch==2.15.0\nnumpy==2.0.2\n{LONG}==1.0\n")
    (project / "before.txt").write_text(f"torch==2.5.1\nnumpy==1.26.4\n{LONG}==1.0\n")
    files = ("-r", "requirements.txt", "--current", "lock.txt", "--base", "before.txt")
    check = advisor_here("check", *files, "--hardware", "v100", "--python", "3.12", "--format", "html").stdout

    for content in (advice, check):
        page = opened(browser, content, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        open_folds(page)
        assert page.locator("table[data-filter]").get_by_text(LONG, exact=True).is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == width


def measured_project(index: PackageIndex, folder: Path, knowledge_file: Path, *, gain: float) -> tuple[str, ...]:
    """Measure two versions of PyTorch, of which the older gains something, and return the options for their project."""
    with open_knowledge_base(str(knowledge_file)) as store:
        for name in ("mobilenet_v2", "resnet50"):
            parameters = {"model": name, "mode": "training", "batch": 16, "size": 225}
            arms: list[InventedArm] = [("2.13.0", {}, 0.0), ("2.10.0", {}, gain), ("2.9.0", {}, gain - 0.1)]
            own = invented_arms(arms, parameters=parameters, hardware=find_profile("cpu-zen4"))
            store.add(replace(o, block=name) for o in own)
    for version in ("2.8.0", "2.9.0", "2.10.0", "2.13.0"):
        index.add("torch", version)
    (folder / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\n")
    return ("-r", "requirements.txt", "--hardware", "cpu-zen4", "--python", "3.12", "--workload", "cnn-training")


VERSION_ROW = re.compile(
    r'<span class="label">([0-9.]+)<span class="note">([^<]*)</span>.*?<span class="number mono">([^<]*)</span>',
    re.DOTALL,
)


@pytest.mark.parametrize(("gain", "chosen"), [(0.4, "2.10.0"), (-0.3, "2.13.0")])
def test_the_measured_versions_of_the_framework_are_compared_also_if_the_newest_is_recommended(
    index: PackageIndex, tmp_path: Path, knowledge_file: Path, advisor_here: Advisor, gain: float, chosen: str
) -> None:
    options = ("advise", *measured_project(index, tmp_path, knowledge_file, gain=gain), "--dry-run", "--format")

    page, document = advisor_here(*options, "html").stdout, json.loads(advisor_here(*options, "json").stdout)

    section = page.split("<h2>Versions compared</h2>")[1].split("<h2>")[0]
    rows = {version: (note, number) for version, note, number in VERSION_ROW.findall(section)}
    assert list(rows) == ["2.13.0", "2.10.0", "2.9.0"]
    assert [version for version, (note, _) in rows.items() if "recommended" in note] == [chosen]
    assert rows["2.13.0"][0].startswith("the reference, ")
    assert all("measured, 2 direct comparisons" in rows[version][0] for version in ("2.10.0", "2.9.0"))
    assert rows[chosen][1].startswith(f"{document['prediction']['speedup']:.3f}x")
    assert section.count("<details") == 1
    assert all(f">{number.split()[0]}</td>" in section for _, number in rows.values())


def test_the_top_says_what_is_not_known_and_what_finds_it_out(
    advice: str, project: Path, advisor_here: Advisor
) -> None:
    (project / "pyproject.toml").write_text('[tool.advisor.benchmark]\ncommand = "python train.py"\n')
    (project / "train.py").write_text("")
    options = ("--hardware", "v100", "--python", "3.12", "--dry-run", "--format", "html")

    with_benchmark = advisor_here("advise", "-r", "requirements.txt", *options).stdout

    for page, remedy in (
        (advice, "<code>advisor benchmark init</code> proposes a benchmark"),
        (with_benchmark, "It runs <code>python train.py</code>."),
    ):
        before, after = page.split("<h2>Not known</h2>")
        assert "<h2>" not in before.split("<main>")[1]
        block = after.split("</section>")[0]
        assert "the speed of torch on such hardware: no usable measurement of it" in block
        assert "<code>advisor advise --measure TIME</code>" in block
        assert remedy in block
        assert "No two versions of <code>torch</code> that run on the target were compared" in after


@pytest.fixture
def result(index: PackageIndex, tmp_path: Path, knowledge_file: Path, no_user_configuration: None) -> AdviceResult:
    """The advice for a project whose older version of PyTorch is faster."""
    measured_project(index, tmp_path, knowledge_file, gain=0.4)
    options = ProjectOptions.of(
        tmp_path,
        target=TargetOptions(hardware="cpu-zen4", python="3.12"),
        resolution=ResolutionOptions(knowledge=f"sqlite:///{knowledge_file}", workload="cnn-training"),
        indexes=IndexOptions(cache_directory=tmp_path / "cache"),
    )
    with open_session(options) as session:
        return session.result()


def test_the_headline_and_the_cards_do_not_claim_more_than_is_proven(result: AdviceResult) -> None:
    advice = result.advice
    bounds = tuple(replace(bound, bound=bound.value - 1) for bound in advice.optimum.bounds)
    stopped = replace(advice.optimum, bounds=bounds, stopped="stopped at the time limit of 2 s")
    ratio = replace(advice.prediction.ratio, mean=0.1, variance=0.1)
    unclear = replace(advice.prediction, ratio=ratio)

    proven = html.content(result, Presentation())
    open_ = html.content(replace(result, advice=replace(advice, optimum=stopped, prediction=unclear)), Presentation())

    assert CARD.findall(proven)[0].endswith(" times as fast")
    assert CARD.findall(proven)[3] == "optimal for the score"
    assert "not proven" not in proven
    assert CARD.findall(open_)[0] == "no clear difference in speed"
    assert CARD.findall(open_)[3] == "not proven to be optimal"
    assert "(not proven to be optimal)</h1>" in open_
    unknown = open_.split("<h2>Not known</h2>")[1].split("</section>")[0]
    assert "whether another stack has a better score: stopped at the time limit of 2 s" in unknown
    assert "whether the stack is faster than the newest versions: no clear difference: 1.11" in unknown


def test_the_gain_of_settings_is_a_heading_only_if_it_is_clear(result: AdviceResult) -> None:
    gains = [CombinedGain(ratio=Ratio(mean=0.1, variance=variance)) for variance in (0.0001, 0.1)]
    same = replace(result.advice.prediction, is_same=True, changes=(), ratio=NO_GAIN)
    results = [replace(result, settings_gain=g, advice=replace(result.advice, prediction=same)) for g in gains]

    clear, unclear = (CARD.findall(html.content(r, Presentation()))[0] for r in results)

    assert (clear, unclear) == ("1.11 times as fast", "no clear difference in speed")


def test_the_content_obeys_a_policy_without_inline_scripts_and_styles(
    advice: str, project: Path, advisor_here: Advisor
) -> None:
    (project / "lock.txt").write_text(f"torch==2.15.0\nnumpy==2.0.2\n{LONG}==1.0\n")
    options = ("--current", "lock.txt", "--hardware", "v100", "--python", "3.12", "--format", "html")
    check = advisor_here("check", "-r", "requirements.txt", *options).stdout
    (project / "requirements.txt").unlink()
    choice = ("--workload", "bert-training", "--hardware", "h100", "--hardware", "v100", "--format", "html")
    machines = advisor_here("hardware", "choose", *choice).stdout

    for page in (advice, check, machines):
        before, content, after = re.split("</?main>", page)
        assert not re.search(r"<(style|script|link)\b|<[^>]*\s(style|on\w+)=", content)
        assert STYLE_SHEET in before
        assert SCRIPT in after


@needs_chromium
def test_the_first_screen_says_what_to_do_and_what_it_brings(advice: str, browser: Browser) -> None:
    page = opened(browser, advice, width=1280)

    assert page.get_by_role("heading", level=1).inner_text() == "Use torch 2.5.1 instead of 2.15.0"
    cards = page.locator(".card")
    assert [card.locator("b").inner_text() for card in cards.all()][0::3] == [
        "the newest do not run",
        "optimal for the score",
    ]
    for text in ("to download", "15 packages", "2.15.0 → 2.5.1"):
        box = page.get_by_text(text).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 800
    assert page.get_by_text("12 added, 12 removed").is_visible()
    assert not page.get_by_text("nvidia-library-3-cu12").first.is_visible()
    page.get_by_text("12 added, 12 removed").click()
    assert page.get_by_text("nvidia-library-3-cu12").first.is_visible()


@needs_chromium
@pytest.mark.parametrize("width", [400, 800, 1280])
def test_labels_of_the_treemap_are_whole_or_absent(advice: str, browser: Browser, width: int) -> None:
    page = opened(browser, advice, width=width)
    open_folds(page)

    labels = 0
    for tile in page.locator(".treemap:visible g").all():
        place = tile.locator("rect").bounding_box()
        assert place is not None
        for line in tile.locator("text").all():
            labels += 1
            box = line.bounding_box()
            assert box is not None
            assert place["x"] <= box["x"]
            assert box["x"] + box["width"] <= place["x"] + place["width"]
            assert place["y"] <= box["y"] + 2
            assert box["y"] + box["height"] <= place["y"] + place["height"]
    assert labels >= 6


def test_every_address_of_a_source_is_a_link(advice: str) -> None:
    address = r'<a href="https://{0}/[^" ]+">{0}</a>'

    assert re.search(f"{address.format('docs.nvidia.com')} and {address.format('github.com')}[)]", advice)


@needs_chromium
def test_the_script_of_the_screenshots_takes_them(
    project: Path, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2.12.1", "2.20.0"):
        index.add("tensorflow-cpu", version, ["numpy"], code="")
    index.add("pandas", "2.1.4", ["numpy"], code="")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)

    # In a process of its own: the browser of the other tests runs an event loop in this one.
    subprocess.run([sys.executable, str(screenshots.__file__), str(tmp_path / "images")], check=True)

    pictures = sorted((tmp_path / "images").iterdir())
    names = ["advice-dark.png", "advice-light.png", "check-dark.png", "check-light.png"]
    assert [picture.name for picture in pictures] == names
    for picture in pictures:
        # Width and height follow the signature and the head of the first chunk (PNG specification, section 11.2.1).
        assert struct.unpack(">II", picture.read_bytes()[16:24]) == (screenshots.WIDTH, screenshots.HEIGHT)
    assert len({picture.read_bytes() for picture in pictures}) == len(pictures)
