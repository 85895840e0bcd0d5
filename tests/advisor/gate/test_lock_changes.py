"""What a change slips into a lock fails against its base, also where no version changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.advisor.gate.steps import Run, change, git
from tests.package_index import PackageIndex

EVIL = "e" * 64
Document = dict[str, Any]


def committed(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")


def errors(document: Document) -> set[tuple[str, str, str]]:
    return {(f["code"], f["package"] or "", f["subject"] or "") for f in document["findings"] if f["level"] == "error"}


def test_a_foreign_wheel_that_a_change_adds_fails_though_no_version_changed(project: Path, check: Run) -> None:
    committed(project)
    evil = '[[packages.wheels]]\nname = "b-1.1-cp312-cp312-linux_x86_64.whl"\n'
    evil += f'url = "https://packages.example.org/b.whl"\nhashes = {{ sha256 = "{EVIL}" }}\n'
    with (project / "pylock.toml").open("a") as file:
        file.write(f"\n{evil}")

    assert errors(check("--base", "HEAD")) == {("ADV024", "b", "b-1.1-cp312-cp312-linux_x86_64.whl")}


def test_a_host_that_a_change_exchanges_fails_though_the_hash_is_right(
    project: Path, check: Run, index: PackageIndex
) -> None:
    committed(project)
    own = index.url.removesuffix("/simple/") + "/files/b-1.1"
    line = change(project / "pylock.toml", own, "https://packages.example.org/files/b-1.1")

    found = check("--base", "HEAD")

    assert errors(found) == {("ADV025", "b", "https://packages.example.org")}
    assert [f["line"] < line for f in found["findings"] if f["code"] == "ADV025"] == [True]


def test_a_finding_of_the_base_does_not_cover_another_file(project: Path, check: Run, index: PackageIndex) -> None:
    text = (project / "pylock.toml").read_text()
    right = next(e["hashes"]["sha256"] for e in index.entries["b"] if "1.1" in e["filename"])
    (project / "pylock.toml").write_text(text.replace(right, "d" * 64))
    committed(project)
    unchanged = check("--base", "HEAD")
    (project / "pylock.toml").write_text(text.replace(right, EVIL))

    assert errors(unchanged) == set()
    assert errors(check("--base", "HEAD")) == {("ADV014", "b", "b-1.1-py3-none-any.whl")}


def test_a_directory_in_place_of_an_index_package_fails(project: Path, check: Run) -> None:
    committed(project)
    text = (project / "pylock.toml").read_text()
    head = text[: text.index('[[packages]]\nname = "b"')]
    (project / "pylock.toml").write_text(head + '[[packages]]\nname = "b"\n[packages.directory]\npath = "vendored/b"\n')

    assert ("ADV026", "b", "vendored/b") in errors(check("--base", "HEAD"))


def test_find_links_that_a_change_adds_to_pinned_requirements_fail_at_their_line(project: Path, check: Run) -> None:
    (project / "pins.txt").write_text("a==2.0\nb==1.1\n")
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pins.txt")
    git(project, "commit", "-qm", "base")
    (project / "pins.txt").write_text("a==2.0\n--find-links https://packages.example.org/links\nb==1.1\n")

    found = check("--base", "HEAD", "--current", "pins.txt")

    assert errors(found) == {("ADV015", "", "https://packages.example.org/links")}
    assert [f["line"] for f in found["findings"] if f["code"] == "ADV015"] == [2]
