"""Attempts to evade the comparison: each entry of a lock is compared with its index, or is a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from advisor.locks.registry import read_lock
from advisor.project.text_file import UnreadableFileError
from tests.advisor.factories import build_problem
from tests.advisor.gate.lock_texts import (
    EVIL,
    WHEEL,
    Compare,
    Document,
    foreign_wheel,
    hashes_of,
    named_lock,
    pipfile_lock,
    pylock,
    uv_lock,
)
from tests.advisor.gate.steps import Run, git


def test_a_package_without_a_version_has_the_version_of_its_files(six: Document, compare: Compare) -> None:
    del six["version"]
    assert compare("pylock.toml", pylock(six)) == set()
    foreign_wheel(six)

    assert compare("pylock.toml", pylock(six)) == {("ADV024", "six-1.16.0-cp312-cp312-linux_x86_64.whl")}


@pytest.mark.parametrize("name", ["evil.whl", "six-1.15.0-py3-none-any.whl"])
def test_a_package_without_a_version_and_with_ambiguous_files_is_refused(
    six: Document, compare: Compare, name: str
) -> None:
    del six["version"]
    six["wheels"].append({"name": name, "url": f"https://example.org/{name}", "hashes": {"sha256": EVIL}})

    with pytest.raises(UnreadableFileError, match="six"):
        compare("pylock.toml", pylock(six))


def test_a_package_of_a_pipfile_lock_without_version_or_source_is_refused(six: Document, compare: Compare) -> None:
    document = json.loads(pipfile_lock(six))
    document["default"]["evil"] = {"hashes": [f"sha256:{EVIL}"], "index": "main"}

    with pytest.raises(UnreadableFileError, match="`evil`.*neither a version"):
        compare("Pipfile.lock", json.dumps(document))


def test_an_unpinned_package_for_other_platforms_in_a_pipfile_lock_is_reported(six: Document, compare: Compare) -> None:
    document = json.loads(pipfile_lock(six))
    document["default"]["colorama"] = {"version": "*", "markers": "sys_platform == 'win32'"}

    assert compare("Pipfile.lock", json.dumps(document)) == {("ADV023", "open")}


@pytest.mark.parametrize(
    "source",
    [
        {"registry": "https://example.org/simple", "editable": "."},
        {"registry": "https://example.org/simple", "virtual": "."},
        {"directory": "."},
    ],
)
def test_an_ambiguous_source_in_a_uv_lock_is_refused(six: Document, compare: Compare, source: dict[str, str]) -> None:
    with pytest.raises(UnreadableFileError, match="six"):
        compare("uv.lock", uv_lock(six, **source))


def test_several_sources_of_one_package_are_refused(six: Document, compare: Compare) -> None:
    with pytest.raises(UnreadableFileError, match="six"):
        compare("pdm.lock", named_lock(six, git="vendored", path="./six"))
    with pytest.raises(UnreadableFileError, match="six"):
        compare("Pipfile.lock", pipfile_lock(six, git="vendored", path="./six"))


def poetry_1(six: Document, table: str, files: list[Any]) -> str:
    package = {"name": "six", "version": six["version"], "category": "main", "optional": False}
    return tomli_w.dumps({"package": [package], "metadata": {"lock-version": "1.1", table: {"six": files}}})


def test_files_in_old_poetry_locks_are_compared(six: Document, compare: Compare) -> None:
    files = [{"file": e["name"], "hash": f"sha256:{e['hashes']['sha256']}"} for e in [*six["wheels"], six["sdist"]]]
    plain = [h.removeprefix("sha256:") for h in hashes_of(six)]

    assert compare("poetry.lock", poetry_1(six, "files", files)) == set()
    assert compare("poetry.lock", poetry_1(six, "hashes", plain)) == set()
    files[0]["hash"] = f"sha256:{EVIL}"
    assert compare("poetry.lock", poetry_1(six, "files", files)) == {("ADV014", WHEEL)}
    assert compare("poetry.lock", poetry_1(six, "hashes", [*plain, EVIL])) == {("ADV024", f"sha256:{EVIL}")}


def test_hashes_in_old_poetry_locks_are_read(six: Document, tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text(poetry_1(six, "hashes", [EVIL]))

    [locked] = read_lock(tmp_path / "poetry.lock", build_problem("six").target).packages.values()
    assert locked.hashes == {EVIL}


@pytest.mark.parametrize("address", ["./six.whl", "six.tar.bz2", "six.tgz", "six.tar.lzma", "linked/six", "file"])
def test_an_archive_or_a_link_is_not_a_directory_of_the_project(
    six: Document, compare: Compare, tmp_path: Path, address: str
) -> None:
    (tmp_path / "linked").symlink_to("/usr")
    (tmp_path / "file").touch()

    assert compare("Pipfile.lock", pipfile_lock(six, path=address)) == {("ADV026", address)}
    assert compare("pdm.lock", named_lock(six, path=address)) == {("ADV026", address)}


def archive(sha256: str, **more: Any) -> str:
    wheel = {"url": "https://example.org/b-1.1.zip", "hashes": {"sha256": sha256}, **more}
    return pylock({"name": "b", "version": "1.1", "archive": wheel})


@pytest.mark.parametrize("change", [archive(EVIL), archive("0" * 64, size=3), archive("0" * 64, subdirectory="x")])
def test_other_content_at_the_same_address_is_a_change(project: Path, check: Run, change: str) -> None:
    (project / "pylock.toml").write_text(archive("0" * 64))
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")

    before = check("--base", "HEAD")
    (project / "pylock.toml").write_text(change)
    after = check("--base", "HEAD")

    assert [f["package"] for f in before["findings"] if f["code"] == "ADV026"] == []
    assert [f["package"] for f in after["findings"] if f["code"] == "ADV026"] == ["b"]


def test_only_default_groups_and_extras_of_a_pylock_are_read(six: Document, tmp_path: Path) -> None:
    def version(marker: str, **more: Any) -> list[str]:
        document = {"lock-version": "1.0", "created-by": "pdm", **more, "packages": [{**six, "marker": marker}]}
        (tmp_path / "pylock.toml").write_text(tomli_w.dumps(document))
        return list(read_lock(tmp_path / "pylock.toml", build_problem("six").target).packages)

    assert version("'dev' in dependency_groups") == []
    assert version("'dev' in dependency_groups", **{"default-groups": ["dev"], "dependency-groups": ["dev"]}) == ["six"]
    assert version("'x' in extras or python_version >= '3'") == ["six"]
