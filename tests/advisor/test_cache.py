"""The cache of index responses: damaged entries are never used, and are replaced from the index."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.access import OfflineError
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.pages.reader import IndexAnswerError
from advisor.resolve.candidates.index import IndexCandidates
from tests.advisor.factories import build_client, build_problem
from tests.package_index import PackageIndex

A = canonicalize_name("a")
BUCKETS = ("pages", "bodies", "metadata", "unpacked", "advisories", "offers", "requires")


def offer(index: PackageIndex, *, etags: bool = False) -> None:
    index.etags = etags
    index.add("a", "1.0", ["b>=1"])
    index.add("a", "2.0", ["b>=2"])
    index.add("b", "2.0")
    index.vulnerabilities[("a", "2.0")] = ["PYSEC-1"]


def read_everything(client: IndexClient) -> tuple[object, ...]:
    """Return one value of each kind that the program reads from an index."""
    problem = build_problem("a")
    source = IndexCandidates(client, problem)
    candidates = source.candidates(A)
    newest = candidates[0]
    return (
        client.files(A),
        [c.version for c in candidates],
        [source.dependencies(c) for c in candidates],
        [client.metadata(c.file).requires for c in candidates],
        client.unpacked_size(newest.file),
        client.vulnerabilities(newest.file, "a", "2.0"),
    )


def unpacked_size(wheel: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def make_stale(cache: Path, index: PackageIndex) -> None:
    """Make the cached page stale, so that it is revalidated."""
    key = f"{index.url}a/"
    about = json.loads(DiskCache(cache).read("pages", key) or b"")
    DiskCache(cache).write("pages", key, json.dumps({**about, "fetched": 0}).encode())


@pytest.mark.parametrize("age", ["fresh", "stale", "refresh"])
@pytest.mark.parametrize("etags", [True, False])
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_single_damaged_entry_is_not_used_and_is_replaced(
    index: PackageIndex, tmp_path: Path, bucket: str, etags: bool, age: str
) -> None:
    offer(index, etags=etags)
    expected = read_everything(build_client(index, tmp_path))
    assert expected[-2:] == (unpacked_size(index.files["a-2.0-py3-none-any.whl"]), ("PYSEC-1",))
    if age == "stale":
        make_stale(tmp_path, index)
    (damaged, *_) = sorted((tmp_path / bucket).iterdir())
    damage(damaged)

    online = build_client(index, tmp_path, refresh=age == "refresh")
    contents = read_everything(online)
    offline = build_client(index, tmp_path, offline=True)

    assert contents == expected
    assert online.cache.damaged == [damaged]
    assert read_everything(offline) == expected
    assert offline.cache.damaged == []


@pytest.mark.parametrize("etags", [True, False])
@pytest.mark.parametrize("refresh", [True, False])
def test_a_damaged_page_is_fetched_without_revalidation(
    index: PackageIndex, tmp_path: Path, etags: bool, refresh: bool
) -> None:
    offer(index, etags=etags)
    before = build_client(index, tmp_path).files(A)
    (body,) = (tmp_path / "bodies").iterdir()
    damage(body)

    after = build_client(index, tmp_path, refresh=refresh).files(A)

    assert after == before
    assert index.requests["simple"] == 2
    assert index.not_modified == 0


def test_an_unchanged_page_is_not_sent_again(index: PackageIndex, tmp_path: Path) -> None:
    offer(index, etags=True)
    before = build_client(index, tmp_path).files(A)

    after = build_client(index, tmp_path, refresh=True).files(A)

    assert after == before
    assert (index.requests["simple"], index.not_modified) == (2, 1)


def test_an_empty_response_is_an_error_even_if_the_package_was_absent_before(
    index: PackageIndex, tmp_path: Path
) -> None:
    assert build_client(index, tmp_path).files(A) == ()
    index.page_text = ""

    with pytest.raises(IndexAnswerError, match="did not answer with a project page"):
        build_client(index, tmp_path, refresh=True).files(A)


def test_a_changed_page_is_read_again(index: PackageIndex, tmp_path: Path) -> None:
    offer(index, etags=True)
    build_client(index, tmp_path).files(A)
    index.add("a", "3.0")

    fresh = build_client(index, tmp_path).files(A)
    renewed = build_client(index, tmp_path, refresh=True).files(A)

    assert len(fresh) == 2
    assert len(renewed) == 3
    assert build_client(index, tmp_path, offline=True).files(A) == renewed


@pytest.mark.parametrize(
    ("cache_control", "asked_again"),
    [
        ("", False),
        ("max-age=600, public", False),
        ("max-age=0", True),
        ("no-cache", True),
        ("no-store, max-age=600", True),
    ],
)
def test_a_page_is_fresh_for_the_max_age_of_its_index(
    index: PackageIndex, tmp_path: Path, cache_control: str, asked_again: bool
) -> None:
    offer(index)
    index.cache_control = cache_control
    build_client(index, tmp_path).files(A)

    build_client(index, tmp_path).files(A)

    assert index.requests["simple"] == 1 + asked_again


@pytest.mark.parametrize(
    ("cache_control", "age", "asked_again"),
    [("", 590, False), ("", 610, True), ("max-age=60", 50, False), ("max-age=60", 70, True), ("", -10, True)],
)
def test_a_stale_page_is_requested_again(
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache_control: str,
    age: float,
    asked_again: bool,
) -> None:
    offer(index)
    index.cache_control = cache_control
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    build_client(index, tmp_path).files(A)

    monkeypatch.setattr("time.time", lambda: 1_000_000.0 + age)
    build_client(index, tmp_path).files(A)

    assert index.requests["simple"] == 1 + asked_again


def test_a_cached_body_of_another_response_is_not_used(index: PackageIndex, tmp_path: Path) -> None:
    # The state after a process was killed between writing the two entries.
    offer(index, etags=True)
    build_client(index, tmp_path).files(A)
    key = f"{index.url}a/"
    page = DiskCache(tmp_path).read("pages", key)
    index.add("a", "3.0")
    build_client(index, tmp_path, refresh=True).files(A)
    DiskCache(tmp_path).write("pages", key, page or b"")

    with pytest.raises(OfflineError, match="is damaged"):
        build_client(index, tmp_path, offline=True).files(A)
    contents = build_client(index, tmp_path, refresh=True).files(A)

    assert len(contents) == 3
    assert build_client(index, tmp_path, offline=True).files(A) == contents


def test_a_damaged_page_that_changed_is_not_mixed_with_its_old_data(index: PackageIndex, tmp_path: Path) -> None:
    offer(index)
    build_client(index, tmp_path).files(A)
    (body,) = (tmp_path / "bodies").iterdir()
    damage(body)
    index.add("a", "3.0")

    with pytest.raises(IndexAnswerError, match="changed") as caught:
        build_client(index, tmp_path).files(A)

    assert "again" in caught.value.hint
    assert len(build_client(index, tmp_path).files(A)) == 3


def test_a_damaged_page_is_an_error_offline(index: PackageIndex, tmp_path: Path) -> None:
    offer(index)
    build_client(index, tmp_path).files(A)
    (body,) = (tmp_path / "bodies").iterdir()
    damage(body)

    with pytest.raises(OfflineError, match="is damaged") as caught:
        build_client(index, tmp_path, offline=True).files(A)

    assert "without `--offline`" in caught.value.hint


def test_the_size_of_a_file_is_requested_again_if_its_entry_is_damaged(index: PackageIndex, tmp_path: Path) -> None:
    index.json = False
    offer(index)
    first = build_client(index, tmp_path)
    size = first.size(first.files(A)[0])
    (entry,) = (tmp_path / "size").iterdir()
    damage(entry)

    again = build_client(index, tmp_path)
    healed = again.size(again.files(A)[0])
    offline = build_client(index, tmp_path, offline=True)

    assert size == healed == len(index.files[first.files(A)[0].filename])
    assert offline.size(offline.files(A)[0]) == size


@pytest.mark.parametrize("length", [0, 10, 64, 66])
def test_a_truncated_entry_is_damaged(tmp_path: Path, length: int) -> None:
    cache = DiskCache(tmp_path)
    cache.write("bucket", "key", b"content")
    path = cache.path_of("bucket", "key")
    path.write_bytes(path.read_bytes()[:length])

    assert cache.read("bucket", "key") is None
    assert cache.read("bucket", "key") is None
    assert cache.damaged == [path]


def test_an_entry_is_replaced_atomically(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)

    cache.write("bucket", "key", b"one")
    cache.write("bucket", "key", b"two")

    assert cache.read("bucket", "key") == b"two"
    assert cache.read("bucket", "other") is None
    assert cache.read("elsewhere", "key") is None
    assert [path.name for path in (tmp_path / "bucket").iterdir()] == [cache.path_of("bucket", "key").name]
    assert cache.damaged == []
