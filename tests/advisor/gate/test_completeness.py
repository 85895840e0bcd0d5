"""Against a base only the change counts; what cannot be read never passes for success."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.advisor.gate.steps import Run, change, git, places
from tests.conftest import Advisor
from tests.package_index import PackageIndex


def test_against_a_base_only_the_change_is_judged(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"], ("a", "1.0"): ["PYSEC-2026-8"]}
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")

    unchanged = check("--base", "HEAD")
    (project / "freeze.txt").write_text("a==1.0\nb==1.1\n")
    changed = check("--base", "HEAD", "--current", "freeze.txt")

    assert unchanged["findings"] == []
    assert {f["subject"] for f in changed["findings"] if f["code"] == "ADV009"} == {"PYSEC-2026-8"}
    assert changed["targets"][0]["base"]["changes"] == [
        {"package": "a", "kind": "downgraded", "before": "2.0", "after": "1.0"}
    ]


def test_a_base_can_be_a_lock(project: Path, check: Run) -> None:
    (project / "before.txt").write_text("a==1.0\nb==1.1\n")

    found = check("--base", "before.txt")

    assert [c["package"] for c in found["targets"][0]["base"]["changes"]] == ["a"]


def test_a_base_in_a_directory_below_the_repositorys_own_is_found(
    project: Path, check: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "service"
    folder.mkdir()
    for name in ("pyproject.toml", "pylock.toml"):
        (project / name).rename(folder / name)
    git(project, "init", "-q")
    git(project, "add", "service")
    git(project, "commit", "-qm", "base")
    line = change(folder / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert places(check("service", "--base", "HEAD")) == {("ADV001", "service/pyproject.toml", line)}
    monkeypatch.chdir(folder)
    assert places(check("--base", "HEAD")) == {("ADV001", "pyproject.toml", line)}


def test_a_base_has_the_requirements_files_that_are_named(project: Path, check: Run) -> None:
    (project / "wanted.txt").write_text("a==2.0\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    (project / "wanted.txt").write_text("a==1.0\n")

    assert places(check("--base", "HEAD", "-r", "wanted.txt")) == {("ADV001", "wanted.txt", 1)}


def test_what_comes_from_no_index_fails_without_its_credentials(project: Path, check: Run) -> None:
    (project / "pylock.toml").unlink()
    (project / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "m"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "a" }]\n[[package]]\nname = "a"\nversion = "2.0"\n'
        'source = { git = "https://me:secret@git.example.org/a" }\n'
    )

    found = check()

    assert [(f["code"], f["message"]) for f in found["findings"] if f["package"] == "a"] == [
        ("ADV026", "`a` comes from `https://git.example.org/a`, not from an index: its files cannot be compared")
    ]


def test_offline_it_answers_from_the_cache_alone_and_the_same(
    project: Path, check: Run, index: PackageIndex, advisor_here: Advisor
) -> None:
    first = check()
    index.status = 500

    assert check("--offline") == first
    assert advisor_here("check", "--offline", "--cache-dir", "elsewhere").returncode == 4


def test_an_index_that_fails_never_passes_for_success(
    project: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    index.status = 500

    result = advisor_here("check", "--refresh", "--exit-zero", "-o", "sarif=report.sarif")

    assert result.returncode == 4
    assert "not complete" in result.stdout
    assert result.stderr.startswith("error: ")
    document = json.loads((project / "report.sarif").read_text())
    assert document["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_knowledge_base_that_cannot_be_read_never_passes_for_success(project: Path, advisor_here: Advisor) -> None:
    (project / "own.sqlite").write_bytes(b"no database" * 1000)

    result = advisor_here("check", "--exit-zero")

    assert result.returncode == 4
    assert "not complete" in result.stdout
    assert result.stderr.startswith("error: the knowledge base")


def test_exit_zero_is_for_findings_alone(project: Path, advisor_here: Advisor) -> None:
    change(project / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert advisor_here("check").returncode == 1
    assert advisor_here("check", "--exit-zero").returncode == 0


def test_that_no_stack_satisfies_the_constraints_fails_where_no_finding_does(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    for entry in index.entries["a"]:
        entry["yanked"] = True
    ignore = '[tool.advisor.gate]\nignore = [{ code = "yanked", reason = "known" }]\n'

    explained = advisor_here("check", "--refresh")
    with (project / "pyproject.toml").open("a") as file:
        file.write(ignore)
    alone = advisor_here("check", "--refresh", "--exit-zero")

    assert explained.returncode == 1
    assert "failed: 1 error" in explained.stdout
    assert alone.returncode == 3
    assert "not complete" in alone.stdout
    assert "no version of `a`" in alone.stderr


def test_a_change_cannot_trust_an_index_of_its_own(project: Path, check: Run) -> None:
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nindexes = ["https://packages.example.org/simple"]\n')
    lock = (project / "pylock.toml").read_text()
    (project / "pylock.toml").write_text(
        re.sub(r"http://127[^\"]*/simple/", "https://packages.example.org/simple", lock)
    )

    found = check("--base", "HEAD")

    assert {(f["code"], f["package"]) for f in found["findings"] if f["level"] == "error"} == {
        ("ADV015", "a"),
        ("ADV015", "b"),
    }


def test_an_exception_that_the_base_has_is_no_news(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "old", expires = 2020-01-01 }]\n')
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")

    assert {f["code"] for f in check()["findings"]} == {"ADV020", "ADV022"}
    assert check("--base", "HEAD")["findings"] == []
