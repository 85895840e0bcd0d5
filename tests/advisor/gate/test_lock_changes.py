"""A change of a lock that adds files or sources fails against its base even if no version changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex

EVIL = "e" * 64
Document = dict[str, Any]


def commit(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")


def errors(document: Document) -> set[tuple[str, str, str]]:
    return {(f["code"], f["package"] or "", f["subject"] or "") for f in document["findings"] if f["level"] == "error"}


def test_an_added_foreign_wheel_fails_without_a_version_change(project: Path, check: Run) -> None:
    commit(project)
    evil = '[[packages.wheels]]\nname = "b-1.1-cp312-cp312-linux_x86_64.whl"\n'
    evil += f'url = "https://packages.example.org/b.whl"\nhashes = {{ sha256 = "{EVIL}" }}\n'
    with (project / "pylock.toml").open("a") as file:
        file.write(f"\n{evil}")

    assert errors(check("--base", "HEAD")) == {("ADV024", "b", "b-1.1-cp312-cp312-linux_x86_64.whl")}


def test_measured_and_required_packages_come_before_folded_dependencies(
    project: Path, check: Run, advisor_here: Advisor, index: PackageIndex
) -> None:
    libraries = [f"nvidia-{name}" for name in ("cublas", "cudnn", "cufft", "curand", "cusolver", "nccl")]
    for version, requires in (("2.6.0", ()), ("2.7.0", libraries)):
        index.add("torch", version, requires, code="")
    for library in libraries:
        index.add(library, "1.0", code="")
    change(project / "pyproject.toml", '  "a",\n', '  "a", "torch",\n')
    (project / "old.txt").write_text("torch==2.6.0\na==1.0\n")
    assert advisor_here("advise", "--refresh", "-c", "old.txt", "--objective", "latest").returncode == 0
    commit(project)
    assert advisor_here("advise", "--refresh", "--objective", "latest").returncode == 0

    document = check("--base", "HEAD")
    text = advisor_here("check", "--base", "HEAD").stdout

    listed = [c["package"] for c in document["targets"][0]["base"]["changes"]]
    assert listed == ["torch", "a", *libraries]
    assert "torch 2.6.0 -> 2.7.0 a 1.0 -> 2.0 6 CUDA packages more" in " ".join(text.split())
    assert "nvidia-cublas" not in text


def test_a_changed_host_fails_even_with_the_right_hash(project: Path, check: Run, index: PackageIndex) -> None:
    commit(project)
    own = index.url.removesuffix("/simple/") + "/files/b-1.1"
    line = change(project / "pylock.toml", own, "https://packages.example.org/files/b-1.1")

    report = check("--base", "HEAD")

    assert errors(report) == {("ADV025", "b", "https://packages.example.org")}
    assert [f["line"] < line for f in report["findings"] if f["code"] == "ADV025"] == [True]


def test_a_finding_of_the_base_does_not_cover_another_hash(project: Path, check: Run, index: PackageIndex) -> None:
    text = (project / "pylock.toml").read_text()
    right = next(e["hashes"]["sha256"] for e in index.entries["b"] if "1.1" in e["filename"])
    (project / "pylock.toml").write_text(text.replace(right, "d" * 64))
    commit(project)
    unchanged = check("--base", "HEAD")
    (project / "pylock.toml").write_text(text.replace(right, EVIL))

    assert errors(unchanged) == set()
    assert errors(check("--base", "HEAD")) == {("ADV014", "b", "b-1.1-py3-none-any.whl")}


def test_a_directory_that_replaces_an_index_package_fails(project: Path, check: Run) -> None:
    commit(project)
    text = (project / "pylock.toml").read_text()
    head = text[: text.index('[[packages]]\nname = "b"')]
    (project / "pylock.toml").write_text(head + '[[packages]]\nname = "b"\n[packages.directory]\npath = "vendored/b"\n')

    assert ("ADV026", "b", "vendored/b") in errors(check("--base", "HEAD"))


def test_added_find_links_in_pinned_requirements_fail_at_their_line(project: Path, check: Run) -> None:
    (project / "pins.txt").write_text("a==2.0\nb==1.1\n")
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pins.txt")
    git(project, "commit", "-qm", "base")
    (project / "pins.txt").write_text("a==2.0\n--find-links https://packages.example.org/links\nb==1.1\n")

    report = check("--base", "HEAD", "--current", "pins.txt")

    assert errors(report) == {("ADV015", "", "https://packages.example.org/links")}
    assert [f["line"] for f in report["findings"] if f["code"] == "ADV015"] == [2]
