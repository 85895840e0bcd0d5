"""Unusual headers and redirects of servers that pip accepts, too."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index import limits
from advisor.index.access import FRESH_SECONDS, fresh_seconds
from tests.advisor.factories import build_client
from tests.package_index import PackageIndex

A = canonicalize_name("a")
WHEEL = "a-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("max-age=60", 60),
        ("max-age=" + "9" * 5000, 999_999_999),
        ("max-age=-1", FRESH_SECONDS),
        ("max-age=", FRESH_SECONDS),
    ],
)
def test_any_cache_control_is_accepted(index: PackageIndex, tmp_path: Path, value: str, seconds: int) -> None:
    index.cache_control = value
    index.add("a", "1.0")

    assert len(build_client(index, tmp_path).files(A)) == 1
    assert fresh_seconds(value) == seconds


@pytest.mark.parametrize(
    "value", ["9" * 5000, "Fri, 31 Dec 99999999999 23:59:59 GMT", "Fri, 99 Foo 2020 99:99:99 +99999999999999", "soon"]
)
def test_any_retry_after_is_accepted(
    index: PackageIndex, tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    index.status, index.failures, index.retry_after = 503, 1, value
    index.add("a", "1.0")

    assert len(build_client(index, tmp_path).files(A)) == 1
    (wait,) = [one for one in waits if one]
    assert 0 < wait <= limits.RETRY_AFTER_SECONDS


@pytest.mark.parametrize("field", ["0-1/" + "9" * 5000, "9" * 5000 + "-1/2"])
def test_any_content_range_is_accepted(index: PackageIndex, tmp_path: Path, field: str) -> None:
    index.separate_metadata, index.content_range = False, f"bytes {field}"
    index.add("a", "1.0", ["b>=1"])
    client = build_client(index, tmp_path)

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == ["b>=1"]


class Moved(PackageIndex):
    """An index that redirects its pages, with links relative to the new address."""

    place = "/repo/pypi/simple/a/"

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        if path == "/simple/a/":
            return 302, b"", "text/plain", {"Location": self.place}
        if path.endswith("/simple/a/"):
            status, body, kind, more = super().answer("/simple/a/", headers)
            return status, body.replace(b'"/files/', b'"../../files/'), kind, more
        if path.startswith(self.place.replace("simple/a/", "files/")):
            return self._file(path.rpartition("/")[2], headers)
        return 404, b"", "text/plain", {}


@pytest.mark.parametrize("json", [True, False])
def test_links_of_a_redirected_page_are_relative_to_its_final_address(tmp_path: Path, json: bool) -> None:
    with Moved(json=json, etags=True) as index:
        index.add("a", "1.0", ["b>=1"])
        client = build_client(index, tmp_path)
        (file,) = client.files(A)
        required = [str(r) for r in client.metadata(file).requires]
        (cached,) = build_client(index, tmp_path, offline=True).files(A)
        (same,) = build_client(index, tmp_path, refresh=True).files(A)
        # The same page from another address has other links.
        index.place = "/other/simple/a/"
        (moved,) = build_client(index, tmp_path, refresh=True).files(A)

    assert file.url == index.url.replace("/simple/", f"/repo/pypi/files/{WHEEL}")
    assert moved.url == index.url.replace("/simple/", f"/other/files/{WHEEL}")
    assert (file.index, required, cached, same) == (index.url, ["b>=1"], file, file)


class Labelled(PackageIndex):
    """An index that declares the compression of an sdist as that of the response, like Apache with `AddEncoding`."""

    def _file(self, name: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        status, body, kind, more = super()._file(name, headers)
        return status, body, kind, {**more, "Content-Encoding": "x-gzip"}


@pytest.mark.parametrize("ranges", [True, False])
def test_files_are_not_decompressed_by_the_transport(tmp_path: Path, ranges: bool) -> None:
    with Labelled(separate_metadata=False, ranges=ranges) as index:
        index.add_sdist("a", "2.0")
        index.add("a", "1.0", ["b>=1"])
        client = build_client(index, tmp_path)
        sdist, wheel = client.files(A)

        assert str(client.metadata(sdist).version) == "2.0"
        assert [str(r) for r in client.metadata(wheel).requires] == ["b>=1"]
        with client.transport.download(sdist.url) as (_, digest):
            assert digest == hashlib.sha256(index.files["a-2.0.tar.gz"]).hexdigest()
