from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.access import OfflineError
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.http import connection
from advisor.index.http.errors import IndexUnreachableError
from advisor.index.metadata.distributions import MetadataError
from advisor.index.pages.reader import IndexAnswerError
from tests.advisor.factories import build_client
from tests.package_index import PackageIndex

A = canonicalize_name("a")


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_BACKOFF_SECONDS", 0.001)


def test_json_and_html_pages_give_the_same_files(tmp_path: Path) -> None:
    files = []
    for as_json in (True, False):
        with PackageIndex(json=as_json) as index:
            index.add("a", "1.0", ["b>=1; python_version > '3'"], requires_python=">=3.9", yanked=True)
            file = build_client(index, tmp_path / str(as_json)).files(A)[0]
            files.append((file.filename, file.sha256, file.requires_python, file.yanked, file.metadata_sha256))

    wheel = "a-1.0-py3-none-any.whl"
    digests = [hashlib.sha256(index.files[name]).hexdigest() for name in (wheel, f"{wheel}.metadata")]
    assert files == [(wheel, digests[0], ">=3.9", True, digests[1])] * 2


@pytest.mark.parametrize("yanked", [True, "broken", "", False])
def test_a_file_is_yanked_with_or_without_a_reason(index: PackageIndex, tmp_path: Path, yanked: bool | str) -> None:
    index.add("a", "1.0")
    index.entries["a"][0]["yanked"] = yanked

    (file,) = build_client(index, tmp_path).files(A)

    assert file.yanked is (yanked is not False)


def test_links_of_a_page_are_relative_to_its_base(index: PackageIndex, tmp_path: Path) -> None:
    index.json, index.base = False, True
    index.add("a", "1.0", ["b>=2"])
    client = build_client(index, tmp_path)

    (file,) = client.files(A)

    assert file.url == index.url.replace("/simple/", "/files/a-1.0-py3-none-any.whl")
    assert [str(r) for r in client.metadata(file).requires] == ["b>=2"]


def test_only_the_first_base_of_a_page_is_used(index: PackageIndex, tmp_path: Path) -> None:
    wheel = "a-1.0-py3-none-any.whl"
    links = f'<A HREF="x/{wheel}"> {wheel}\n<a href="&#x79;/b.whl">a-2.0-py3-none-any.<b>w</b>hl</a><a>c.whl</a>'
    index.page_text = f'<base target="_top"><base href="/files/"><base href="/other/">{links}'
    index.page_type = "text/html"

    files = build_client(index, tmp_path).files(A)

    assert [(file.filename, file.url) for file in files] == [
        (wheel, index.url.replace("/simple/", f"/files/x/{wheel}")),
        ("a-2.0-py3-none-any.whl", index.url.replace("/simple/", "/files/y/b.whl")),
    ]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_wheel_is_read_with_the_credentials_of_its_index(index: PackageIndex, tmp_path: Path, ranges: bool) -> None:
    index.separate_metadata, index.ranges, index.password = False, ranges, "hunter2"
    index.add("a", "1.0", ["b>=2"])
    configuration = IndexConfiguration(default=index.url.replace("http://", "http://me:hunter2@"))
    client = IndexClient(configuration, cache=DiskCache(tmp_path))

    (file,) = client.files(A)

    assert [str(r) for r in client.metadata(file).requires] == ["b>=2"]
    # If the server supports ranges, the whole wheel is never requested.
    assert client.transport.request_counts == {"GET": 1 if ranges else 2, "ranged": 1}


@pytest.mark.parametrize(
    ("vulnerabilities", "identifiers"),
    [
        ([{"id": "B"}, {"id": "A", "withdrawn": None}], ("A", "B")),
        ([{"id": "A", "withdrawn": "2025-01-01T00:00:00Z"}], ()),
        ([], ()),
        (None, None),
        ("none", None),
    ],
)
def test_vulnerabilities_come_from_the_record_of_the_version(
    index: PackageIndex, tmp_path: Path, vulnerabilities: object, identifiers: tuple[str, ...] | None
) -> None:
    index.add("a", "1.0")
    if vulnerabilities is not None:
        index.records["a", "1.0"] = vulnerabilities
    client = build_client(index, tmp_path)
    (file,) = client.files(A)

    assert client.vulnerabilities(file, "a", "1.0") == identifiers


def test_a_json_page_has_size_and_upload_time(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", uploaded="2025-03-01T12:00:00Z")

    file = build_client(index, tmp_path).files(A)[0]

    assert file.size == len(index.files[file.filename])
    assert file.uploaded == "2025-03-01T12:00:00+00:00"


def test_separate_metadata_is_read_without_the_wheel(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=2"])
    client = build_client(index, tmp_path)

    metadata = client.metadata(client.files(A)[0])

    assert [str(r) for r in metadata.requires] == ["b>=2"]
    assert client.transport.request_counts == {"GET": 2}


def test_metadata_is_read_from_the_wheel_by_range_requests(index: PackageIndex, tmp_path: Path) -> None:
    index.separate_metadata = False
    index.add("a", "1.0", ["b>=2"])
    client = build_client(index, tmp_path)

    metadata = client.metadata(client.files(A)[0])

    assert [str(r) for r in metadata.requires] == ["b>=2"]
    assert client.transport.request_counts["GET"] == 1


def test_the_whole_wheel_is_downloaded_from_a_server_without_range_requests(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.separate_metadata = index.ranges = False
    index.add("a", "1.0", ["b>=2"])
    client = build_client(index, tmp_path)

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == ["b>=2"]


def test_an_unknown_project_has_no_files(index: PackageIndex, tmp_path: Path) -> None:
    assert build_client(index, tmp_path).files(A) == ()


def test_a_warm_cache_answers_offline(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=2"])
    online = build_client(index, tmp_path)
    expected = online.files(A), online.metadata(online.files(A)[0])
    before = index.requests.total()

    offline = build_client(index, tmp_path, offline=True)

    assert (offline.files(A), offline.metadata(offline.files(A)[0])) == expected
    assert index.requests.total() == before


def test_a_cold_cache_is_an_error_offline(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match="is not in the cache") as caught:
        build_client(index, tmp_path, offline=True).files(A)

    assert "without `--offline`" in caught.value.hint


def test_metadata_is_never_fetched_twice(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    first = build_client(index, tmp_path)
    first.metadata(first.files(A)[0])
    second = build_client(index, tmp_path)
    second.metadata(second.files(A)[0])

    assert index.requests["files"] == 1


@pytest.mark.parametrize("status", [500, 503, 429, 403])
def test_the_error_of_a_failed_request_names_address_and_status(
    index: PackageIndex, tmp_path: Path, status: int
) -> None:
    index.status = status

    with pytest.raises(IndexUnreachableError, match=f"/simple/a/`: it answers {status}"):
        build_client(index, tmp_path).files(A)


def test_a_transient_error_is_retried(index: PackageIndex, tmp_path: Path) -> None:
    index.status = 503

    with pytest.raises(IndexUnreachableError, match="after 4 attempts"):
        build_client(index, tmp_path).files(A)

    assert index.requests["simple"] == 4


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_can_succeed_after_retries(index: PackageIndex, tmp_path: Path, status: int) -> None:
    index.add("a", "1.0")
    index.status, index.failures = status, 3

    files = build_client(index, tmp_path).files(A)

    assert [file.filename for file in files] == ["a-1.0-py3-none-any.whl"]
    assert index.requests["simple"] == 4


def test_a_slow_index_is_given_up(index: PackageIndex, tmp_path: Path) -> None:
    index.delay_seconds = 0.5

    with pytest.raises(IndexUnreachableError, match="no answer in time|not complete after"):
        build_client(index, tmp_path, timeout=0.05).files(A)


def test_an_unreachable_index_is_an_error(index: PackageIndex, tmp_path: Path) -> None:
    client = build_client(index, tmp_path)
    index.__exit__()

    with pytest.raises(IndexUnreachableError, match="no connection"):
        client.files(A)
    index.__enter__()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"meta": {"api-version": "9.0"}, "files": []}'])
def test_another_document_is_not_a_page(index: PackageIndex, tmp_path: Path, text: str) -> None:
    index.page_text = text

    with pytest.raises(IndexAnswerError, match="did not answer with a project page"):
        build_client(index, tmp_path).files(A)


def test_a_hash_that_does_not_match_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.wrong_hashes = True
    index.add("a", "1.0")
    client = build_client(index, tmp_path)

    with pytest.raises(IndexAnswerError, match="hash of .* does not match"):
        client.metadata(client.files(A)[0])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Metadata-Version: 2.1\nVersion: 1.0\n", "'name'"),
        ("Metadata-Version: 2.1\nName: a\nVersion: one\n", "`Version`"),
        (
            "Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Dist: b (>=5.1.*)\n",
            r"its line `Requires-Dist: b \(>=5.1.\*\)` is malformed, and pip refuses it since 24.1: ",
        ),
    ],
)
def test_the_error_of_malformed_metadata_names_the_field(
    index: PackageIndex, tmp_path: Path, text: str, field: str
) -> None:
    index.add("a", "1.0", metadata=text)
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match=field):
        client.metadata(client.files(A)[0])


def test_a_malformed_requirement_on_python_does_not_hide_a_file_from_pip_nor_from_us(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.add("a", "1.0", metadata="Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Python: >=3.6.*\n")
    client = build_client(index, tmp_path)

    assert client.metadata(client.files(A)[0]).requires_python is None


def test_a_directory_of_wheels_is_searched(index: PackageIndex, tmp_path: Path) -> None:
    from dataclasses import replace

    index.add("a-b", "1.0")
    index.add("a", "2.0")
    links = tmp_path / "wheels"
    links.mkdir()
    for name in ("a_b-1.0-py3-none-any.whl", "a-2.0-py3-none-any.whl"):
        (links / name).write_bytes(index.files[name])
    index.entries.clear()
    client = build_client(index, tmp_path / "cache")
    client.configuration = replace(client.configuration, find_links=(str(links),))

    file = client.files(canonicalize_name("a-b"))[0]

    assert file.filename == "a_b-1.0-py3-none-any.whl"
    assert client.metadata(file).name == "a-b"
    assert client.pinned(file).sha256 == hashlib.sha256(index.files["a_b-1.0-py3-none-any.whl"]).hexdigest()
