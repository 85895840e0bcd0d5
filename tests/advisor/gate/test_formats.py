"""The formats of the gate's report are valid and deterministic and contain the same findings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifSchema

from advisor.report.check.formats.markdown import MARKER
from tests.conftest import Advisor
from tests.package_index import PackageIndex

FORMATS = ("text", "json", "markdown", "github", "gitlab", "sarif", "junit", "html")
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture
def failing(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """A pinned project with an error, an ignored warning and notes; two names contain markup characters."""
    index.add("tensorflow-cpu", "2.15.1", code="")
    index.add("tensorflow-cpu", "2.20.0", code="")
    index.add("numpy", "2.0.2", code="")
    (tmp_path / "requirements.txt").write_text("tensorflow-cpu==2.15.1\nnumpy==2.0.2\n")
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
        'workload = "cnn-training"\n[tool.advisor.gate]\n'
        'ignore = [{ code = "ADV013", reason = "a | <b>, 100% \\"sure\\": & <script>alert(1)</script>" }]\n'
    )
    return tmp_path


def report(advisor_here: Advisor, format: str, *arguments: str) -> str:
    """Return the report in a format."""
    result = advisor_here("check", "--format", format, *arguments)
    assert result.returncode == 1, result.stderr
    return result.stdout


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_is_deterministic_and_the_same_in_a_file_and_on_the_screen(
    failing: Path, advisor_here: Advisor, format: str
) -> None:
    first = report(advisor_here, format, "-o", f"{format}=report.out")

    assert report(advisor_here, format, "--offline") == first
    assert (failing / "report.out").read_text() == first
    assert "ADV006" in first


def test_the_name_of_each_output_file_selects_its_format(failing: Path, advisor_here: Advisor) -> None:
    names = ("a.json", "a.md", "a.sarif", "a.xml", "a.html", "gitlab=b.json")

    report(advisor_here, "github", *(word for name in names for word in ("-o", name)))

    assert json.loads((failing / "a.json").read_text())["schema_version"] == 3
    assert json.loads((failing / "b.json").read_text())[0]["check_name"] == "ADV006"
    assert (failing / "a.md").read_text().startswith(MARKER)
    assert (failing / "a.html").read_text().startswith("<!doctype html>")


def test_sarif_is_valid_and_lists_ignored_findings_as_suppressed(failing: Path, advisor_here: Advisor) -> None:
    document = json.loads(report(advisor_here, "sarif"))

    SarifSchema.model_validate(document)
    run = document["runs"][0]
    by_code = {result["ruleId"]: result for result in run["results"]}
    assert by_code["ADV006"]["locations"][0]["physicalLocation"]["region"] == {"startLine": 2}
    assert run["tool"]["driver"]["rules"][by_code["ADV006"]["ruleIndex"]]["id"] == "ADV006"
    assert by_code["ADV013"]["suppressions"][0]["kind"] == "external"
    assert "suppressions" not in by_code["ADV006"]


def test_the_sarif_schema_rejects_other_documents() -> None:
    with pytest.raises(ValidationError):
        SarifSchema.model_validate({"version": "2.1.0", "runs": [{"tool": {}, "surplus": 1}]})


def test_junit_counts_match_its_test_cases(failing: Path, advisor_here: Advisor) -> None:
    root = ElementTree.fromstring(report(advisor_here, "junit"))

    assert root.tag == "testsuites"
    assert int(root.get("tests", "")) == len(root.findall(".//testcase"))
    assert int(root.get("failures", "")) == len(root.findall(".//failure"))
    assert {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None} == {
        "ADV006 abi-break"
    }


def test_github_annotations_are_escaped_and_name_the_line(failing: Path, advisor_here: Advisor) -> None:
    text = report(advisor_here, "github")

    command = next(line for line in text.splitlines() if "ADV006" in line)
    assert command.startswith("::error file=requirements.txt,line=2,title=ADV006 abi-break::")
    assert all(line.startswith(("::", "advisor: ")) for line in text.splitlines())


def test_gitlab_issues_have_the_required_fields(failing: Path, advisor_here: Advisor) -> None:
    issues = json.loads(report(advisor_here, "gitlab"))

    assert all({"description", "check_name", "fingerprint", "severity", "location"} == set(issue) for issue in issues)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    assert issues[0]["location"] == {"path": "requirements.txt", "lines": {"begin": 2}}
    assert {issue["severity"] for issue in issues} <= {"info", "minor", "major", "critical", "blocker"}


def test_fingerprints_do_not_depend_on_line_numbers(failing: Path, advisor_here: Advisor) -> None:
    def fingerprints() -> dict[str, str]:
        findings = json.loads(report(advisor_here, "json"))["findings"]
        return {finding["code"]: finding["fingerprint"] for finding in findings}

    before = fingerprints()
    (failing / "requirements.txt").write_text("# a comment\n\n# another\n" + (failing / "requirements.txt").read_text())

    assert fingerprints() == before


def test_markup_characters_are_escaped_in_markdown_and_html(failing: Path, advisor_here: Advisor) -> None:
    markdown, page = report(advisor_here, "markdown"), report(advisor_here, "html")

    row = next(line for line in markdown.splitlines() if line.startswith("| ADV013"))
    assert row.count(" | ") == 3
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_html_pages_load_no_other_resource(failing: Path, advisor_here: Advisor) -> None:
    (failing / "loose.txt").write_text("tensorflow-cpu\nnumpy\n")
    advice = advisor_here("advise", "--format", "html", "--dry-run", "-r", "loose.txt")

    assert advice.returncode == 0, advice.stderr
    for page in (report(advisor_here, "html"), advice.stdout):
        assert not any(word in page for word in ("<link", " src=", "@import", "url("))
        assert all("https://" not in line or "<a href=" in line for line in page.splitlines())


@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium at /usr/bin/chromium")
@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without"])
def test_html_pages_are_readable_in_a_browser(failing: Path, advisor_here: Advisor, javascript: bool) -> None:
    from playwright.sync_api import sync_playwright

    (failing / "loose.txt").write_text("tensorflow-cpu\nnumpy\n")
    advice = advisor_here("advise", "--format", "html", "--dry-run", "-r", "loose.txt").stdout
    (failing / "before.txt").write_text("tensorflow-cpu==2.20.0\nnumpy==2.0.2\n")
    check = report(advisor_here, "html", "--base", "before.txt")
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        for width in (1280, 390):
            context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=javascript)
            page = context.new_page()
            page.on("request", lambda request: problems.append(request.url))
            page.on("console", lambda message: problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.set_content(advice)
            page.get_by_role("heading", name="Sizes").click()
            treemap = page.locator(".treemap.wide" if width > 1000 else ".treemap.narrow")
            tiles = [tile.bounding_box() for tile in treemap.locator(".tile").all()]
            assert treemap.is_visible()
            assert treemap.get_by_text("tensorflow-cpu", exact=True).is_visible()
            assert all(tile is not None and tile["x"] + tile["width"] <= width for tile in tiles)
            assert page.get_by_placeholder("filter packages").count() == (1 if javascript else 0)
            page.set_content(check)
            assert page.get_by_text("abi-break").first.is_visible()
            box = page.locator("main").bounding_box()
            assert box is not None
            assert box["width"] <= width
            page.get_by_role("heading", name="The lock").first.click()
            if javascript:
                page.get_by_placeholder("filter packages").first.fill("numpy")
                assert page.locator("table[data-filter] tbody tr:visible").count() == 1
                assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert problems == []


def test_an_unmeasured_baseline_has_no_predicted_speed(
    failing: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    for version in ("2.7.0", "2.8.0"):
        index.add("torch", version, code="")
    (failing / "torch.txt").write_text("torch\n")

    page = advisor_here("advise", "--format", "html", "--dry-run", "--hardware", "h100", "-r", "torch.txt").stdout

    assert "<b>same speed</b><span>these are the newest versions" in page
    assert "1.000x" not in page


def test_the_reports_do_not_import_the_solver() -> None:
    # The gate runs on every push and must start fast; importing the solver is slow.
    program = (
        "import sys, advisor.api.gate.gate_session, advisor.report.check.formats.text;"
        "print([m for m in ('ortools', 'scipy', 'numpy', 'sqlalchemy', 'jinja2') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
