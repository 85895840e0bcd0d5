"""The documentation site builds without a warning, and its pages agree with the program."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import dashboard_pictures, diagrams, screenshots
from knowledge.hardware.nvml import NvmlReading
from tests.conftest import Advisor

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

needs_sphinx = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("furo") is None,
    reason="Sphinx and furo are not installed",
)


@needs_sphinx
def test_the_pages_have_no_warning(tmp_path: Path) -> None:
    program = "import docs.__main__ as d, sys; sys.exit(d.build(d.PAGES, d.Path(sys.argv[1]), builder='dummy'))"
    command = [sys.executable, "-c", program, str(tmp_path)]

    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (completed.returncode, completed.stderr) == (0, "")


@needs_sphinx
@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs", str(tmp_path)]

    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (completed.returncode, completed.stderr) == (0, "")
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    built = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.html")}
    assert pages <= built
    assert built - pages <= {Path("genindex.html"), Path("search.html")}


@needs_sphinx
def test_broken_links_fail_the_build(tmp_path: Path) -> None:
    pages, site = tmp_path / "pages", tmp_path / "site"
    pages.mkdir()
    links = "[page](not-a-page.md) [heading](other.md#not-a-heading) [of this page](#not-here) [fine](other.md#there)"
    (pages / "index.md").write_text(f"# Index\n\n{links}\n\n```{{toctree}}\nother\n```\n")
    (pages / "other.md").write_text("# Other\n\n## There\n")
    program = "import pathlib, sys, docs.__main__ as d; sys.exit(d.build(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", program, str(pages), str(site)]

    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert completed.returncode == 1
    assert sorted(re.findall(r"not-a-page|not-a-heading|not-here", completed.stderr)) == [
        "not-a-heading",
        "not-a-page",
        "not-here",
    ]


def test_the_drawings_are_current() -> None:
    stale = [path.name for path, text in diagrams.drawings().items() if path.read_text(encoding="utf-8") != text]

    assert stale == [], "run `python docs/diagrams.py`"


@pytest.mark.parametrize("diagram", [diagrams.architecture(), diagrams.data_flow()], ids=lambda d: d.title[:12])
def test_the_texts_of_a_drawing_fit_into_their_boxes(diagram: diagrams.Diagram) -> None:
    ElementTree.fromstring(diagram.svg())

    for box in diagram.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= diagram.width
        assert box.y + box.height <= diagram.height
        assert 20 + diagrams.CHARACTER_WIDTH * diagrams.TITLE_SIZE * len(box.title) <= box.width
        if box.kind != "group":
            assert 42 + diagrams.LINE_HEIGHT * (len(box.lines) - 1) + 6 <= box.height
            for line in box.lines:
                assert 15 + diagrams.CHARACTER_WIDTH * diagrams.LINE_SIZE * len(line) <= box.width, line


def test_the_drawing_of_the_architecture_has_exactly_the_existing_packages() -> None:
    drawn = {box.title for box in diagrams.architecture().boxes}
    roots = ("advisor", "pi_runners", "knowledge")

    packages = {path.parent.name for folder in roots for path in (ROOT / folder).glob("*/__init__.py")}
    assert drawn == packages | set(roots)


def test_screenshots_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}

    names = [*screenshots.PROJECTS, *(f"dashboard-{name}" for name in dashboard_pictures.PAGES)]
    assert sizes.keys() == {f"{name}-{scheme}.png" for name in names for scheme in ("light", "dark")}
    assert max(sizes.values()) < 150 * 1024


def test_troubleshooting_shows_what_the_program_prints(
    advisor_here: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr("knowledge.hardware.detect.read_nvml", NvmlReading)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "1"\ndependencies = ["numpy"]\n')
    blocks = re.findall(r"```console\n(.*?)```", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.DOTALL)

    for block in blocks:
        command, _, expected = block.partition("\n")
        completed = advisor_here(*command.removeprefix("$ advisor ").split())
        assert completed.stderr == expected
    assert len(blocks) == 5


def test_every_exit_code_of_troubleshooting_is_in_the_reference() -> None:
    def codes(page: str) -> list[str]:
        section = (DOCS / page).read_text(encoding="utf-8").partition("## Exit codes\n")[2].partition("\n## ")[0]
        return re.findall(r"^\| (\d+) \|", section, re.MULTILINE)

    assert codes("troubleshooting.md") == codes("reference/cli.md") != []


def test_the_glossary_defines_each_term_once_in_alphabetical_order() -> None:
    terms = re.findall(r"^## (.*)", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert len(terms) == len(set(terms)) > 50
    assert terms == sorted(terms, key=str.lower)
    assert {"arm", "A/A control", "block", "round", "workload", "quarantine", "lock"} <= set(terms)


def test_docs_prints_the_address_of_the_package_metadata(
    advisor_here: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "seshat_advisor-9.dist-info"
    installed.mkdir()
    metadata = "Metadata-Version: 2.4\nName: seshat-advisor\nVersion: 9\n"
    (installed / "METADATA").write_text(
        f"{metadata}Project-URL: Repository, https://a.example/code\nProject-URL: Documentation, https://a.example/d\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    completed = advisor_here("docs")
    (installed / "METADATA").write_text(metadata)
    missing = advisor_here("docs")

    assert (completed.returncode, completed.stdout) == (0, "https://a.example/d\n")
    assert missing.returncode == 2
    assert "does not name the address of the documentation" in missing.stderr
