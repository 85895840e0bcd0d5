"""An index with wrong data affects only its own files, never those of another index."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.pages.reader import IndexAnswerError
from advisor.resolve.candidates.index import IndexCandidates
from tests.advisor.factories import build_client, build_problem, recommend_stack, versions_of
from tests.package_index import PackageIndex

A, B = canonicalize_name("a"), canonicalize_name("b")
WHEEL = "a-1.0-py3-none-any.whl"


def imitate(hostile: PackageIndex, index: PackageIndex, *, separate_metadata: bool) -> None:
    """Make an index list other content under the hash of a file on a good index."""
    index.separate_metadata = hostile.separate_metadata = separate_metadata
    index.add("a", "1.0", ["b>=1"])
    index.add("b", "1.0")
    hostile.add("a", "1.0", ["evil"])
    hostile.add("evil", "1.0")
    hostile.entries["a"][0]["hashes"] = index.entries["a"][0]["hashes"]


@pytest.mark.parametrize("separate_metadata", [True, False])
def test_an_index_that_lists_anothers_hash_does_not_change_the_others_metadata(
    index: PackageIndex, tmp_path: Path, separate_metadata: bool
) -> None:
    with PackageIndex() as hostile:
        imitate(hostile, index, separate_metadata=separate_metadata)
        problem = build_problem("a")
        expected = versions_of(recommend_stack(index, tmp_path / "clean", problem)[0].optimum.stack)

        deceived = versions_of(recommend_stack(hostile, tmp_path / "shared", problem)[0].optimum.stack)
        after = versions_of(recommend_stack(index, tmp_path / "shared", problem)[0].optimum.stack)
        source = IndexCandidates(build_client(index, tmp_path / "shared", offline=True), problem)

    assert deceived == {"a": "1.0", "evil": "1.0"}
    assert after == expected == {"a": "1.0", "b": "1.0"}
    assert [str(d.requirement) for d in source.dependencies(source.candidates(A)[0]) or ()] == ["b>=1"]


def test_an_index_that_lists_anothers_file_does_not_change_it_in_the_same_run(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.add("b", "1.0", ["c>=1"])
    with PackageIndex(wrong_hashes=True) as hostile:
        hostile.add("a", "1.0")
        hostile.entries["a"][0]["url"] = index.url.replace("/simple/", "/files/b-1.0-py3-none-any.whl")
        configuration = IndexConfiguration(default=index.url, bindings={"a": hostile.url})
        client = IndexClient(configuration, cache=DiskCache(tmp_path))

        with pytest.raises(IndexAnswerError, match="does not match"):
            client.metadata(client.files(A)[0])
        metadata = client.metadata(client.files(B)[0])

    assert [str(r) for r in metadata.requires] == ["c>=1"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_whole_wheel_must_have_the_hash_of_its_page(index: PackageIndex, tmp_path: Path, ranges: bool) -> None:
    index.separate_metadata, index.ranges = False, ranges
    index.add("a", "1.0", ["b>=1"])
    index.entries["a"][0]["hashes"] = {"sha256": "0" * 64}
    client = build_client(index, tmp_path)
    (file,) = client.files(A)

    if ranges:
        # Parts of a file have no hash; they are used for this index only.
        assert [str(r) for r in client.metadata(file).requires] == ["b>=1"]
        return
    with pytest.raises(IndexAnswerError, match=f"hash of .*{WHEEL}` does not match"):
        client.metadata(file)


def test_the_unpacked_size_of_a_file_is_cached_by_its_hash(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", code="")
    client = build_client(index, tmp_path)
    (file,) = client.files(A)
    before = client.unpacked_size(file)
    index.entries.clear()
    index.add("a", "1.0", code="x" * 1000)

    (again,) = build_client(index, tmp_path, refresh=True).files(A)

    assert before is not None
    assert again.url == file.url
    assert client.unpacked_size(again) == before + 1000
    assert client.unpacked_size(file) == before


def test_metadata_is_read_again_if_its_hash_on_the_page_changes(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=1"])
    before = build_client(index, tmp_path)
    first = before.metadata(before.files(A)[0])
    index.files[f"{WHEEL}.metadata"] = index.files[f"{WHEEL}.metadata"].replace(b"b>=1", b"b>=2")

    client = build_client(index, tmp_path, refresh=True)
    second = client.metadata(client.files(A)[0])

    assert ([str(r) for r in first.requires], [str(r) for r in second.requires]) == (["b>=1"], ["b>=2"])


def test_a_rebuilt_local_wheel_is_read_again(index: PackageIndex, tmp_path: Path) -> None:
    links = tmp_path / "wheels"
    links.mkdir()
    configuration = IndexConfiguration(default=index.url, find_links=(str(links),))
    requirements = []
    for requirement in ("b>=1", "b>=2"):
        with PackageIndex() as builder:
            builder.add("a", "1.0", [requirement])
            (links / WHEEL).write_bytes(builder.files[WHEEL])
        client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))
        requirements += [str(r) for r in client.metadata(client.files(A)[0]).requires]

    assert requirements == ["b>=1", "b>=2"]
