"""A change is checked with the policy of its base; its own changes of the policy are reported and have no effect."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def repository(project: Path, index: PackageIndex) -> Path:
    """The project with one commit; version 1.2 of `b` is yanked."""
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    index.add("b", "1.2", code="", yanked=True)
    return project


def lock_yanked(project: Path) -> None:
    """Lock the yanked version of `b` in pinned requirements."""
    (project / "pylock.toml").unlink()
    (project / "requirements.txt").write_text("a==2.0\nb==1.2\n")


def findings_of(document: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["code"] == code]


def add(project: Path, text: str) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write(text)


EXCUSE = """[tool.advisor.gate]
ignore = [
  { code = "ADV010", reason = "trust me" },
  { code = "ADV029", reason = "trust me" },
]
"""


def test_a_change_cannot_add_an_exception_for_itself(repository: Path, check: Run) -> None:
    lock_yanked(repository)
    add(repository, EXCUSE)

    own = check("--base", "HEAD")
    of_the_base = check("--base", "HEAD", "--policy-from-base")

    assert (own["exit_code"], findings_of(own, "ADV010")) == (0, [])
    assert of_the_base["exit_code"] == 1
    assert [f["package"] for f in findings_of(of_the_base, "ADV010")] == ["b"]
    [finding] = findings_of(of_the_base, "ADV028")
    line = (repository / "pyproject.toml").read_text().splitlines().index("ignore = [") + 1
    assert (finding["path"], finding["line"], finding["subject"], finding["level"]) == (
        "pyproject.toml",
        line,
        "gate.ignore",
        "warning",
    )
    assert "`HEAD`" in finding["message"]


def test_an_exception_of_the_base_applies(repository: Path, check: Run) -> None:
    add(repository, EXCUSE)
    git(repository, "commit", "-qam", "exception")
    lock_yanked(repository)

    document = check("--base", "HEAD", "--policy-from-base")

    assert document["exit_code"] == 0
    assert {f["code"] for f in document["ignored"]} == {"ADV010", "ADV029"}
    assert findings_of(document, "ADV028") == []


@pytest.mark.parametrize(
    ("table", "subject"),
    [
        ('[tool.advisor.gate]\nfail = ["ADV003"]\n', "gate.fail"),
        ('[tool.advisor.targets.easy]\nhardware = "cpu-zen3"\nlock = "easy.toml"\n', "targets.easy"),
        ('[tool.advisor.package-index]\nb = "https://packages.example.org/simple"\n', "package-index"),
    ],
)
def test_no_other_setting_of_the_change_weakens_the_gate(
    repository: Path, check: Run, table: str, subject: str
) -> None:
    shutil.copy(repository / "pylock.toml", repository / "easy.toml")
    lock_yanked(repository)
    add(repository, table)

    document = check("--base", "HEAD", "--policy-from-base")

    assert document["exit_code"] == 1
    assert [f["subject"] for f in findings_of(document, "ADV028")] == [subject]
    assert [t["lock"] for t in document["targets"]] == ["requirements.txt"]


def test_a_hardware_profile_of_the_change_is_not_used(repository: Path, check: Run) -> None:
    old = 'cpu:\n  architecture: x86_64\n  microarchitecture: zen4\nos: linux\nlibc: glibc\nlibc_version: "2.28"\n'
    (repository / "node.yaml").write_text(old)
    change(repository / "pyproject.toml", '"cpu-zen4"', '"node.yaml"')
    git(repository, "add", "node.yaml")
    git(repository, "commit", "-qam", "node")
    (repository / "node.yaml").write_text(old.replace("x86_64", "aarch64"))

    document = check("--base", "HEAD", "--policy-from-base")

    assert [t["platform"] for t in document["targets"]] == ["manylinux_2_28_x86_64"]
    assert [(f["path"], f["subject"]) for f in findings_of(document, "ADV028")] == [("node.yaml", "node.yaml")]


def test_a_second_lock_does_not_replace_the_checked_one(repository: Path, check: Run) -> None:
    shutil.copy(repository / "pylock.toml", repository / "decoy.toml")
    lock_yanked(repository)
    git(repository, "add", "decoy.toml", "pylock.toml", "requirements.txt")
    git(repository, "commit", "-qm", "pins")
    (repository / "requirements.txt").write_text("a==1.0\nb==1.2\n")
    (repository / "decoy.toml").rename(repository / "pylock.toml")

    document = check("--base", "HEAD", "--policy-from-base")

    assert [t["lock"] for t in document["targets"]] == ["requirements.txt"]
    assert [f["subject"] for f in findings_of(document, "ADV028")] == ["pylock.toml"]


def test_without_a_base_the_policy_is_that_of_the_last_commit(repository: Path, check: Run) -> None:
    lock_yanked(repository)
    add(repository, EXCUSE)

    document = check("--policy-from-base")

    assert document["exit_code"] == 1
    assert {f["package"] for f in findings_of(document, "ADV010")} == {"b"}
    assert document["targets"][0]["base"] is None


def test_a_repository_without_a_commit_has_no_base_policy(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    git(project, "init", "-q")

    result = advisor_here("check", "--policy-from-base")

    assert result.returncode == 0, result.stderr
    assert "no commit yet" in result.stderr


def test_an_unreadable_policy_of_the_base_is_an_error(repository: Path, advisor_here: Advisor) -> None:
    fine = (repository / "pyproject.toml").read_text()
    (repository / "pyproject.toml").write_text("[tool.advisor")
    git(repository, "commit", "-qam", "broken")
    (repository / "pyproject.toml").write_text(fine + EXCUSE)

    result = advisor_here("check", "--base", "HEAD", "--policy-from-base")

    assert result.returncode == 2
    assert "the policy of the base `HEAD` cannot be read" in result.stderr
    assert "--no-policy-from-base" in result.stderr


def test_the_policy_of_a_base_with_unreadable_requirements_is_used(repository: Path, check: Run) -> None:
    line = '  "a",\n'
    change(repository / "pyproject.toml", line, '  "a>>",\n')
    git(repository, "commit", "-qam", "broken")
    change(repository / "pyproject.toml", '  "a>>",\n', line)
    lock_yanked(repository)
    add(repository, EXCUSE)

    document = check("--base", "HEAD", "--policy-from-base")

    assert findings_of(document, "ADV010")
