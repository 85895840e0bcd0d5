"""An unreadable lock is one finding with line and package in every report format."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifSchema

from advisor.locks.registry import read_lock
from advisor.project.text_file import UnreadableFileError
from tests.advisor.factories import build_problem
from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex

PYLOCK = 'lock-version = "1.0"\ncreated-by = "x"\n'
MERGE = "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> x\n"


@pytest.mark.parametrize(
    ("name", "text", "line", "package", "message"),
    [
        (
            "pylock.toml",
            PYLOCK + '[[packages]]\nname = "a"\nversion = "1"\ndirectory = { path = "." }\n'
            '[[packages]]\nname = "six"\nversion = "1.16.0"\n[packages.sdist]\nname = "six-1.16.0.tar.gz"\n'
            'url = "https://a/six-1.16.0.tar.gz"\n',
            7,
            "six",
            "`{path}` is malformed: package `six` (line 7): Missing required value in `sdist.hashes`",
        ),
        (
            "pylock.toml",
            PYLOCK + '[[packages]]\nversion = "1"\n',
            3,
            "",
            "`{path}` is malformed: the package on line 3: Missing required value in `name`",
        ),
        (
            "pylock.toml",
            PYLOCK + 2 * '[[packages]]\nname = "six"\nversion = "1.16.0"\ndirectory = { path = "six" }\n',
            7,
            "six",
            "`{path}` is malformed: package `six` (line 7): two entries of it apply to the target",
        ),
        (
            "uv.lock",
            'version = 1\n[[package]]\nname = "a"\nversion = "1"\n'
            '[[package]]\nname = "six"\nsource = { registry = "x" }\n',
            5,
            "six",
            "`{path}` is malformed: package `six` (line 5): field 'version' is absent",
        ),
        (
            "poetry.lock",
            '[[package]]\nname = "a"\nversion = "1"\n[[package]]\nname = "six"\nversion = "one"\n',
            5,
            "six",
            "`{path}` is malformed: package `six` (line 5): Invalid version: 'one'",
        ),
        (
            "pdm.lock",
            '[[package]]\nname = "six"\nversion = "1"\nmarker = "nonsense"\n',
            1,
            "six",
            None,
        ),
        (
            "Pipfile.lock",
            '{\n"default": {\n"a": {\n"version": "==1"\n},\n"six": {\n"version": "==one"\n}\n}\n}\n',
            6,
            "six",
            "`{path}` is malformed: package `six` (line 6): Invalid version: 'one'",
        ),
        (
            "Pipfile.lock",
            '{"_meta": {"requires": {"python_version": "rubbish"}}, "default": {}}',
            1,
            "",
            "`{path}` is malformed: `rubbish` does not state versions of Python",
        ),
        (
            "Pipfile.lock",
            '{"_meta": [], "default": {}}',
            1,
            "",
            "`{path}` is malformed: a field has a value of another type than this format has",
        ),
        (
            "poetry.lock",
            'package = []\n[metadata]\npython-versions = "^rubbish"\n',
            1,
            "",
            "`{path}` is malformed: `^rubbish` does not state versions of Python",
        ),
        (
            "pylock.toml",
            PYLOCK + '[[packages]]\nname = "six"\nversion = \n',
            5,
            "six",
            "`{path}` cannot be read: Invalid value (at line 5, column 11), near package `six`",
        ),
        (
            "poetry.lock",
            '[[package]]\nname = "six"\n' + MERGE.format('version = "1"', 'version = "2"'),
            3,
            "six",
            "`{path}`, line 3, contains conflict markers of a merge",
        ),
        (
            "requirements.txt",
            "a==1.0\nsix>=1.16.0\n",
            2,
            "six",
            "requirements.txt:2: `six>=1.16.0` is not an exact version, so this file is not a lock",
        ),
        (
            "requirements.txt",
            "a==1.0\nsix @ git+https://packages.example.org/six@main\n",
            2,
            "six",
            None,
        ),
    ],
)
def test_the_error_of_an_unreadable_lock_names_line_and_package(
    tmp_path: Path, name: str, text: str, line: int, package: str, message: str | None
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(UnreadableFileError) as raised:
        read_lock(path, build_problem("a").target)

    assert (raised.value.path, raised.value.line, raised.value.package) == (path, line, package)
    if message is not None:
        assert raised.value.message == message.format(path=path)


@pytest.fixture
def damaged(project: Path) -> int:
    """Remove the files of a package from the lock; return its line."""
    text = (project / "pylock.toml").read_text()
    cut = text.index('[[packages]]\nname = "b"')
    (project / "pylock.toml").write_text(text[:cut] + '[[packages]]\nname = "b"\nversion = "1.1"\n')
    return text[:cut].count("\n") + 1


def test_one_line_without_an_exact_version_in_pinned_requirements_is_named(
    no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\na==1.0\n\nb>=1.0  # newest\n")

    result = advisor_here("check", "--format", "json", "--hardware", "cpu-zen4", "--python", "3.12")

    (finding,) = json.loads(result.stdout)["findings"]
    assert result.returncode == 2
    assert (finding["code"], finding["path"], finding["line"], finding["package"]) == (
        "ADV027",
        "requirements.txt",
        4,
        "b",
    )
    assert "`b>=1.0` is not an exact version, so this file is not a lock" in finding["message"]
    assert "has no lock to check" not in result.stderr


def test_every_report_format_contains_the_error_with_its_line(
    project: Path, damaged: int, advisor_here: Advisor
) -> None:
    files = [word for name in ("a.sarif", "a.xml", "a.json", "a.md", "a.html") for word in ("-o", name)]

    completed = advisor_here("check", "--format", "github", "--exit-zero", *files, "-o", "gitlab=quality.json")

    assert completed.returncode == 2
    assert completed.stderr.startswith("error: `pylock.toml` is malformed: package `b` (line ")
    annotations = [line for line in completed.stdout.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert annotations[0].startswith(f"::error file=pylock.toml,line={damaged},title=ADV027 unreadable-file::")
    assert "packages[" not in completed.stdout
    sarif = json.loads((project / "a.sarif").read_text())
    SarifSchema.model_validate(sarif)
    assert sarif["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert sarif["runs"][0]["invocations"][0]["exitCode"] == 2
    result = sarif["runs"][0]["results"][0]
    assert (result["ruleId"], len(sarif["runs"][0]["results"])) == ("ADV027", 1)
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": damaged}
    junit = ElementTree.parse(project / "a.xml").getroot()
    assert (junit.get("tests"), junit.get("failures"), junit.get("errors")) == ("1", "0", "1")
    assert [case.get("name") for case in junit.iter("testcase")] == ["ADV027 unreadable-file"]
    document = json.loads((project / "a.json").read_text())
    assert (document["exit_code"], [f["package"] for f in document["findings"]]) == (2, ["b"])
    assert json.loads((project / "quality.json").read_text())[0]["location"]["lines"] == {"begin": damaged}
    assert "not complete" in (project / "a.md").read_text()
    assert "ADV027" in (project / "a.html").read_text()


def test_no_exception_covers_an_unreadable_lock(project: Path, damaged: int, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nfail = ["ADV001"]\nignore = [{ code = "ADV027", reason = "x" }]\n')

    report = check()

    assert report["exit_code"] == 2
    assert [(f["code"], f["level"]) for f in report["findings"]] == [("ADV027", "error")]


def test_unreadable_pinned_requirements_are_reported_at_their_line(
    no_user_configuration: None, index: PackageIndex, tmp_path: Path, check: Run
) -> None:
    (tmp_path / "requirements.txt").write_text("a==1.0\n-e cvs+https://packages.example.org/six\n")

    report = check("--index-url", index.url, "--hardware", "cpu-zen4")

    assert [(f["code"], f["path"], f["line"]) for f in report["findings"]] == [("ADV027", "requirements.txt", 2)]


def test_a_change_that_repairs_an_unreadable_lock_can_pass(project: Path, check: Run) -> None:
    honest = (project / "pylock.toml").read_text()
    change(project / "pylock.toml", 'lock-version = "1.0"', 'lock-version = "1.0')
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    (project / "pylock.toml").write_text(honest)

    assert check("--base", "HEAD")["exit_code"] == 0
