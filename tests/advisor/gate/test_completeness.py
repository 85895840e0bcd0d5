"""A check against a base reports only the change; input that cannot be read is never a success."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.advisor.gate.steps import Run, change, git, places
from tests.conftest import Advisor
from tests.package_index import PackageIndex


def test_only_the_change_against_the_base_is_checked(project: Path, check: Run, index: PackageIndex) -> None:
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

    report = check("--base", "before.txt")

    assert [c["package"] for c in report["targets"][0]["base"]["changes"]] == ["a"]


def test_a_project_in_a_subdirectory_of_the_repository_has_a_base(
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


def test_requirements_files_are_read_from_the_base(project: Path, check: Run) -> None:
    (project / "wanted.txt").write_text("a==2.0\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    (project / "wanted.txt").write_text("a==1.0\n")

    assert places(check("--base", "HEAD", "-r", "wanted.txt")) == {("ADV001", "wanted.txt", 1)}


def test_a_package_from_a_repository_fails_without_printing_credentials(project: Path, check: Run) -> None:
    (project / "pylock.toml").unlink()
    (project / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "m"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "a" }]\n[[package]]\nname = "a"\nversion = "2.0"\n'
        'source = { git = "https://me:secret@git.example.org/a" }\n'
    )

    report = check()

    assert [(f["code"], f["message"]) for f in report["findings"] if f["package"] == "a"] == [
        ("ADV026", "`a` comes from `https://git.example.org/a`, not from an index: its files cannot be compared")
    ]


def test_an_offline_check_gives_the_same_result_from_the_cache(
    project: Path, check: Run, index: PackageIndex, advisor_here: Advisor
) -> None:
    first = check()
    index.status = 500

    assert check("--offline") == first
    assert advisor_here("check", "--offline", "--cache-dir", "elsewhere").returncode == 4


def test_an_unavailable_index_is_not_a_success(project: Path, index: PackageIndex, advisor_here: Advisor) -> None:
    index.status = 500

    result = advisor_here("check", "--refresh", "--exit-zero", "-o", "sarif=report.sarif")

    assert result.returncode == 4
    assert "not complete" in result.stdout
    assert result.stderr.startswith("error: ")
    document = json.loads((project / "report.sarif").read_text())
    assert document["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_an_unreadable_knowledge_base_is_not_a_success(project: Path, advisor_here: Advisor) -> None:
    (project / "own.sqlite").write_bytes(b"no database" * 1000)

    result = advisor_here("check", "--exit-zero")

    assert result.returncode == 4
    assert "not complete" in result.stdout
    assert result.stderr.startswith("error: the knowledge base")


def test_exit_zero_applies_only_to_findings(project: Path, advisor_here: Advisor) -> None:
    change(project / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert advisor_here("check").returncode == 1
    assert advisor_here("check", "--exit-zero").returncode == 0


def test_unsatisfiable_constraints_fail_even_without_findings(
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
    assert "\nfailed    1 error" in explained.stdout
    assert alone.returncode == 3
    assert "not complete" in alone.stdout
    assert "no version of `a`" in alone.stderr


def test_a_change_cannot_allow_its_own_index(project: Path, check: Run) -> None:
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nindexes = ["https://packages.example.org/simple"]\n')
    lock = (project / "pylock.toml").read_text()
    (project / "pylock.toml").write_text(
        re.sub(r"http://127[^\"]*/simple/", "https://packages.example.org/simple", lock)
    )

    report = check("--base", "HEAD")

    assert {(f["code"], f["package"]) for f in report["findings"] if f["level"] == "error"} == {
        ("ADV015", "a"),
        ("ADV015", "b"),
    }


def test_a_problem_of_an_exception_in_the_base_is_not_reported_again(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "old", expires = 2020-01-01 }]\n')
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")

    assert {f["code"] for f in check()["findings"]} == {"ADV020", "ADV022"}
    assert check("--base", "HEAD")["findings"] == []


def test_a_documented_slow_down_of_the_base_is_not_reported_again(
    project: Path, check: Run, index: PackageIndex
) -> None:
    for version in ("1.14.1", "1.15.2"):
        index.add("scipy", version, code="")
    change(project / "pyproject.toml", '  "a",\n', '  "a",\n  "scipy",\n')
    (project / "slow.txt").write_text("a==2.0\nb==1.1\nscipy==1.15.2\n")
    (project / "fast.txt").write_text("a==2.0\nb==1.1\nscipy==1.11.4\n")

    new = check("--current", "slow.txt", "--base", "fast.txt")
    unchanged = check("--current", "slow.txt", "--base", "slow.txt")

    slow = [(f["level"], f["subject"], f["line"]) for f in new["findings"] if f["code"] == "ADV033"]
    assert slow == [("warning", "slower-scipy-1.12-nnls", 3), ("warning", "slower-scipy-1.15-linprog", 3)]
    assert not [f for f in unchanged["findings"] if f["code"] == "ADV033"]
