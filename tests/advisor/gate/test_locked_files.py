"""Every file of a lock, in each format, is compared with its index."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from tests.advisor.factories import build_client
from tests.advisor.gate.lock_texts import (
    EVIL,
    SDIST,
    WHEEL,
    WINDOWS,
    Compare,
    Document,
    foreign_wheel,
    named_lock,
    pipfile_lock,
    pylock,
    requirements,
    uv_lock,
)
from tests.package_index import PackageIndex


def test_correct_locks_of_every_format_have_no_findings(six: Document, compare: Compare) -> None:
    assert compare("pylock.toml", pylock(six)) == set()
    assert compare("uv.lock", uv_lock(six)) == set()
    assert compare("poetry.lock", named_lock(six)) == set()
    assert compare("pdm.lock", named_lock(six)) == set()
    assert compare("Pipfile.lock", pipfile_lock(six)) == set()
    assert compare("requirements.txt", requirements(six)) == set()


def test_a_lock_without_hashes_or_addresses_is_accepted(six: Document, compare: Compare) -> None:
    assert compare("requirements.txt", "six==1.16.0\n") == set()


def change_size(six: Document) -> None:
    six["wheels"][0]["size"] = 1


def change_hash(six: Document) -> None:
    six["wheels"][1]["hashes"]["sha256"] = EVIL


def add_hash(six: Document) -> None:
    six["sdist"]["hashes"]["sha512"] = "e" * 128


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (foreign_wheel, ("ADV024", "six-1.16.0-cp312-cp312-linux_x86_64.whl")),
        (change_size, ("ADV014", WHEEL)),
        (change_hash, ("ADV014", WINDOWS)),
        (add_hash, ("ADV014", SDIST)),
    ],
)
def test_a_file_that_the_index_does_not_list_is_reported(
    six: Document, compare: Compare, attack: Callable[[Document], None], expected: tuple[str, str]
) -> None:
    attack(six)

    assert compare("pylock.toml", pylock(six)) == {expected}


def test_an_entry_for_another_platform_is_compared(six: Document, compare: Compare) -> None:
    other = {**six, "marker": "sys_platform == 'win32'", "wheels": [dict(w) for w in six["wheels"]]}
    foreign_wheel(other)

    findings = compare("pylock.toml", pylock({**six, "marker": "sys_platform != 'win32'"}, other))

    assert findings == {("ADV024", "six-1.16.0-cp312-cp312-linux_x86_64.whl")}


def test_files_of_a_lock_that_come_from_no_index_are_reported(six: Document, compare: Compare) -> None:
    vcs = {"name": "six", "vcs": {"type": "git", "url": "https://me:s@git.example.org/six", "commit-id": "abc"}}
    archive = {"name": "six", "archive": {"url": "https://example.org/six.zip", "hashes": {"sha256": EVIL}}}
    outside = {"name": "six", "directory": {"path": "../six"}}
    inside = {"name": "six", "directory": {"path": "vendored/six"}}

    assert compare("pylock.toml", pylock(vcs)) == {("ADV026", "https://git.example.org/six@abc")}
    assert compare("pylock.toml", pylock(archive)) == {("ADV026", "https://example.org/six.zip")}
    assert compare("pylock.toml", pylock(outside)) == {("ADV026", "../six")}
    assert compare("pylock.toml", pylock(inside)) == set()
    assert compare("uv.lock", uv_lock(six, git="https://git.example.org/six#abc")) == {
        ("ADV026", "https://git.example.org/six#abc")
    }
    assert compare("uv.lock", uv_lock(six, url="https://example.org/six.zip")) == {
        ("ADV026", "https://example.org/six.zip")
    }
    git_source = {"type": "git", "url": "https://git.example.org/six", "resolved_reference": "abc"}
    assert compare("poetry.lock", named_lock(six, source=git_source)) == {("ADV026", "https://git.example.org/six@abc")}
    assert compare("pdm.lock", named_lock(six, url="https://example.org/six.zip")) == {
        ("ADV026", "https://example.org/six.zip")
    }
    assert compare("Pipfile.lock", pipfile_lock(six, git="https://git.example.org/six", ref="abc")) == {
        ("ADV026", "https://git.example.org/six@abc")
    }


def test_the_name_of_a_file_in_a_uv_lock_comes_from_its_address(six: Document, compare: Compare) -> None:
    def lock(name: str, sha256: str) -> str:
        wheel = {**six["wheels"][0], "url": six["wheels"][0]["url"].replace(WHEEL, name), "hashes": {"sha256": sha256}}
        return uv_lock({**six, "wheels": [wheel]})

    own = six["wheels"][0]["hashes"]["sha256"]
    assert compare("uv.lock", lock("six2-1.16.0-py3-none-any.whl", own)) == {("ADV024", "six2-1.16.0-py3-none-any.whl")}
    assert compare("uv.lock", lock("six%2Fsix-1.16.0-py3-none-any.whl", own)) == {
        ("ADV024", "six/six-1.16.0-py3-none-any.whl")
    }


def test_a_file_of_another_version_is_reported(six: Document, compare: Compare, index: PackageIndex) -> None:
    old = next(entry for entry in index.entries["six"] if "1.15.0" in entry["filename"])
    six["wheels"][0] = {
        "name": old["filename"],
        "url": index.url.removesuffix("/simple/") + old["url"],
        "size": old["size"],
        "hashes": old["hashes"],
    }

    for name, text in (("uv.lock", uv_lock(six)), ("poetry.lock", named_lock(six)), ("pdm.lock", named_lock(six))):
        assert compare(name, text) == {("ADV024", old["filename"])}


@pytest.mark.parametrize("name", ["poetry.lock", "pdm.lock"])
def test_locks_with_file_names_are_compared_by_name_and_hash(six: Document, compare: Compare, name: str) -> None:
    foreign_wheel(six)
    change_hash(six)

    assert compare(name, named_lock(six)) == {
        ("ADV024", "six-1.16.0-cp312-cp312-linux_x86_64.whl"),
        ("ADV014", WINDOWS),
    }


def test_groups_that_the_target_does_not_install_are_compared(six: Document, compare: Compare) -> None:
    foreign_wheel(six)
    expected = {("ADV024", "six-1.16.0-cp312-cp312-linux_x86_64.whl")}

    assert compare("poetry.lock", named_lock(six, groups=["dev"])) == expected
    assert compare("poetry.lock", named_lock(six, optional=True)) == expected
    document = json.loads(pipfile_lock(six, f"sha256:{'f' * 64}"))
    document["develop"] = document.pop("default")
    assert ("ADV024", f"sha256:{'f' * 64}") in compare("Pipfile.lock", json.dumps({**document, "default": {}}))


@pytest.mark.parametrize("hashed", [f"sha256:{EVIL}", "sha512:" + "e" * 128])
def test_a_wrong_hash_among_right_ones_is_reported(six: Document, compare: Compare, hashed: str) -> None:
    assert compare("requirements.txt", requirements(six, hashed)) == {("ADV024", hashed)}
    assert compare("Pipfile.lock", pipfile_lock(six, hashed)) == {("ADV024", hashed)}


def test_the_hash_of_another_versions_file_is_reported(six: Document, compare: Compare, index: PackageIndex) -> None:
    old = next(entry["hashes"]["sha256"] for entry in index.entries["six"] if "1.15.0" in entry["filename"])

    assert compare("requirements.txt", requirements(six, f"sha256:{old}")) == {("ADV024", f"sha256:{old}")}


def test_hashes_of_files_that_no_installer_uses_are_accepted(
    six: Document, compare: Compare, index: PackageIndex
) -> None:
    index.add_file("six", "six-1.16.0-py3.8.egg", b"egg")
    index.add_file("six", "six-1.16.0.tar.bz2", b"bz2")
    old = [f"sha256:{hashlib.sha256(body).hexdigest()}" for body in (b"egg", b"bz2")]

    assert compare("requirements.txt", requirements(six, *old)) == set()


def test_hashes_in_upper_case_are_accepted(six: Document, compare: Compare) -> None:
    for file in (six["sdist"], *six["wheels"]):
        file["hashes"]["sha256"] = file["hashes"]["sha256"].upper()

    assert compare("pylock.toml", pylock(six)) == set()
    assert compare("Pipfile.lock", pipfile_lock(six)) == set()


def test_a_file_in_a_local_index_is_compared_by_content(
    six: Document, compare: Compare, index: PackageIndex, tmp_path: Path
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for name in (WHEEL, WINDOWS, SDIST):
        (links / name).write_bytes(index.files[name])
    configuration = IndexConfiguration(default=index.url, find_links=(str(links),))
    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))
    index.entries.clear()
    for file in (six["sdist"], *six["wheels"]):
        file["url"] = f"file://{links}/{file['name']}"
    six["wheels"][0] |= {"path": f"links/{WHEEL}"}
    del six["index"], six["wheels"][0]["url"]

    honest = compare("pylock.toml", pylock(six), client=client)
    (links / SDIST).write_bytes(b"evil")
    changed = compare("pylock.toml", pylock(six), client=client)

    assert honest == set()
    assert changed == {("ADV014", SDIST)}


def test_a_file_newer_than_the_cached_page_is_accepted(six: Document, compare: Compare, index: PackageIndex) -> None:
    index.cache_control = "max-age=600"
    before = index.entries["six"]
    index.entries["six"] = [entry for entry in before if entry["filename"] != WINDOWS]
    assert compare("pylock.toml", pylock(six)) == {("ADV024", WINDOWS)}
    index.entries["six"] = before

    assert compare("pylock.toml", pylock(six)) == set()


def test_a_comparison_is_cached_until_the_lock_or_the_page_changes(
    six: Document, compare: Compare, index: PackageIndex, tmp_path: Path
) -> None:
    first = compare("pylock.toml", pylock(six))
    again = compare("pylock.toml", pylock(six), client=build_client(index, tmp_path / "cache", offline=True))
    change_hash(six)
    changed = compare("pylock.toml", pylock(six), client=build_client(index, tmp_path / "cache", offline=True))

    assert first == again == set()
    assert changed == {("ADV014", WINDOWS)}


def test_another_spelling_of_a_file_name_is_accepted(six: Document, compare: Compare, index: PackageIndex) -> None:
    # uv normalises the names in a `pylock.toml`, but not the addresses.
    for entry in index.entries["six"]:
        entry["filename"] = entry["filename"].replace("six", "Six")

    assert compare("pylock.toml", pylock(six)) == set()
    six["wheels"][0]["hashes"]["sha256"] = EVIL
    assert compare("pylock.toml", pylock(six)) == {("ADV014", WHEEL)}
